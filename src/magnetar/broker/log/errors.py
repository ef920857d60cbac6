"""Why an append is not made now: the caller has work to do first, or has to wait."""

from typing import ClassVar

from magnetar.base.errors import StorageError


class NeedsOpening(Exception):
    """The caller must call `batch_check.check_keys`, on a thread and not on the event loop."""


class ProducersNotKnown(StorageError):
    """The server must first read from the partition's log what Pulsar's producers have sent: they try again."""

    code: ClassVar[str] = "PRODUCERS_NOT_KNOWN"

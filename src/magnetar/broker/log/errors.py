"""Why an append is not made now: the caller has work to do first, or has to wait."""

from typing import ClassVar

from magnetar.base.errors import StorageError


class NeedsOpening(Exception):
    """The caller must call `batch_check.check_keys`, on a thread and not on the event loop."""


class ProducersNotKnown(StorageError):
    """What Pulsar's producers have sent to a partition has to be read from its log first: they try again."""

    code: ClassVar[str] = "PRODUCERS_NOT_KNOWN"

"""Whose fault is it: the three families of failure.

* `WireError`: the peer sent bytes that do not follow its protocol.  Answer if the protocol has a way to, then close.
* `BrokerError`: expected trouble with a well-formed request.  Each subclass is mapped to the code of each protocol in
  one table there (`protocols/kafka/errors.py`); its text is one sentence that may be shown to a client.  Over REST a
  program tells it by its `code`.
* `AssertionError`: a bug of ours.  The shell logs it with its state, closes the connection or fences the ledger.

`ConfigError` is for the person who starts the server: one sentence with the next step.
"""

from typing import ClassVar, TypeVar

E = TypeVar("E", bound=BaseException)


class MagnetarError(Exception):
    """Base of everything that Magnetar raises on purpose."""


class WireError(MagnetarError):
    """The peer's bytes do not follow its protocol."""


class ConfigError(MagnetarError):
    """A setting is unknown, malformed or contradicts another one."""


class BrokerError(MagnetarError):
    """A well-formed request that cannot be served; the text may be shown to the client.

    Programs compare `code`: each subclass writes one of its own, which stays when the class is renamed.
    """

    code: ClassVar[str] = "BROKER_ERROR"


class MetadataError(BrokerError):
    """The metadata store cannot answer."""

    code: ClassVar[str] = "METADATA_ERROR"


class MetadataLost(MetadataError):
    """The metadata store failed in the middle of a write: what was asked may have been carried out all the same."""

    code: ClassVar[str] = "METADATA_LOST"


class BadVersion(MetadataError):
    """A compare-and-set lost: another writer wrote this path first."""

    code: ClassVar[str] = "BAD_VERSION"


class StorageError(BrokerError):
    """A write or read failed for now (disk full, I/O error); nothing acknowledged is affected."""

    code: ClassVar[str] = "STORAGE_ERROR"


class StorageFull(StorageError):
    """No space is left: writes are refused until there is; reads go on."""

    code: ClassVar[str] = "STORAGE_FULL"


class EntryCorrupt(StorageError):
    """Stored bytes fail their checksum; they are never served."""

    code: ClassVar[str] = "ENTRY_CORRUPT"


class LedgerFenced(StorageError):
    """Another writer has taken this ledger over, or it is sealed."""

    code: ClassVar[str] = "LEDGER_FENCED"


class TooManyLeases(BrokerError):
    """No more files can be kept for readers now."""

    code: ClassVar[str] = "TOO_MANY_LEASES"


class LeaseNotFound(BrokerError):
    """No such lease: never given, ended, or lapsed."""

    code: ClassVar[str] = "LEASE_NOT_FOUND"


class LogLost(StorageError):
    """Another broker has taken this partition over: it takes appends there."""

    code: ClassVar[str] = "LOG_LOST"


class LedgerNotFound(StorageError):
    """No such ledger: never created, or deleted."""

    code: ClassVar[str] = "LEDGER_NOT_FOUND"


def kept(error: E) -> E:
    """An error that a variable or an object keeps after it was caught: without its traceback, and without the errors
    out of which it was made.

    A traceback has the frame that has caught the error, the frames of all its callers, and so what these have.  If that
    leads back to the error, the memory of the circle, a request's megabytes among it, waits for the collector.  It
    waits for good if anything in the circle is older than a moment (`server/garbage.py`).
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error

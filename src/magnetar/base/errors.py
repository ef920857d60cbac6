"""Whose fault is it: the three families of failure.

* `WireError`: the peer sent bytes that do not follow its protocol.  Answer if the protocol has a way to, then close.
* `BrokerError`: expected trouble with a well-formed request.  Each subclass is mapped to the code of each protocol in
  one table there (`protocols/kafka/errors.py`); its text is one sentence that may be shown to a client.
* `AssertionError`: a bug of ours.  The shell logs it with its state, closes the connection or fences the ledger.

`ConfigError` is for the person who starts the server: one sentence with the next step.
"""


class MagnetarError(Exception):
    """Base of everything that Magnetar raises on purpose."""


class WireError(MagnetarError):
    """The peer's bytes do not follow its protocol."""


class ConfigError(MagnetarError):
    """A setting is unknown, malformed or contradicts another one."""


class BrokerError(MagnetarError):
    """A well-formed request that cannot be served; the text may be shown to the client."""


class MetadataError(BrokerError):
    """The metadata store cannot answer."""


class MetadataLost(MetadataError):
    """The metadata store failed for good in the middle of a write: what was asked may be on the disk all the same."""


class BadVersion(MetadataError):
    """A compare-and-set lost: somebody else wrote this path first."""


class StorageError(BrokerError):
    """A write or read failed for now (disk full, I/O error); nothing acknowledged is affected."""


class StorageFull(StorageError):
    """No space is left: writes are refused until there is; reads go on."""


class EntryCorrupt(StorageError):
    """Stored bytes fail their checksum; they are never served."""


class LedgerFenced(StorageError):
    """Another writer has taken this ledger over, or it is sealed."""


class TooManyLeases(BrokerError):
    """No more files can be kept for readers now."""


class LeaseNotFound(BrokerError):
    """No such lease: never given, ended, or lapsed."""


class LedgerNotFound(StorageError):
    """No such ledger: never created, or deleted."""

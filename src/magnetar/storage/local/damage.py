"""The ledgers in which a reader has found damage since the start: for the operator, who would otherwise hear of it from
clients.

Damage is an entry with a wrong checksum, a file that is gone, or that the disk fails to read (EIO).  Readers find it
one entry at a time, on their threads, so only the first entry of each ledger is kept, and of at most
`LEDGERS_MAX` ledgers.  A ledger that is deleted is forgotten: what was damaged is gone.  Damage that no reader has met
is not known here; `magnetar doctor --deep` looks for it.
"""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.local.ledger import LocalLedger

LEDGERS_MAX: Final = 100


class Damage:
    """See the module's text.  Safe to use from any thread."""

    def __init__(self, path_of: Callable[[LocalLedger], Path]) -> None:
        self._path_of = path_of
        self._lock = threading.Lock()
        self._first: dict[LocalLedger, int] = {}  # the first damaged entry that was found

    def found(self, ledger: LocalLedger, entry_id: int) -> None:
        """A reader has met this entry, and does not get it."""
        with self._lock:
            if ledger in self._first or len(self._first) < LEDGERS_MAX:
                self._first[ledger] = min(entry_id, self._first.get(ledger, entry_id))

    def failed(self, ledger: LocalLedger, entry_id: int, error: StorageError) -> None:
        """A reader has not got this entry, because of `error`, which need not be damage."""
        is_gone = isinstance(error, LedgerNotFound) and not ledger.deleted
        if is_gone or isinstance(error, EntryCorrupt) or getattr(error.__cause__, "errno", 0) == errno.EIO:
            self.found(ledger, entry_id)

    def ledgers(self) -> list[tuple[LocalLedger, int]]:
        """Each ledger that is still there, with its first damaged entry, in the order of their ids."""
        with self._lock:
            for ledger in [one for one in self._first if one.deleted]:
                del self._first[ledger]
            return sorted(self._first.items(), key=lambda found: found[0].ledger_id)

    @property
    def problem(self) -> str | None:
        """A sentence about the first of these ledgers; None if there is none."""
        found = self.ledgers()
        if not found:
            return None
        ledger, entry_id = found[0]
        more = f" (and entries of {len(found) - 1} ledgers more)" if len(found) > 1 else ""
        return (
            f"entry {entry_id} of ledger {ledger.ledger_id} is damaged on its disk, or gone{more}: no client gets it,"
            f" and readers of its partition stop there; put {self._path_of(ledger)} back from a backup, or delete the"
            " records up to it"
        )

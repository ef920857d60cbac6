"""Writes that a thread carries out, if the kernel does not (`kernel_writes.py`)."""

from collections.abc import Callable

from magnetar.storage.local.ring import RingFile
from magnetar.storage.local.rounds import Round
from magnetar.storage.local.worker import Worker


class EarlierRoundsLost(OSError):
    """The sync of rounds that were already reported has failed: the disk may not have them, and no later sync can
    tell.
    """


class ThreadWrites:
    """One round at a time.

    The thread calls `ended` when the disk has answered.  The loop calls `report` with None, or with the reason why
    the write failed.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        is_synced: bool,
        sync_after_write: bool,
        ended: Callable[[], None],
        report: Callable[[BaseException | None], None],
    ) -> None:
        self._worker = worker
        self._is_synced = is_synced
        self._sync_after_write = sync_after_write
        self._ended = ended
        self._report = report
        self._unsynced: dict[RingFile, None] = {}
        """Files with writes since their last sync, oldest first, while rounds are not synced."""

    def begin(self, target: RingFile, data: memoryview, round_: Round) -> None:
        """Begin to write `data`, the bytes of `round_`, at the position of `target`."""

        def write() -> None:
            try:
                target.file.write(data, target.position)
                if self._sync_after_write:
                    target.file.sync()
                elif not self._is_synced:
                    self._unsynced[target] = None
                    if any(entry.ledger is None for entry in round_.entries):
                        self._sync_all()
            finally:
                self._ended()  # in the thread: a late loop is not the disk's fault

        self._worker.submit(write, report=lambda _, failure: self._report(failure))

    def _sync_all(self) -> None:
        """Sync this round and all before it: a round after one that a loss of power took does not count."""
        try:
            for file in self._unsynced:
                file.file.sync()
        except OSError as error:
            raise EarlierRoundsLost(error.errno, error.strerror) from error
        self._unsynced.clear()

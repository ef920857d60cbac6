"""The two passes over a log: one notes keys, one writes the records that stay.  See docs/internals/compaction.md.

The event loop reads and appends; the thread of `CompactionThread` decodes entries.  All of it is done in pieces: one
megabyte is read, decoded and released before the next one.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol, TypeVar

from magnetar.base.clock import Clock, sleep
from magnetar.base.errors import StorageError
from magnetar.base.pacing import Pace
from magnetar.base.tasks import settle
from magnetar.broker.compaction.entries import Entries, Written
from magnetar.storage.store import LedgerId, LedgerWriter, StoredEntry

T = TypeVar("T")

READ_BYTES: Final = 1 << 20
APPEND_BYTES: Final = 256 << 10
"""Bytes in one round of the journal: on a slow disk producers wait 0.5 ms for them."""

_APPENDS_AT_ONCE: Final = 100  # entries between two turns of the event loop


class CompactionThread:
    """The thread that decodes entries, with pauses."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._pace = Pace(monotonic)
        self._thread = ThreadPoolExecutor(1, "magnetar-compact", initializer=self._pace.enter)
        self._is_closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread, and return its result."""
        if self._is_closed:
            raise StorageError("the server stops")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def rest(self) -> None:
        """Pause if it is time; the work calls this between two entries."""
        self._pace.rest_if_due()

    def close(self) -> None:
        """Begin no more work."""
        self._is_closed = True
        self._pace.hurry()
        self._thread.shutdown(wait=False, cancel_futures=True)


class Readable(Protocol):
    """A source of stored entries: a log, or what Pulsar's compaction has left of it."""

    async def read_stored(self, offset: int, bytes_max: int) -> tuple[LedgerId, list[StoredEntry]]: ...


class Progress:
    """The progress of a run, in stored bytes, and the limit of its speed."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.noted_bytes = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._began_s = clock.monotonic()

    async def wait(self) -> None:
        """Wait until the limit of bytes per second allows as many bytes as the run has handled."""
        done = self.noted_bytes + self.read_bytes + self.written_bytes
        owed_s = self._began_s + done / self._bytes_per_second - self._clock.monotonic()
        if owed_s > 0:
            await sleep(self._clock, owed_s)


async def note(
    log: Readable, begin: int, end: int, entries: Entries, thread: CompactionThread, progress: Progress
) -> None:
    """Note the keys of the log from `begin` to `end`; `entries.end` shows how far there was memory.

    Raises:
        EntryCorrupt, StorageError: the log cannot be read.
    """
    entries.end = begin
    while entries.end < end:
        ledger_id, stored = await log.read_stored(entries.end, READ_BYTES)
        progress.noted_bytes += sum(len(one.body) for one in stored)
        if not await thread.run(partial(_note, ledger_id, stored, end, entries, thread)):
            return
        await progress.wait()


def _note(
    ledger_id: LedgerId, stored: Sequence[StoredEntry], end: int, entries: Entries, thread: CompactionThread
) -> bool:
    for one in stored:
        thread.rest()
        if one.last_offset >= end or not entries.note(ledger_id, one):
            return False
    return True


async def rewrite(
    log: Readable,
    begin: int,
    end: int,
    entries: Entries,
    writer: LedgerWriter,
    thread: CompactionThread,
    progress: Progress,
    leader_epoch: int | None,
) -> None:
    """Write the entries of the log that stay, from `begin` to `end`, where an entry ends.  Unless `leader_epoch` is
    None, the last entry of `writer` ends there, too.

    Raises:
        EntryCorrupt, StorageError: the log cannot be read, or the ledger cannot be written.
    """
    while begin < end:
        ledger_id, stored = await log.read_stored(begin, READ_BYTES)
        stored = [one for one in stored if one.last_offset < end]
        begin = stored[-1].last_offset + 1
        progress.read_bytes += sum(len(one.body) for one in stored)
        covers_with = leader_epoch if begin == end else None
        written = await thread.run(partial(_rewrite, ledger_id, stored, entries, thread, covers_with))
        await _append(writer, written)
        progress.written_bytes += sum(one.size for one in written)
        await progress.wait()


def _rewrite(
    ledger_id: LedgerId,
    stored: Sequence[StoredEntry],
    entries: Entries,
    thread: CompactionThread,
    covers_with: int | None,
) -> list[Written]:
    found = []
    for one in stored:
        thread.rest()
        written = entries.rewrite(ledger_id, one)
        if written is not None:
            found.append(written)
    if covers_with is not None and (not found or found[-1].last_offset != stored[-1].last_offset):
        found.append(entries.cover(ledger_id, stored[-1], covers_with))
    return found


async def _append(writer: LedgerWriter, written: Sequence[Written]) -> None:
    """Append in pieces, each durable before the next, so that producers can use the journal in between."""
    begin = 0
    while begin < len(written):
        size, end = 0, begin
        while end < len(written) and end - begin < _APPENDS_AT_ONCE and size < APPEND_BYTES:
            size += written[end].size
            end += 1
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for number in range(begin, end):
            one = written[number]
            done = partial(settle, durable) if number == end - 1 else _ignore
            writer.append(one.parts, one.size, one.last_offset, one.max_timestamp_ms, done)
        await durable
        begin = end


def _ignore(error: Exception | None) -> None:
    """Takes the error of an append: every append after it in this ledger fails, too, and the last one is awaited."""

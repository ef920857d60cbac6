"""The journal: every append of every ledger, in rounds, each one synced write.

The event loop copies entries straight into the round that fills; one thread writes rounds.  While a round is
being written the next one fills, and it is taken the moment the write returns: no timer, and the slower the
disk or the busier the loop, the larger the rounds.  The thread holds the interpreter only to take a round and
to report one; the checksums and the copy are made by the loop at `append`, where they cost no hand-over of
the interpreter lock.

When a write fails, that round and everything queued behind it fail, and the ledgers concerned are *cut* in another file
before any producer gets its error: a round that failed may be on disk all the same, and must not come back at a
restart.

Rounds wait while every file of the ring is in use; a checkpoint calls `recycle`.  While checkpoints fail nothing
will make room soon: a round that finds none fails with all that is queued behind it, as a failed write does, but
nothing of it is on disk, so nothing has to be cut.

What follows a round proves that it was whole (`replay`).  When nothing does for a second, an empty round is written:
from then on damage to the last round is not taken for a torn tail either.

Without syncing (`journal.sync.data=false`) the power may take rounds, but none with a fact about a ledger: a chain
names a ledger as soon as it is made, and the metadata is synced always.

An unforeseen exception, in the thread or anywhere else in the store (`break_off`), ends all writing: what waits fails,
and so does every later append.  Nothing is cut then: what failed may be there after the next start.
"""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from magnetar.base.arena import map_memory
from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import StorageError, StorageFull
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.format import (
    BLOCK_BYTES,
    RECORD,
    RECORD_BYTES,
    ROUND_BYTES,
    UNSYNCED,
    Control,
    align_up,
    control_record,
    round_header,
)
from magnetar.storage.local.ledger import Queued
from magnetar.storage.local.ring import Ring, RingFile

log = logging.getLogger(__name__)

MARK_S: Final = 1.0
"""A round that nothing has followed for so long is followed by an empty one."""

STALL_S: Final = 1.0
STALL_LOG_S: Final = 60.0
NO_ROOM: Final = "the disk is full: the journal has no room until segments can grow again"


class Round:
    """An aligned buffer that fills with records and is written as a whole."""

    __slots__ = ("buffer", "checksums", "end", "entries", "sequence")

    def __init__(self, capacity: int) -> None:
        self.buffer = memoryview(map_memory(capacity))
        self.end = ROUND_BYTES
        self.checksums = bytearray()
        self.entries: list[Queued] = []
        self.sequence = 0

    def put(self, entry: Queued) -> bool:
        """Copy a record in; False when it does not fit."""
        position = self.end
        end = position + RECORD_BYTES + entry.size
        buffer = self.buffer
        if end > len(buffer):
            return False
        header = entry.header
        buffer[position : position + RECORD_BYTES] = header
        position += RECORD_BYTES
        for part in entry.parts:
            stop = position + len(part)
            buffer[position:stop] = part
            position = stop
        assert position == end
        self.end = end
        self.checksums += header[4:8]
        self.entries.append(entry)
        return True

    def finish(self, epoch: int, sequence: int, salt: int, flags: int) -> memoryview:
        """Write the header and the padding; what is to be written."""
        self.sequence = sequence
        size = align_up(self.end)
        digest = crc32c(self.checksums)
        self.buffer[:ROUND_BYTES] = round_header(
            epoch, sequence, self.end - ROUND_BYTES, len(self.entries), digest, salt, flags
        )
        self.buffer[self.end : size] = bytes(size - self.end)
        return self.buffer[:size]

    def clear(self) -> None:
        self.end = ROUND_BYTES
        self.checksums.clear()
        self.entries = []


OnRound = Callable[[list[Queued], int, StorageError | None], None]
"""Called on the loop for each round, in order, with its entries, its sequence, and None or why it failed."""


class Journal:
    def __init__(
        self,
        ring: Ring,
        *,
        round_bytes_max: int,
        next_sequence: int,
        salt: int,
        is_synced: bool,
        sync_after_write: bool,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: StoreCounters,
        on_round: OnRound,
        on_reported: Callable[[], None],
        on_full: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._ring = ring
        self._round_bytes_max = round_bytes_max
        self._next_sequence = next_sequence
        self._salt = salt
        self._flags = 0 if is_synced else UNSYNCED
        self._sync_after_write = sync_after_write
        self._unsynced: dict[RingFile, None] = {}
        """Written to since their last sync, oldest first, while rounds are not synced."""
        self._loop = loop
        self._clock = clock
        self._counters = counters
        self._on_round = on_round
        self._on_reported = on_reported
        self._on_full = on_full
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._filling = Round(round_bytes_max)
        self._spare: Round | None = Round(round_bytes_max)
        self._overflow: deque[Queued] = deque()
        self._completed: deque[tuple[list[Queued], int, StorageError | None]] = deque()
        self._idle = True
        self._stopping = False
        self._wants_mark = False
        self._mark_timer: TimerHandle | None = None
        self._mark_behind = 0
        """The last round when the timer was set.  Loop only."""
        self._epoch = 0
        self._writing: Round | None = None
        """What the thread has taken and not reported."""
        self._broken: StorageError | None = None
        self.write_began_s: float | None = None
        """When the write began that is under way."""
        self.full_since_s: float | None = None
        """Since when a round waits for room."""
        self._quiet_until = clock.monotonic()
        self._failing = False
        """A write failed and the loop does not know yet: an append now would leave a hole in its ledger."""
        self.queued_bytes = 0
        """Appended and not yet reported.  Loop only."""
        self._refuse_when_full = False
        """Set while checkpoints fail: what the ring has no room for is refused, or fails if it was queued."""
        self._thread = threading.Thread(target=self._run, name="magnetar-journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # -- the loop's side

    def append(self, entry: Queued) -> None:
        """Queue a record; `on_round` reports it.  StorageFull and StorageError leave nothing queued."""
        need = RECORD_BYTES + entry.size
        if self._refuse_when_full:
            self._check_room(need)
        with self._lock:
            if self._broken is not None:
                raise StorageError(f"the journal cannot be written: {self._broken}")
            if self._failing:
                raise StorageError("a journal write has just failed")
            if self._overflow or not self._filling.put(entry):
                self._overflow.append(entry)
                self._refill()
            kick = self._idle
            self._idle = False
        self.queued_bytes += need
        if kick:
            # At the end of this turn of the loop: everything it appends shares the round.
            self._loop.call_soon(self._wake.put, None)

    def recycle(self, sequence: int) -> None:
        """No round up to `sequence` is needed any more."""
        with self._lock:
            self._ring.recycle(sequence)
        self._wake.put(None)

    def add_file(self, file: RingFile) -> None:
        with self._lock:
            self._ring.free.append(file)
        self._wake.put(None)

    def wants_checkpoint(self) -> bool:
        with self._lock:
            return self._ring.half_used()

    def refuse_when_full(self, refuse: bool) -> None:
        """Checkpoints fail (or do again what they should): what the ring has no room for is not to wait for it."""
        self._refuse_when_full = refuse
        self._wake.put(None)

    @property
    def epoch(self) -> int:
        """The newest use of a file in which a whole round is on disk; 0 while there is none."""
        return 0 if self._flags & UNSYNCED else self._epoch

    @property
    def broken(self) -> StorageError | None:
        """Why nothing can be written any more."""
        return self._broken

    def break_off(self, why: StorageError) -> None:
        """Fail what is queued and every later append."""
        with self._lock:
            self._broken = self._broken or why
        self._wake.put(None)

    def stop(self, *, is_needed: bool = False) -> None:
        """End the thread once nothing is queued, and release the files.

        If the next start needs the journal, an empty round follows the last one: damage to that will then not be
        taken for a torn tail.
        """
        self._wants_mark = is_needed
        self._stopping = True
        self._wake.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        for file in self._ring.files():
            file.file.close()

    def _check_room(self, need: int) -> None:
        with self._lock:
            room = self._ring.bytes_room()
        # Every record might be alone in its round, and a round that does not fit a file's end leaves it
        # unused.
        if self.queued_bytes + need + align_up(ROUND_BYTES) > room - self._round_bytes_max:
            raise StorageFull(NO_ROOM)

    def _report(self) -> None:
        completed = self._completed
        while completed:
            entries, sequence, error = completed.popleft()
            self.queued_bytes -= sum([entry.size for entry in entries]) + RECORD_BYTES * len(entries)
            self._on_round(entries, sequence, error)
            if error is not None:
                self._failing = False
            elif entries and self._mark_timer is None:
                self._mark_behind = sequence
                self._mark_timer = self._clock.call_later(MARK_S, self._mark)
        self._on_reported()

    def _mark(self) -> None:
        """Some time has passed since the timer was set: was the round written then the last one?"""
        self._mark_timer = None
        if self._stopping:
            return
        last = self._next_sequence - 1
        if last != self._mark_behind:
            self._mark_behind = last
            self._mark_timer = self._clock.call_later(MARK_S, self._mark)
        else:
            self._wants_mark = True
            self._wake.put(None)

    # -- both sides, under the lock

    def _refill(self) -> None:
        overflow = self._overflow
        filling = self._filling
        while overflow and filling.put(overflow[0]):
            overflow.popleft()
        if overflow and not filling.entries:
            # Larger than a whole round: it gets a buffer of its own, once.
            filling = Round(align_up(ROUND_BYTES + RECORD_BYTES + overflow[0].size))
            filling.put(overflow.popleft())
            if len(self._filling.buffer) == self._round_bytes_max:
                self._spare = self._filling
            self._filling = filling

    # -- the thread's side

    def _run(self) -> None:
        while True:
            try:
                self._write_rounds()
            except BaseException as failure:  # noqa: BLE001 - outermost loop; producers that wait must get an error
                self._give_up(failure)
            else:
                return

    def _write_rounds(self) -> None:
        while True:
            with self._lock:
                round_ = self._writing = self._take()
                self._idle = round_ is None
            if round_ is None:
                if self._wants_mark:
                    self._wants_mark = False
                    self._write_mark()
                elif self._stopping:
                    return
                else:
                    self._wake.get()
                continue
            self._write_and_report(round_)
            round_.clear()
            with self._lock:
                if len(round_.buffer) == self._round_bytes_max:
                    self._spare = round_

    def _give_up(self, failure: BaseException) -> None:
        """The thread writes no more: everything that waits fails."""
        self.write_began_s = self.full_since_s = None
        error = StorageError(f"the journal's thread failed: {failure!r}")
        with self._lock:
            self._broken = self._broken or error
            round_, self._writing = self._writing, None
        waiting = round_.entries if round_ is not None else []
        self._take_queued(waiting)
        self._completed.append((waiting, self._next_sequence, error))
        self._loop.call_soon_threadsafe(self._on_failure, "the journal's thread", failure)
        self._loop.call_soon_threadsafe(self._report)

    def _take(self) -> Round | None:
        self._refill()
        round_ = self._filling
        if not round_.entries:
            return None
        self._filling = self._spare or Round(self._round_bytes_max)
        self._spare = None
        return round_

    def _write(self, round_: Round) -> StorageError | None:
        """Write and sync a round; StorageFull says that there is no room for it and that nothing was written."""
        size = align_up(round_.end)
        waited = False
        while True:
            with self._lock:
                target = self._ring.reserve(size)
                broken = self._broken
            if broken is not None or (target is None and self._refuse_when_full):
                self.full_since_s = None
                return broken or StorageFull(NO_ROOM)
            if target is not None:
                break
            if not waited:
                self._counters.ring_waits += 1
                waited = True
                self.full_since_s = self._clock.monotonic()
                self._loop.call_soon_threadsafe(self._on_full)
            self._wake.get()
        self.full_since_s = None
        sequence = self._next_sequence
        began = self.write_began_s = self._clock.monotonic()
        try:
            target.file.write(round_.finish(target.epoch, sequence, self._salt, self._flags), target.position)
            if self._sync_after_write:
                target.file.sync()
            elif self._flags & UNSYNCED:
                self._unsynced[target] = None
                if any(entry.ledger is None for entry in round_.entries):
                    self._sync_all()
        except OSError as error:
            log.error("journal write failed: file=%s round=%d error=%s", target.path.name, sequence, error)
            self._counters.journal_errors += 1
            return StorageError(f"the journal could not be written: {error.strerror or error}")
        finally:
            self.write_began_s = None
        self._note_time(self._clock.monotonic() - began, size)
        with self._lock:
            target.position += size
            target.last_sequence = sequence
            self._epoch = target.epoch
        self._next_sequence = sequence + 1
        self._counters.rounds += 1
        self._counters.round_bytes += size
        return None

    def _sync_all(self) -> None:
        """The rounds before, too: what is behind one that the power took does not count."""
        for file in list(self._unsynced):
            del self._unsynced[file]  # a sync that fails says nothing when it is tried again
            file.file.sync()

    def _write_and_report(self, round_: Round) -> None:
        error = self._write(round_)
        if error is not None:
            self._take_queued(round_.entries)
            if not isinstance(error, StorageFull):
                self._cut(round_.entries)
        self._completed.append((round_.entries, round_.sequence, error))
        self._writing = None
        self._loop.call_soon_threadsafe(self._report)

    def _write_mark(self) -> None:
        """An empty round, if there is room for it right behind the last one."""
        with self._lock:
            current = self._ring.current
            if self._broken is not None or current is None or current.position + BLOCK_BYTES > current.size:
                return
        self._writing = Round(BLOCK_BYTES)
        self._write_and_report(self._writing)

    def _note_time(self, took_s: float, size: int) -> None:
        self._counters.journal_write_s.observe(took_s)
        now = self._clock.monotonic()
        if took_s >= STALL_S and now >= self._quiet_until:
            self._quiet_until = now + STALL_LOG_S
            log.warning(
                "the disk took %.1f s for a journal write: bytes=%d, all producers waited", took_s, size
            )

    def _take_queued(self, failed: list[Queued]) -> None:
        """Move what is queued behind a failed round to it: it fails, too."""
        with self._lock:
            self._failing = True
            failed += [*self._filling.entries, *self._overflow]
            self._filling.clear()
            self._overflow.clear()

    def _cut(self, failed: list[Queued]) -> None:
        """The current file is not to be trusted: cut the ledgers of what failed in another one."""
        with self._lock:
            if self._broken is None and self._ring.current is not None:
                self._ring.give_up_current()
        ends: dict[int, int] = {}
        for entry in failed:
            _, _, ledger_id, entry_id, _, _ = RECORD.unpack(entry.header)
            if entry_id >= 0:
                ends.setdefault(ledger_id, entry_id)
        while ends and self._broken is None and not self._write_cuts(ends):
            pass

    def _write_cuts(self, ends: dict[int, int]) -> bool:
        round_ = Round(align_up(ROUND_BYTES + RECORD_BYTES * len(ends)))
        for ledger_id, entry_count in ends.items():
            record = control_record(ledger_id, Control.CUT, entry_count)
            round_.put(Queued(None, record, (), 0, 0, 0, _nothing))
        with self._lock:
            hopeless = not self._ring.free and all(file.failed for file in self._ring.full)
        if not hopeless and self._write(round_) is None:
            return True
        with self._lock:
            if self._ring.current is not None:
                self._ring.give_up_current()
            elif self._broken is None:
                self._broken = StorageError("no journal file is left that can be written")
                log.error("the journal is given up: no file can be written or recycled")
        return False


def _nothing(_: Exception | None) -> None:
    return None

"""The journal: every append of every ledger, in rounds, each one synced write.

Entries are copied straight into the round that fills.  While one round is written the next one fills, and its write
starts as soon as the first is done.  So there is no timer, and a slower disk or a busier loop gets larger rounds.
Only the loop touches the journal's state.  The kernel writes (`kernel_writes`), or a thread if the kernel cannot.
One generator (`_rounds`) decides what is written when; it stops at each `yield` until the disk has answered or there
is something to do.

When a write fails, that round and everything queued after it fail.  The ledgers concerned are *cut* in another file
before any producer gets its error: a failed round may be on disk nevertheless, and must not come back at a restart.

Rounds wait while every file of the ring is in use; a checkpoint calls `recycle`.  While checkpoints fail, there will
be no room soon.  A round without room then fails with all that is queued after it, as after a failed write, but no
ledger has to be cut.

A round is known to have been whole if another one follows it (`replay`).  If none does for a second, an empty round
is written, so that damage to the last round cannot be mistaken for a torn tail, either.

Without syncing (`journal.sync.data=false`) a loss of power may take rounds, but none with a fact about a ledger.  A
chain names a ledger as soon as it is created, and the metadata is always synced.  Such a fact is synced together with
all rounds before it.  If that fails, all writing ends: facts after lost rounds would be lost, too.

An unforeseen exception, here or anywhere else in the store (`break_off`), ends all writing: all waiting appends fail,
and so does every later one.  No ledger is cut then, so failed appends may be there after the next start.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import StorageError, StorageFull
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.format import ROUND_BYTES, UNSYNCED, Control, control_record
from magnetar.storage.local.kernel_writes import KernelWrites
from magnetar.storage.local.ledger import Queued
from magnetar.storage.local.ring import Ring, RingFile
from magnetar.storage.local.rounds import Round
from magnetar.storage.local.stalls import STALL_S, StallLog
from magnetar.storage.local.thread_writes import EarlierRoundsLost, ThreadWrites
from magnetar.storage.local.worker import Worker
from magnetar.wire.stored import RECORD, RECORD_BYTES

log = logging.getLogger(__name__)

MARK_S: Final = 1.0
"""After this time without another round, an empty round follows the last one."""

NO_ROOM: Final = "the disk is full: the journal has no room until segments can grow again"


OnRound = Callable[[list[Queued], int, StorageError | None], None]
"""Called for each round, in order, with its entries, its sequence, and None or the reason why it failed."""

Answer = BaseException | None
"""The result of a call: None, or the reason why it failed."""


class Journal:
    """All calls are made on the loop."""

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
        self._kernel: KernelWrites | None = None
        self._worker = Worker("magnetar-journal", loop, on_failure)
        self._thread = ThreadWrites(
            self._worker,
            is_synced=is_synced,
            sync_after_write=sync_after_write,
            ended=self._note_end,
            report=self._go_on,
        )
        self._loop = loop
        self._clock = clock
        self._monotonic = clock.monotonic
        self._counters = counters
        self._on_round = on_round
        self._on_reported = on_reported
        self._on_full = on_full
        self._on_failure = on_failure
        self._filling = Round(round_bytes_max)
        self._spare: Round | None = Round(round_bytes_max)
        self._overflow: deque[Queued] = deque()
        self._completed: deque[tuple[list[Queued], int, int, StorageError | None]] = deque()
        """Entries, their bytes, the sequence of their round, and why it failed."""
        self._steps = self._rounds()
        self._rests = False
        """True while the steps wait for something to do, or for room; false while they wait for the disk."""
        self._idle = True
        """True if nothing is queued, and no step is scheduled."""
        self._stopped: asyncio.Future[None] | None = None
        """Set once the journal is to stop; done when it writes no more."""
        self._ending: asyncio.Task[None] | None = None
        """Stops the journal and releases its files."""
        self._wants_mark = False
        self._mark_timer: TimerHandle | None = None
        self._sequence_at_timer = 0
        """The sequence of the last round at the time when the timer was set."""
        self._epoch = 0
        self._writing: Round | None = None
        """The round that was taken and not yet reported."""
        self._broken: StorageError | None = None
        self.write_began_s: float | None = None
        """When the write began that is under way; None if there is none."""
        self._write_ended_s = 0.0
        self.full_since_s: float | None = None
        """Since when a round has waited for room; None if none waits."""
        self._stalls = StallLog(clock.monotonic())
        self._failing = False
        """A write has failed, and its producers do not know yet: an append now would leave a hole in its ledger."""
        self.queued_bytes = 0
        """Appends that are not yet reported."""
        self._refuse_when_full = False
        """Set while checkpoints fail: an append without room in the ring is refused, and a queued one fails."""

    def start(self) -> None:
        """Start writing.  Raises RuntimeError if the system allows no more threads."""
        self._worker.start()
        if not self._sync_after_write and not self._flags & UNSYNCED:
            try:
                self._kernel = KernelWrites(self._loop, self._go_on)
            except OSError as error:
                log.info("a thread writes the journal: the kernel offers no rings for it (%s)", error)
        self._go_on()

    def append(self, entry: Queued) -> None:
        """Queue a record; `on_round` reports it.  If this raises StorageFull or StorageError, nothing is queued."""
        need = RECORD_BYTES + entry.size
        if self._refuse_when_full:
            self._check_room(need)
        if self._broken is not None:
            raise StorageError(f"the journal cannot be written: {self._broken}")
        if self._failing:
            raise StorageError("a journal write has just failed")
        if self._overflow or not self._filling.put(entry):
            self._overflow.append(entry)
            try:
                self._refill()
            except (OSError, MemoryError) as error:
                # A record that stayed would be written under the number that the ledger gives to its next record.
                self._overflow.pop()
                raise StorageError(
                    f"there is no memory for a record of {entry.size} bytes: {error}"
                ) from error
        self.queued_bytes += need
        if self._idle:
            # At the end of this turn of the loop, so that everything that the turn appends shares the round.
            self._idle = False
            self._loop.call_soon(self._wake)

    def recycle(self, sequence: int) -> None:
        """No round up to `sequence` is needed any more."""
        self._ring.recycle(sequence)
        self._loop.call_soon(self._wake)

    def add_file(self, file: RingFile) -> None:
        self._ring.add(file)
        self._loop.call_soon(self._wake)

    def wants_checkpoint(self) -> bool:
        return self._ring.half_used()

    def refuse_when_full(self, refuse: bool) -> None:
        """Whether to refuse appends without room in the ring, because checkpoints fail; otherwise they wait."""
        self._refuse_when_full = refuse
        self._loop.call_soon(self._wake)

    @property
    def epoch(self) -> int:
        """The newest epoch of a file with a whole round on disk; 0 if there is none."""
        return 0 if self._flags & UNSYNCED else self._epoch

    @property
    def broken(self) -> StorageError | None:
        """Why the journal cannot write any more; None if it can."""
        return self._broken

    def break_off(self, why: StorageError) -> None:
        """Fail all queued appends, and every later one."""
        self._broken = self._broken or why
        self._loop.call_soon(self._wake)

    async def stop(self, *, is_needed: bool = False) -> None:
        """Stop once nothing is queued, and release the files.

        If the next start needs the journal (`is_needed`), an empty round follows the last one, so that damage to the
        last one cannot be mistaken for a torn tail.
        """
        if self._ending is None:
            self._stopped = self._loop.create_future()
            self._ending = self._loop.create_task(self._stop_and_release(self._stopped, is_needed))
        # Cancelling a caller does not cancel the stop, and the next caller waits for it.
        await asyncio.shield(self._ending)

    async def _stop_and_release(self, stopped: asyncio.Future[None], is_needed: bool) -> None:
        if not self._worker.is_started:
            self._end()
            self._close_files()
            return
        self._wants_mark = is_needed
        self._wake()
        await stopped
        try:
            if self._kernel is not None:
                self._kernel.close()
            await self._worker.run(self._close_files)
        finally:
            self._worker.stop()

    def _close_files(self) -> None:
        for file in self._ring.files():
            try:
                file.file.close()
            except OSError as error:  # what counts in it was synced; the other files must be closed, too
                log.warning("journal file could not be closed: file=%s error=%s", file.path.name, error)

    def _check_room(self, need: int) -> None:
        # The worst case: each record is alone in its round, and the end of a file is unused if no round fits it.
        if self.queued_bytes + need + align_up(ROUND_BYTES) > self._ring.bytes_room() - self._round_bytes_max:
            raise StorageFull(NO_ROOM)

    def _report(self) -> None:
        completed = self._completed
        while completed:
            entries, size, sequence, error = completed.popleft()
            self.queued_bytes -= size
            try:
                self._on_round(entries, sequence, error)
            finally:
                if error is not None:
                    self._failing = False
            if error is None and entries and self._mark_timer is None:
                self._sequence_at_timer = sequence
                self._mark_timer = self._clock.call_later(MARK_S, self._mark)
        self._on_reported()

    def _mark(self) -> None:
        """Write an empty round if no other round was written since the timer was set."""
        self._mark_timer = None
        if self._stopped is not None:
            return
        last = self._next_sequence - 1
        if last != self._sequence_at_timer:
            self._sequence_at_timer = last
            self._mark_timer = self._clock.call_later(MARK_S, self._mark)
        else:
            self._wants_mark = True
            self._wake()

    def _refill(self) -> None:
        overflow = self._overflow
        filling = self._filling
        while overflow and filling.put(overflow[0]):
            overflow.popleft()
        if overflow and not filling.entries:
            # A record larger than a round gets a round of its own, in a new buffer.
            filling = Round(align_up(ROUND_BYTES + RECORD_BYTES + overflow[0].size))
            filling.put(overflow.popleft())
            if len(self._filling.buffer) == self._round_bytes_max:
                self._spare = self._filling
            self._filling = filling

    # -- the steps

    def _wake(self) -> None:
        """Continue the steps, because there may be something to do, or room for it."""
        if self._rests:
            self._rests = False
            self._go_on()

    def _go_on(self, answer: Answer = None) -> None:
        """Run the steps until they wait for the disk, then report finished rounds: the next write is under way."""
        while True:
            try:
                self._steps.send(answer)
            except StopIteration:
                self._end()
            except BaseException as failure:  # noqa: BLE001 - outermost; producers that wait must get an error
                self._give_up(failure)
                self._steps = self._rounds()
                answer = None
                continue
            break
        while self._completed:
            try:
                self._report()
            except Exception as failure:  # noqa: BLE001 - outermost; what is reported behind it must be, too
                self._on_failure("applying a journal round", failure)

    def _end(self) -> None:
        """Take no more appends: one that came now, perhaps from a report, would wait for ever."""
        self._broken = self._broken or StorageError("the journal is closed")
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _give_up(self, failure: BaseException) -> None:
        """End all writing, and fail everything that waits."""
        self.write_began_s = self.full_since_s = None
        error = StorageError(f"writing the journal failed: {failure!r}")
        self._broken = self._broken or error
        round_, self._writing = self._writing, None
        waiting = round_.entries if round_ is not None else []
        self._take_queued(waiting)
        self._completed.append((waiting, _bytes_of(waiting), self._next_sequence, error))
        self._on_failure("the journal", failure)

    def _rounds(self) -> Generator[None, Answer, None]:
        while True:
            round_ = self._take()
            self._idle = round_ is None
            if round_ is None and self._wants_mark:
                self._wants_mark = False
                round_ = self._mark_round()
            elif round_ is None and self._stopped is not None:
                return
            elif round_ is None:
                self._rests = True
                yield
            if round_ is None:
                continue
            self._writing = round_
            error = yield from self._write(round_)
            if error is None:
                self._completed.append((round_.entries, round_.end - ROUND_BYTES, round_.sequence, None))
                self._writing = None
            else:
                yield from self._fail(round_, error)
            round_.clear()
            if len(round_.buffer) == self._round_bytes_max:
                self._spare = round_

    def _take(self) -> Round | None:
        if self._overflow:
            self._refill()
        round_ = self._filling
        if not round_.entries:
            return None
        self._filling = self._spare or Round(self._round_bytes_max)
        self._spare = None
        return round_

    def _fail(self, round_: Round, error: StorageError) -> Generator[None, Answer, None]:
        """Fail a round that could not be written, and everything queued after it."""
        failed = round_.entries
        self._take_queued(failed)
        if not isinstance(error, StorageFull):
            yield from self._cut(failed)
        self._completed.append((failed, _bytes_of(failed), round_.sequence, error))
        self._writing = None

    def _write(self, round_: Round) -> Generator[None, Answer, StorageError | None]:
        """Write and sync a round; returns None or the error.  StorageFull: no room, and nothing was written."""
        size = align_up(round_.end)
        waited = False
        while True:
            target = self._ring.reserve(size)
            if self._broken is not None or (target is None and self._refuse_when_full):
                self.full_since_s = None
                return self._broken or StorageFull(NO_ROOM)
            if target is not None:
                break
            if not waited:
                self._counters.ring_waits += 1
                waited = True
                self.full_since_s = self._monotonic()
                self._loop.call_soon(self._on_full)
            self._rests = True
            yield
        self.full_since_s = None
        sequence = self._next_sequence
        data = round_.finish(target.epoch, sequence, self._salt, self._flags)
        began_s = self.write_began_s = self._monotonic()
        if self._begin_by_kernel(target, data, round_):
            failure = yield
            if isinstance(failure, BlockingIOError):
                self._thread.begin(target, data, round_)
                failure = yield
            else:
                self._note_end()
        else:
            self._thread.begin(target, data, round_)
            failure = yield
        if isinstance(failure, OSError):
            log.error("journal write failed: file=%s round=%d error=%s", target.path.name, sequence, failure)
            self._counters.journal_errors += 1
            error = StorageError(f"the journal could not be written: {failure.strerror or failure}")
            if isinstance(failure, EarlierRoundsLost):
                self.break_off(error)
            return error
        if failure is not None:
            raise failure
        took_s = self._write_ended_s - began_s
        counters = self._counters
        counters.journal_write_s.observe(took_s)
        if took_s >= STALL_S:
            self._stalls.tell(took_s, size, self._write_ended_s)
        target.position += size
        target.last_sequence = sequence
        self._epoch = target.epoch
        self._next_sequence = sequence + 1
        counters.rounds += 1
        counters.round_bytes += size
        return None

    def _begin_by_kernel(self, target: RingFile, data: memoryview, round_: Round) -> bool:
        """Let the kernel write; it reports the result to `_go_on`.  False if the kernel does not take the write."""
        kernel, descriptor = self._kernel, target.file.descriptor
        return (
            kernel is not None
            and descriptor is not None
            and kernel.begin(descriptor, data, round_.address, target.position)
        )

    def _note_end(self) -> None:
        self._write_ended_s = self._monotonic()
        self.write_began_s = None

    def _mark_round(self) -> Round | None:
        """An empty round, if there is room for it directly after the last one."""
        current = self._ring.current
        if self._broken is not None or current is None or current.position + BLOCK_BYTES > current.size:
            return None
        return Round(BLOCK_BYTES)

    def _take_queued(self, failed: list[Queued]) -> None:
        """Move everything queued after a failed round to that round, because it fails, too."""
        self._failing = True
        failed += [*self._filling.entries, *self._overflow]
        self._filling.clear()
        self._overflow.clear()

    def _cut(self, failed: list[Queued]) -> Generator[None, Answer, None]:
        """Cut the ledgers of the failed appends in another file, because the current one cannot be trusted."""
        if self._broken is None and self._ring.current is not None:
            self._ring.give_up_current()
        ends: dict[int, int] = {}
        for entry in failed:
            _, _, ledger_id, entry_id, _, _ = RECORD.unpack(entry.header)
            if entry_id >= 0:
                ends.setdefault(ledger_id, entry_id)
        while ends and self._broken is None:
            if (yield from self._write_cuts(ends)):
                return

    def _write_cuts(self, ends: dict[int, int]) -> Generator[None, Answer, bool]:
        round_ = Round(align_up(ROUND_BYTES + RECORD_BYTES * len(ends)))
        for ledger_id, entry_count in ends.items():
            record = control_record(ledger_id, Control.CUT, entry_count)
            round_.put(Queued(None, record, (), 0, 0, 0, _nothing))
        hopeless = not self._ring.free and all(file.failed for file in self._ring.full)
        if not hopeless and (yield from self._write(round_)) is None:
            return True
        if self._ring.current is not None:
            self._ring.give_up_current()
        elif self._broken is None:
            self._broken = StorageError("no journal file is left that can be written")
            log.error("the server gives up the journal: it can neither write nor reuse any of its files")
        return False


def _bytes_of(entries: list[Queued]) -> int:
    return sum([entry.size for entry in entries]) + RECORD_BYTES * len(entries)


def _nothing(_: Exception | None) -> None:
    return None

"""One topic partition's log: a chain of ledgers.

A `ManagedLedger` owns the order of the log.  `ReadableLog` has what readers call, and `StoredChain` what the metadata
store holds.  Offsets are dense from 0, and the next entry starts at `next_offset`.  Readers see the entries below
`high_watermark`, which moves when the store reports that an entry is on disk.  The ledgers of the chain follow one
another without a gap.  So only the first ledger's first offset is stored; the rest follows from what the
`LedgerStore` knows about each ledger.

**Writing.**  There is no writer until the first append; that append waits while a ledger is created and recorded in
the metadata store.  When the open ledger is full or old, a successor is created while appends continue.

**Failures.**  If an append fails, all appends queued after it fail, too.  The store may have kept some of them, so the
log first seals their ledgers.  What a sealed ledger has is part of the log, and its appends have succeeded; only the
rest is reported as failed.  Then `next_offset` goes back to the high watermark, and the next append goes to a new
ledger.  `on_reset` says to the owner that its view of the log's end is no longer valid.  While no ledger can be sealed,
the log takes no appends, because it does not know which offsets are used.  The owner passes `on_advance` and `on_reset`
when it opens the log; a log without appends needs neither.

**Owners.**  If another broker has taken the log over (`stored_chain.py`), appends that wait for a ledger and all later
ones fail with `LogLost`.  Appends that the open ledger still takes are acknowledged: the next owner finds them.

**Epochs.**  Each time a partition is opened it takes the next leader epoch, which is stored with the first change
made under it.  The epochs of the chain are the leader epoch history (KIP-101, KIP-320).

`chain_rows.py` has the layout of what is stored at `/managed-ledgers/<name>`.

**Deleting.**  A ledger leaves the chain in the commit that writes its tombstone (`tombstones`), and is deleted after
that.  If a chain names a ledger that the store does not have, the whole log is refused.  The entries of that ledger
were acknowledged, and a log that continued without them would give their offsets to other records.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from magnetar.base.clock import TimerHandle
from magnetar.base.config import LONG_MAX
from magnetar.base.errors import BrokerError, LedgerFenced, LogLost, StorageError
from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import NO_LEDGER, Entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.state import State
from magnetar.ledger.stored_chain import StoredChain, no_owner
from magnetar.ledger.tombstones import delete_all
from magnetar.metadata.store import MUST_NOT_EXIST, Check
from magnetar.storage.store import Buffer, Done, LedgerId, LedgerWriter

log = logging.getLogger(__name__)

_ROLL_RETRY_S: Final = 10.0
_SEAL_RETRY_S: Final = 1.0


@dataclass(slots=True)
class LedgerLimits:
    """When the open ledger is rolled over.  Sizes in bytes, ages in milliseconds."""

    size_bytes_max: int = 1 << 30
    age_ms_max: int = 7 * 24 * 3600 * 1000
    entry_count_max: int = 10_000_000


class ManagedLedger(StoredChain):
    """See the module's text.  All methods run on the event loop."""

    def __init__(
        self,
        name: str,
        environment: LedgerEnvironment,
        limits: LedgerLimits,
        *,
        owned: Sequence[Check] = (),
        on_advance: Callable[[], None] = no_owner,
        on_reset: Callable[[], None] = no_owner,
    ) -> None:
        """`owned`: what the metadata store holds as long as this broker owns the log.  `on_advance`: the high watermark
        moved.  `on_reset`: appends failed, so the log ends earlier than it seemed.
        """
        super().__init__(name, environment, owned, on_advance, on_reset)
        self.limits = limits
        self.appended_bytes = 0  # since it was opened
        self._writer: LedgerWriter | None = None
        self._writer_info: LedgerInfo | None = None
        self._writer_entry_count = 0
        self._rolling = False
        self._roll_not_before_s = 0.0  # after a failed roll: appends continue, and not each one tries again
        self._spare: LedgerWriter | None = None  # created, but not recorded yet: the next roll uses it
        self._queued: list[tuple[Entry, Sequence[Buffer], int, Done]] = []
        self._in_flight = 0
        self._failed: list[tuple[Entry, Done, Exception]] = []  # not answered yet, in their order
        self._failed_to: LedgerId = NO_LEDGER  # the last ledger that may have kept failed appends
        self._seal_retry: TimerHandle | None = None
        self._is_beginning = False  # where it begins is being stored (`begin_at`)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, entry: Entry, parts: Sequence[Buffer], size: int, done: Done, tail_crc: int | None = None
    ) -> None:
        """Queue one entry of `size` stored bytes; `done` is called when it is on disk or has failed.

        `entry.base_offset` must be `next_offset`, and the last of `parts` must be the entry's payload, or parts of it.
        `tail_crc` is the CRC32C of the last part, from a caller that has verified it.  The entry has its position when
        `done(None)` is called, or earlier.

        Raises:
            LogLost: another broker has taken the log over.
            StorageError: the log takes no appends now (the disk is full, or the log still cleans up after a failed
                write).
        """
        assert entry.base_offset == self.next_offset, (self.name, entry.base_offset, self.next_offset)
        writer = self._writer
        if writer is not None:
            try:
                entry.entry_id = writer.append(
                    parts,
                    size,
                    entry.last_offset,
                    entry.max_timestamp_ms,
                    partial(self._on_done, entry, done),
                    tail_crc,
                )
            except LedgerFenced:
                # No append of ours failed, so nothing else will ever replace this writer.
                self._fail()
                if self._in_flight == 0:
                    self._clean_up()
                raise
            info = self._writer_info
            assert info is not None
            entry.ledger_id = info.ledger_id
            info.size_bytes += size
            self._writer_entry_count += 1
            if (
                info.size_bytes >= self.limits.size_bytes_max
                or self._writer_entry_count >= self.limits.entry_count_max
            ):
                self._roll()
        else:
            self._append_without_writer(entry, parts, size, done)
        self._in_flight += 1
        self.next_offset = entry.last_offset + 1
        self.appended_bytes += size
        self._environment.cache.insert(self._run, entry)

    def _append_without_writer(self, entry: Entry, parts: Sequence[Buffer], size: int, done: Done) -> None:
        match self.state:
            case State.FAILED:
                raise StorageError("an earlier write to this partition failed; its clean-up is under way")
            case State.LOST:
                raise self._lost()
            case State.CLOSED:
                raise StorageError("this partition is being closed")
            case State.REFUSED:
                raise StorageError(self.problem)
            case State.IDLE if self._is_beginning:
                raise StorageError("where this partition begins is being stored: try again")
            case State.IDLE:
                self.state = State.OPENING
                self._roll()
            case _:
                assert self.state is State.OPENING, self.state
        self._queued.append((entry, parts, size, done))

    def _on_done(self, entry: Entry, done: Done, error: Exception | None) -> None:
        self._in_flight -= 1
        if error is None:
            assert entry.base_offset == self.high_watermark, (
                self.name,
                entry.base_offset,
                self.high_watermark,
            )
            self.high_watermark = entry.last_offset + 1
            info = self._writer_info
            if info is None or info.ledger_id != entry.ledger_id:
                info = self._chain.by_id(entry.ledger_id)
            info.last_offset = entry.last_offset
            info.entry_count += 1
            if entry.max_timestamp_ms > info.max_timestamp_ms:
                info.max_timestamp_ms = entry.max_timestamp_ms
            done(None)
            self._on_advance()
            if self._in_flight == 0 and self.state is State.FAILED:
                self._clean_up()  # the appends that failed were queued after this one
            return
        self._fail()
        self._failed.append((entry, done, error))
        if self._in_flight == 0:
            self._clean_up()

    def _fail(self) -> None:
        if self._writer_info is not None:
            self._failed_to = self._writer_info.ledger_id
        self._stop_writing(self.state if self.state in (State.CLOSED, State.LOST) else State.FAILED)

    def _stop_writing(self, state: State) -> None:
        super()._stop_writing(state)
        self._writer = None
        self._writer_info = None

    def _clean_up(self) -> None:
        """Nothing is in flight any more, and appends have failed: go on behind what their ledgers have kept."""
        if self.state is State.FAILED and any(info.writer is not None for info in self._written()):
            self._environment.tasks.spawn(f"seal {self.name}", self._take_stock())
            return
        self._answer_failed()
        self._reset()

    def _written(self) -> list[LedgerInfo]:
        """The ledgers that may have kept failed appends, and those before them."""
        return [info for info in self._chain if info.ledger_id <= self._failed_to]

    async def _take_stock(self) -> None:
        """Seal the ledgers of failed appends, and take what they have kept into the log."""
        end, is_sealed = self.high_watermark, False
        try:
            for info in self._written():
                if info.writer is None or self.state is not State.FAILED:
                    continue
                stat = await self._seal(info, info.writer)
                if stat is not None:
                    info.size_bytes = stat.size_bytes  # without what was not kept
                    if stat.last_offset > info.last_offset:
                        assert info.first_offset <= self.high_watermark, (self.name, info, stat)
                        info.take(stat)
                        self.high_watermark = info.end_offset
                info.writer = None
            is_sealed = True
        except Exception as error:  # whatever it is, the callers must hear of it
            is_ours = not isinstance(error, BrokerError)
            log.warning("%s takes no appends before it is sealed: %s", self.name, error, exc_info=is_ours)
        self._answer_failed()
        if self.high_watermark > end:
            self._on_advance()
        if self.state is State.FAILED and not is_sealed:
            self._seal_retry = self._environment.clock.call_later(_SEAL_RETRY_S, self._clean_up)
        else:
            self._reset()

    def _answer_failed(self) -> None:
        """Tell the callers of failed appends: what is below the high watermark was kept."""
        failed, self._failed = self._failed, []
        for entry, done, error in failed:
            failure = self._lost() if self.state is State.LOST else error
            done(None if entry.last_offset < self.high_watermark else failure)

    def _reset(self) -> None:
        """Forget the appends that have failed; the next one starts at the high watermark."""
        log.warning("%s: appends failed; the log ends at offset %d", self.name, self.high_watermark)
        self._run.drop_from(self.high_watermark)
        self._chain.end_at(self.high_watermark)
        self.next_offset = self.high_watermark
        if self.state is State.FAILED:
            self.state = State.IDLE
        self._on_reset()
        if self._is_erased:
            self._leave_owner()

    def _roll(self) -> None:
        clock = self._environment.clock
        if not self._rolling and (self._writer is None or clock.monotonic() >= self._roll_not_before_s):
            self._rolling = True
            self._environment.tasks.spawn(f"roll {self.name}", self._open_writer())

    async def _open_writer(self) -> None:
        """Create the next ledger, record it in the chain, make it the writer, and seal the previous one."""
        writer: LedgerWriter | None = None
        try:
            writer, self._spare = self._spare, None
            if writer is None:
                writer = await self._environment.store.create()
            info = await self._record(writer)
        except Exception as error:  # noqa: BLE001  whatever it is, the queued appends must hear of it
            self._rolling = False
            await self._stay(writer, error)
            return
        self._rolling = False
        if self.state not in (State.OPENING, State.WRITING):
            # The log has failed or closed meanwhile: the new ledger stays empty, and a later trim drops it.
            assert not self._queued, self.name
            return
        self._write_to(writer, info)
        try:
            await self._seal_all_but(info)
        except StorageError as error:
            log.warning("%s: the ledger before is not sealed yet: %s", self.name, error)

    async def _record(self, writer: LedgerWriter) -> LedgerInfo:
        """Add a new ledger to the chain, here and in the metadata."""
        async with self._metadata_lock:
            self._check_changeable()
            info = LedgerInfo(
                writer.stat.ledger_id,
                self.leader_epoch,
                self._environment.clock.now_ms(),
                self.high_watermark,
                reader=writer,
                writer=writer,
            )
            await self._save([*self._chain, info], self.log_start)
            info.first_offset = self.high_watermark  # for good, if the log has failed meanwhile
            self._chain.add(info)
        return info

    async def _stay(self, writer: LedgerWriter | None, error: Exception) -> None:
        """Go on without the next ledger, which is `writer` if the store has created it: the queued appends fail, or the
        open ledger takes more.
        """
        if isinstance(error, LogLost):
            self._fail_queued(error)
        elif self.state in (State.OPENING, State.CLOSED):
            self._fail_queued(StorageError(f"no new ledger can be opened: {error}"))
        else:
            self._roll_not_before_s = self._environment.clock.monotonic() + _ROLL_RETRY_S
            log.warning("%s: cannot roll over, staying in the open ledger: %s", self.name, error)
        if writer is None:
            return
        if self._is_erased:
            with suppress(BrokerError):  # else the next start deletes it: it is empty and in no chain
                await self._environment.tombstones.give_up([writer.stat.ledger_id])
        else:
            self._spare = writer  # not deleted: a commit that names it may have been carried out

    def _write_to(self, writer: LedgerWriter, info: LedgerInfo) -> None:
        """Make a recorded ledger the one that takes appends, those first that have waited for it."""
        # Without a writer everything in flight has waited for this one.
        info.first_offset = self.high_watermark if self._writer is None else self.next_offset
        self._writer = writer
        self._writer_info = info
        self._writer_entry_count = 0
        self.state = State.WRITING
        queued, self._queued = self._queued, []
        for position, (entry, parts, size, done) in enumerate(queued):
            try:
                entry.entry_id = writer.append(
                    parts,
                    size,
                    entry.last_offset,
                    entry.max_timestamp_ms,
                    partial(self._on_done, entry, done),
                )
                entry.ledger_id = info.ledger_id
                info.size_bytes += size
                self._writer_entry_count += 1
            except StorageError as error:
                self._queued = queued[position:]
                self._fail_queued(error)
                break

    def _fail_queued(self, error: StorageError) -> None:
        if not self._queued:
            return
        self._fail()
        queued, self._queued = self._queued, []
        for _, _, _, done in queued:
            self._in_flight -= 1
            done(error)
        if self._in_flight == 0:
            self._clean_up()

    async def begin_at(self, offset: int) -> None:
        """Let a log that never had an entry begin at `offset`, so that copies of another log's records keep their
        offsets.  Does nothing if the log has begun.  Meanwhile it takes no appends.

        Raises:
            MetadataError: the log has not changed.
            StorageError: the log is refused, closed or deleted.
        """
        async with self._metadata_lock:
            self._check_changeable()
            if self.next_offset or len(self._chain):
                return
            self._is_beginning = True
            try:
                await self._save([], offset)
            finally:
                self._is_beginning = False
            assert not self._in_flight, self.name
            self.log_start = self.opened_at = self.next_offset = self.high_watermark = offset
        self._on_advance()

    # --- retention ---------------------------------------------------------------------------------------------------

    async def trim(
        self,
        log_start: int | None = None,
        retention_ms: int = -1,
        retention_bytes: int = -1,
        held_from: int | None = None,
        drops_open: bool = False,
        now_ms: int | None = None,
    ) -> int:
        """Move the log's start, and delete ledgers below it; returns the new log start.

        `log_start` is an exact offset (DeleteRecords).  The two retention limits (-1: none) drop whole ledgers, the
        oldest first.  They drop the open ledger only if all of it is too old, or with `drops_open`, and no ledger
        with an offset at or above `held_from`.  The disk space is free a little later.

        Raises:
            MetadataError: the log has not changed.
            LogLost: another broker has taken the log over.
            StorageError: the log is refused.
        """
        if self.state is State.REFUSED:
            raise StorageError(self.problem)
        async with self._metadata_lock:
            if self._is_erased:
                raise StorageError(f"{self.name} was deleted")
            if self.state is State.LOST:
                raise self._lost()
            now_ms = self._environment.clock.now_ms() if now_ms is None else now_ms
            plan = self._chain.plan_trim(
                self.log_start if log_start is None else max(self.log_start, log_start),
                expired_before_ms=now_ms - retention_ms if retention_ms >= 0 else None,
                retention_bytes=retention_bytes if retention_bytes >= 0 else None,
                held_from=held_from,
                writer_info=self._writer_info,
                drops_open=drops_open,
                is_quiet=not self._in_flight and not self._rolling and self.state is not State.FAILED,
            )
            if plan.log_start == self.log_start and not plan.dropped:
                return plan.log_start
            if self._writer_info in plan.dropped:
                self._retire_writer()
            await self._save(plan.kept, plan.log_start, plan.dropped)
            self._chain.replace([info for info in self._chain if info not in plan.dropped])
            self.log_start = plan.log_start
        try:
            for info in plan.dropped:
                if info.writer is not None:
                    with suppress(StorageError):
                        await info.writer.seal()
                    info.writer = None
        finally:
            self._environment.tombstones.carry_out(info.stored_id for info in plan.dropped)
        return plan.log_start

    def _retire_writer(self) -> None:
        """Stop writing to the open ledger; the next append opens another one."""
        self._stop_writing(State.IDLE if self.state is State.WRITING else self.state)

    def roll_if_old(self, age_ms_max: int = LONG_MAX) -> None:
        """Start a new ledger if the open one has reached its age limit, or `age_ms_max`."""
        info = self._writer_info
        if info is None or info.is_empty:
            return
        if self._environment.clock.now_ms() - info.created_ms >= min(self.limits.age_ms_max, age_ms_max):
            self._roll()

    # --- the end -----------------------------------------------------------------------------------------------------

    def let_go(self) -> None:
        """Take no more appends, because another broker is to have the log.  What the open ledger has taken ends as
        ever; what still waits for a ledger fails as lost.
        """
        if self.state not in (State.REFUSED, State.CLOSED):
            self._stop_writing(State.LOST)
            self._fail_queued(self._lost())

    def close(self) -> None:
        """Take no more appends.  No ledger is sealed: the store finishes the queued appends, and keeps the ledgers."""
        if self._seal_retry is not None:
            self._seal_retry.cancel()
        self._stop_writing(State.REFUSED if self.state is State.REFUSED else State.CLOSED)
        self._fail_queued(StorageError("this partition is being closed"))

    async def erase(self) -> None:
        """Delete every ledger and, when that is durable, the chain, after a durable transaction has given up the
        whole log.

        A crash in between leaves the chain, which names the ledgers that are still to be deleted.

        Raises:
            MetadataError, StorageError: not everything is deleted; calling it again is harmless.
        """
        self.close()
        with suppress(StorageError):
            await self._seal_all_but(None)
        async with self._metadata_lock:  # a roll that waits for the lock finds the log closed
            environment = self._environment
            self._is_erased = True
            await delete_all(environment.store, self.stored_ids)
            if self._metadata_version != MUST_NOT_EXIST:
                await environment.metadata.delete(METADATA_ROOT + self.name)
                self._metadata_version = MUST_NOT_EXIST
            spare, self._spare = self._spare, None
            self._chain.replace([])
        self._run.clear()
        if not self._in_flight and not self._failed:  # or `_reset` does it, when their callers have heard
            self._leave_owner()
        if spare is not None:
            await environment.tombstones.give_up([spare.stat.ledger_id])

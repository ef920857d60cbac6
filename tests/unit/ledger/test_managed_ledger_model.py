"""A partition's log against a plain list, under everything that can happen to it.

The store is in memory and its writes wait for the machine's rules, which write, fail or lose them, and may keep some of
what failed; the metadata store fails now and then, or its answers are lost.  After each rule the log is compared with
the list: offsets, positions, reads from cache and store, leader epochs (against Kafka's own bookkeeping), timestamps,
sizes.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.base.errors import BrokerError, StorageError
from magnetar.ledger.entry import Entry
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.ledger.state import State
from magnetar.storage.store import EntryId, LedgerId
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import Chain, settle


class Row(NamedTuple):
    base: int
    last: int
    timestamp_ms: int
    epoch: int
    size: int
    entry: Entry


class KafkaEpochs:
    """Kafka's LeaderEpochFileCache: where each epoch starts."""

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []

    def assign(self, epoch: int, start: int) -> None:
        self.starts = [one for one in self.starts if one[0] < epoch and one[1] < start]
        self.starts.append((epoch, start))

    def truncate_start(self, start: int) -> None:
        below = [one for one in self.starts if one[1] <= start]
        self.starts = [one for one in self.starts if one[1] > start]
        if below:
            self.starts.insert(0, (below[-1][0], start))

    def end_of(self, epoch: int, end: int) -> tuple[int, int] | None:
        if self.starts[-1][0] == epoch:
            return epoch, end
        higher = [one for one in self.starts if one[0] > epoch]
        if not higher:
            return None
        lower = [one for one in self.starts if one[0] <= epoch]
        return (lower[-1][0] if lower else epoch), higher[0][1]


def position(entry: Entry) -> tuple[LedgerId, EntryId]:
    return entry.ledger_id, entry.entry_id


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.rows: list[Row] = []  # durable, in order; what was trimmed stays here
        self.pending: dict[int, Row] = {}  # by base offset, not answered yet
        self.log_start = 0
        self.background: list[asyncio.Task[Any]] = []
        self.epochs = KafkaEpochs()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(
        size=st.sampled_from([150, 300, 1 << 30]),
        cache=st.sampled_from([0, 1200, 1 << 20]),
        entries=st.integers(1, 6),
    )
    def begin(self, size: int, cache: int, entries: int) -> None:
        async def make() -> Chain:
            limits = LedgerLimits(size_bytes_max=size, age_ms_max=60_000, entry_count_max=entries)
            return Chain(MemoryLedgerStore(automatic=False), limits=limits, cache_bytes=cache)

        self.chain = self.do(make())
        self.epochs.assign(0, 0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "chain"):
                self.chain.store.full = False
                self.do(self.chain.flush())
                self.agrees()
                assert not self.pending, "every append is answered"
                self.chain.log.close()
                self.do(self.chain.flush())
                assert not self.chain.environment.tasks
            assert all(task.done() for task in self.background), "no trim hangs"
        finally:
            self.loop.close()

    # --- what happens ------------------------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 4),
        age_ms=st.integers(-1, 200_000),
        size=st.integers(20, 200),
        times=st.integers(1, 3),
    )
    def append(self, count: int, age_ms: int, size: int, times: int) -> None:
        for _ in range(times):
            self.do(self._send(count, age_ms, size))

    async def _send(self, count: int, age_ms: int, size: int) -> None:
        # Only here is the log's end known: an append before may have failed in an earlier turn of the loop.
        chain = self.chain
        stamp = -1 if age_ms < 0 else chain.clock.now_ms() - age_ms
        entry = chain.entry(count, stamp, size)
        row = Row(entry.base_offset, entry.last_offset, stamp, chain.log.leader_epoch, size, entry)

        def answered() -> None:
            assert self.pending.pop(row.base) is row, "answered once"
            if chain.outcomes[row.base] is None:
                before = self.rows[-1] if self.rows else None
                assert row.base == (before.last + 1 if before else 0)
                assert position(row.entry) > (position(before.entry) if before else (-1, -1))
                self.rows.append(row)

        self.pending[row.base] = row
        try:
            chain.send(row.entry, answered)
        except StorageError:
            del self.pending[row.base]

    @rule(count=st.integers(1, 5))
    def disk_writes(self, count: int) -> None:
        async def write() -> None:
            self.chain.store.write(count)
            await settle()

        self.do(write())

    @rule()
    def disk_writes_everything(self) -> None:
        self.do(self.chain.flush())

    @rule(kept=st.sampled_from([0, 0, 1, 2, 5]))
    def disk_fails(self, kept: int) -> None:
        async def fail() -> None:
            self.chain.store.fail(kept=kept)
            await settle()

        self.do(fail())
        assert self.chain.log.state is not State.FAILED

    @rule(full=st.booleans())
    def disk_is_full(self, full: bool) -> None:
        self.chain.store.full = full

    @rule()
    def metadata_fails(self) -> None:
        self.chain.metadata.fail_next = 1

    @rule()
    def an_answer_of_the_metadata_is_lost(self) -> None:
        self.chain.metadata.lose_answers = 1

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds: int) -> None:
        async def roll() -> None:
            self.chain.clock.advance(seconds)  # in the loop: what is due makes tasks
            self.chain.log.roll_if_old()
            await settle()

        self.do(roll())

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        self._trim(log_start=round(self.chain.log.high_watermark * fraction))

    @rule(retention_ms=st.integers(0, 150_000), held=st.sampled_from([None, None, 0.0, 0.3, 0.7, 1.0]))
    def expire_by_time(self, retention_ms: int, held: float | None) -> None:
        self._trim(retention_ms=retention_ms, held=held)

    @rule(
        retention_bytes=st.integers(0, 1000),
        held=st.sampled_from([None, None, 0.0, 0.3, 0.7, 1.0]),
        drops_open=st.booleans(),
    )
    def expire_by_size(self, retention_bytes: int, held: float | None, drops_open: bool) -> None:
        self._trim(retention_bytes=retention_bytes, held=held, drops_open=drops_open)

    def _trim(
        self,
        log_start: int | None = None,
        retention_ms: int = -1,
        retention_bytes: int = -1,
        held: float | None = None,
        drops_open: bool = False,
    ) -> None:
        chain = self.chain
        expired_before_ms = chain.clock.now_ms() - retention_ms
        held_from = None if held is None else round(chain.log.high_watermark * held)

        async def trim() -> None:
            before = chain_start = chain.log.log_start
            try:
                after = await chain.log.trim(log_start, retention_ms, retention_bytes, held_from, drops_open)
            except BrokerError:
                return  # the disk or the metadata store is out of order: nothing, or all of it, has happened
            if held_from is not None and after > chain_start:
                assert all(row.last < held_from for row in self.rows if chain_start <= row.base < after)
            if log_start is not None:
                assert after >= log_start
            elif retention_ms >= 0:
                gone = [row for row in self.rows if before <= row.base and row.last < after]
                assert all(row.timestamp_ms < expired_before_ms for row in gone)
            elif after > before:
                kept = sum(row.size for row in self.rows if row.last >= after)
                assert kept + sum(row.size for row in self.pending.values()) >= retention_bytes

        async def start() -> None:
            self.background.append(self.loop.create_task(trim()))
            await settle()

        self.do(start())

    @rule()
    def crash(self) -> None:
        for task in self.background:
            task.cancel()
        self.pending.clear()
        self.chain.metadata.fail_next = self.chain.metadata.lose_answers = 0
        wrote = bool(self.rows) and self.rows[-1].epoch == self.chain.log.leader_epoch
        epoch = self.chain.log.leader_epoch

        async def crash() -> None:
            await settle()
            await self.chain.restart()

        self.do(crash())
        self.background.clear()
        log = self.chain.log
        assert log.leader_epoch >= epoch + wrote
        assert log.log_start >= self.log_start
        end = self.rows[-1].last + 1 if self.rows else 0
        assert log.next_offset == log.high_watermark == end
        self._note_trims()
        self.epochs.assign(log.leader_epoch, end)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _note_durable(self) -> None:
        end = self.rows[-1].last + 1 if self.rows else 0
        assert self.chain.log.high_watermark == end

    def _note_trims(self) -> None:
        start = self.chain.log.log_start
        assert start >= self.log_start
        if start > self.log_start:
            self.log_start = start
            self.epochs.truncate_start(start)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "chain"):
            return
        self.do(settle())
        self._note_durable()
        self._note_trims()
        log = self.chain.log
        assert 0 <= log.log_start <= log.high_watermark <= log.next_offset
        if not self.pending:
            assert log.next_offset == log.high_watermark
        readable = [row for row in self.rows if row.last >= log.log_start]
        assert log.size_bytes >= sum(row.size for row in readable)
        for epoch in range(-1, log.leader_epoch + 2):
            expected = None if epoch < 0 else self.epochs.end_of(epoch, log.high_watermark)
            assert log.epoch_end(epoch) == expected, (epoch, self.epochs.starts)
        for row in readable:
            for offset in {max(row.base, log.log_start), row.last}:
                assert log.epoch_at(offset) == row.epoch
                cached = log.read_cached(offset, 1, log.high_watermark)
                if cached is not None:
                    assert (cached[0].base_offset, cached[0].last_offset) == (row.base, row.last)
                    assert position(cached[0]) == position(row.entry)
                    assert log.locate_cached(*position(row.entry)) is cached[0]

    @rule(bytes_max=st.integers(1, 1000))
    @precondition(lambda self: self.rows)
    def read_everything_from_the_store(self, bytes_max: int) -> None:
        log = self.chain.log
        expected = [
            (row.base, row.last, position(row.entry)) for row in self.rows if row.last >= log.log_start
        ]

        async def read() -> list[tuple[int, int, tuple[LedgerId, EntryId]]]:
            found = []
            offset = log.log_start
            while offset < log.high_watermark:
                for entry in await log.read(offset, bytes_max):
                    assert bytes(entry.payload[:20]) == str(entry.base_offset).zfill(20).encode()
                    found.append((entry.base_offset, entry.last_offset, position(entry)))
                    offset = entry.last_offset + 1
            return found

        assert self.do(read()) == expected

    @rule(
        near=st.floats(0, 1),
        steps=st.lists(
            st.tuples(st.integers(-2, 2), st.integers(-2, 4)), min_size=1, max_size=8, unique=True
        ),
    )
    def look_up_positions(self, near: float, steps: list[tuple[int, int]]) -> None:
        """Any position leads to the first readable entry at or behind it, as a walk over all of them finds it."""
        log = self.chain.log
        ledger_id, entry_id = (0, 0)
        if self.rows:
            ledger_id, entry_id = position(self.rows[round(near * (len(self.rows) - 1))].entry)
        readable = [row for row in self.rows if row.last >= log.log_start]
        latest = ((1 << 63) - 1, (1 << 63) - 1)
        for number, part in [(-1, -1), latest, *((ledger_id + one, entry_id + two) for one, two in steps)]:
            wanted = (LedgerId(number), EntryId(part))
            expected = next((row for row in readable if position(row.entry) >= wanted), None)
            found = self.do(log.locate(*wanted))
            assert (None if found is None else position(found)) == (expected and position(expected.entry))
            cached = log.locate_cached(*wanted)
            if cached is not None:
                assert expected is not None
                assert position(cached) == wanted == position(expected.entry)

    @rule(near=st.floats(0, 1), beyond=st.integers(-1, 2))
    def look_up_an_offset(self, near: float, beyond: int) -> None:
        log = self.chain.log
        wanted = round(near * log.high_watermark) + beyond
        readable = [row for row in self.rows if row.last >= log.log_start]
        expected = next((row for row in readable if row.last >= wanted), None)
        found = self.do(log.entry_at(wanted))
        assert (None if found is None else found.base_offset) == (expected and expected.base)
        assert found is None or (expected is not None and position(found) == position(expected.entry))

    @rule(age_ms=st.integers(-1000, 300_000))
    def look_up_a_timestamp(self, age_ms: int) -> None:
        log = self.chain.log
        wanted = self.chain.clock.now_ms() - age_ms
        expected = [row.base for row in self.rows if row.last >= log.log_start and row.timestamp_ms >= wanted]
        found = self.do(log.entry_for_timestamp(wanted, 0))
        assert (None if found is None else found.base_offset) == (expected[0] if expected else None)


LogMachine.TestCase.settings = settings(stateful_step_count=30, suppress_health_check=list(HealthCheck))
TestLog = LogMachine.TestCase

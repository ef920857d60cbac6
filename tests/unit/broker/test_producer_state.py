"""Idempotent producers, held to Kafka's rules: a model of them beside the real thing, and single claims."""

import asyncio
import struct
import tracemalloc
from collections.abc import Coroutine, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from magnetar.base.errors import EntryCorrupt, StorageError
from magnetar.broker.errors import InvalidProducerEpoch, OutOfOrderSequence
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.producer_state import ProducerStates, sequence_after
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.metadata.store import VALUE_BYTES_MAX
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore

LAST = (1 << 31) - 1


def batch(count: int, producer_id: int, epoch: int, sequence: int, timestamp_ms: int) -> memoryview:
    records = b"".join(bytes([14, 0, 0, 2 * delta, 1, 2]) + b"v\0" for delta in range(count))
    stamps = (timestamp_ms, timestamp_ms)
    checked = struct.pack(">hiqqqhii", 0, count - 1, *stamps, producer_id, epoch, sequence, count) + records
    return memoryview(bytearray(struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked))


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


class Bench:
    """One partition over a store whose disk the test plays."""

    def __init__(self) -> None:
        self.store = MemoryLedgerStore(automatic=False)
        self.metadata = MemoryMetadataStore()
        self.clock = FakeClock()
        self.deduplicates = False
        self.partition = self._open()

    def _open(self) -> Partition:
        environment = LedgerEnvironment(
            self.store, self.metadata, EntryCache(1 << 20), self.clock, decode_entry
        )
        self.environment = environment
        topic: Any = SimpleNamespace(config=TopicDefaults({}).config({}), name="t")
        return Partition(topic, 0, [1], partial(ManagedLedger, "t-0", environment, LedgerLimits()))

    def produce(
        self, producer_id: int, epoch: int, sequence: int, count: int = 1
    ) -> tuple[int, list[Exception | None]]:
        """The base offset, and a list that gets the outcome."""
        outcome: list[Exception | None] = []
        now_ms = self.clock.now_ms()
        data = batch(count, producer_id, epoch, sequence, now_ms)
        return self.partition.append(data, now_ms, outcome.append).base_offset, outcome

    async def flush(self) -> None:
        await settle()
        while len(self.store):
            self.store.write()
            await settle()

    async def crash(self, snapshot: Mapping[str, bytes] | None) -> None:
        for task in list(self.environment.tasks):
            task.cancel()
        self.store = self.store.crash()
        self.partition = self._open()
        stored = await self.metadata.get(METADATA_ROOT + "t-0")
        if stored is not None:
            stats = {stat.ledger_id: stat for stat in await self.store.list_ledgers()}
            self.partition.log.restore(stored.value, stored.version, stats)
        self.partition.deduplicate(self.deduplicates)
        await self.partition.recover_producers(snapshot or {}, self.clock.now_ms())


class Known(NamedTuple):
    """Kafka's ProducerStateEntry: (first sequence, last sequence, first offset) of up to five batches."""

    epoch: int
    batches: tuple[tuple[int, int, int], ...]


class ProducerMachine(RuleBasedStateMachine):
    """Clients that behave, and some that do not, against the rules of Kafka's ProducerAppendInfo."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.durable: list[
            tuple[int, int, int, int, int]
        ] = []  # producer, epoch, first, last sequence, offset
        self.flying: list[tuple[int, int, int, int, int]] = []
        self.must_resume: dict[int, tuple[int, int]] = {}  # producer: (epoch, sequence) that failed first
        self.snapshot: Mapping[str, bytes] | None = None

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        async def make() -> Bench:
            return Bench()

        self.bench = self.do(make())

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.do(self.bench.flush())
            self.bench.partition.close()
            self.do(self.bench.flush())
        self.loop.close()

    def known(self, producer_id: int, rows: list[tuple[int, int, int, int, int]]) -> Known | None:
        mine = [row for row in rows if row[0] == producer_id]
        if not mine:
            return None
        epoch = mine[-1][1]
        current = [row[2:] for row in mine if row[1] == epoch]
        return Known(epoch, tuple((one[0], one[1], one[2]) for one in current[-5:]))

    @rule(
        producer_id=st.integers(1, 3),
        count=st.integers(1, 3),
        kind=st.sampled_from(["next", "next", "next", "again", "gap", "old epoch", "new epoch", "wrap"]),
        back=st.integers(1, 6),
    )
    def produce(self, producer_id: int, count: int, kind: str, back: int) -> None:
        known = self.known(producer_id, self.durable + self.flying)
        resume = self.must_resume.get(producer_id)
        epoch = known.epoch if known is not None else 0
        sequence = sequence_after(known.batches[-1][1], 1) if known is not None else 0
        if resume is not None and (known is None or resume[0] >= epoch):
            epoch, sequence = resume
        expect: Any = None
        match kind:
            case "again" if known is not None and epoch == known.epoch:
                mine = [
                    row for row in self.durable + self.flying if row[0] == producer_id and row[1] == epoch
                ]
                if back > len(mine):
                    return
                first, last, offset = mine[-back][2:]
                sequence, count = first, (last - first) % (1 << 31) + 1
                live = dict(self.bench.partition.producers.items())[producer_id]
                expect = offset if back <= len(live.batches) else OutOfOrderSequence
            case "gap" if known is not None or resume is not None:
                sequence = sequence_after(sequence, 7)
                expect = OutOfOrderSequence
            case "old epoch" if known is not None and epoch > 0:
                epoch -= 1
                expect = InvalidProducerEpoch
            case "new epoch" if known is not None:
                epoch, sequence = epoch + 1, 0
            case "wrap" if known is None and resume is None:
                sequence = LAST - 1  # its first records are gone: it may be anywhere
        self._send(producer_id, epoch, sequence, count, expect)

    def _send(self, producer_id: int, epoch: int, sequence: int, count: int, expect: Any) -> None:
        bench = self.bench
        log = bench.partition.log
        base = log.next_offset
        row = (producer_id, epoch, sequence, sequence_after(sequence, count - 1), base)
        is_new = expect is None

        def done(error: Exception | None) -> None:
            if is_new:
                self.flying.remove(row)
                if error is None:
                    self.durable.append(row)
            elif error is None:
                assert expect < log.high_watermark, (
                    "a duplicate is acknowledged when its first copy is durable"
                )

        async def send() -> None:
            now_ms = bench.clock.now_ms()
            data = batch(count, producer_id, epoch, sequence, now_ms)
            if is_new:
                self.flying.append(row)
                assert bench.partition.append(data, now_ms, done).base_offset == base
                self.must_resume.pop(producer_id, None)
            elif isinstance(expect, int):
                assert bench.partition.append(data, now_ms, done).base_offset == expect
            else:
                with pytest.raises(expect):
                    bench.partition.append(data, now_ms, done)
            await settle()

        self.do(send())

    @rule(count=st.integers(1, 4))
    def disk_writes(self, count: int) -> None:
        async def write() -> None:
            self.bench.store.write(count)
            await settle()

        self.do(write())

    @rule()
    def disk_fails(self) -> None:
        lost: dict[int, tuple[int, int]] = {}
        for producer_id in (1, 2, 3):
            live = dict(self.bench.partition.producers.items()).get(producer_id)
            mine = [row for row in self.flying if row[0] == producer_id]
            if mine and live is not None:
                # The first of the epoch that holds now: older epochs are fenced by it.
                first = next(row for row in mine if row[1] == live.epoch)
                lost[producer_id] = (first[1], first[2])

        async def fail() -> None:
            flying = list(self.flying)
            self.bench.store.fail()
            await settle()
            assert not [row for row in flying if row in self.flying]

        self.do(fail())
        for producer_id, resume in lost.items():
            known = self.known(producer_id, self.durable)
            if known is None or known.epoch < resume[0]:
                self.must_resume[producer_id] = resume

    @rule()
    def take_a_snapshot(self) -> None:
        async def take() -> None:
            partition = self.bench.partition
            snapshot, durable = partition.snapshot(), partition.durable_waits.until(partition.log.next_offset)
            await self.bench.flush()
            if await durable:
                self.snapshot = snapshot

        self.do(take())

    @rule()
    def crash(self) -> None:
        self.flying.clear()
        self.must_resume.clear()
        self.do(self.bench.crash(self.snapshot))
        # A snapshot may know of a newer epoch that nothing was stored of.
        for producer_id, live in self.bench.partition.producers.items():
            if not live.batches:
                self.must_resume[producer_id] = (live.epoch, 0)

    @invariant()
    def knows_what_it_must(self) -> None:
        if not hasattr(self, "bench"):
            return
        live = dict(self.bench.partition.producers.items())
        rows = self.durable + self.flying
        assert {row[0] for row in rows} <= set(live)
        for producer_id, entry in live.items():
            known = self.known(producer_id, rows)
            if known is None or known.epoch < entry.epoch:
                assert not entry.batches
                continue
            assert entry.epoch == known.epoch
            remembered = tuple(
                (one.base_sequence, one.last_sequence, one.base_offset) for one in entry.batches
            )
            assert remembered == known.batches[len(known.batches) - len(remembered) :]


ProducerMachine.TestCase.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestProducers = ProducerMachine.TestCase


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_five_batches_are_remembered_and_the_sixth_is_out_of_order() -> None:
    states = ProducerStates()
    for number in range(6):
        assert states.check(7, 0, number * 10, 10) is None
        states.add(7, 0, number * 10, number * 10, 10, 0)
    for number in range(1, 6):
        found = states.check(7, 0, number * 10, 10)
        assert found is not None
        assert found.base_offset == number * 10
    with pytest.raises(OutOfOrderSequence):
        states.check(7, 0, 0, 10)
    with pytest.raises(OutOfOrderSequence):
        states.check(7, 0, 50, 9)


def test_sequences_wrap_at_2_31_inside_a_batch_and_between_batches() -> None:
    assert sequence_after(LAST, 1) == 0
    states = ProducerStates()
    states.add(7, 0, LAST - 1, 0, 4, 0)  # LAST - 1, LAST, 0, 1
    assert states.check(7, 0, 2, 1) is None
    found = states.check(7, 0, LAST - 1, 4)
    assert found is not None
    assert found.last_sequence == 1
    with pytest.raises(OutOfOrderSequence):
        states.check(7, 0, 3, 1)
    states = ProducerStates()
    states.add(7, 0, LAST, 0, 1, 0)
    assert states.check(7, 0, 0, 1) is None


def test_a_snapshot_is_read_back_as_it_was_and_half_of_one_is_refused() -> None:
    states = ProducerStates()
    for number in range(7):
        states.add(7, 3, number, number, 1, 1000 + number)
    states.add(8, 0, LAST, 7, 2, 5)
    states.refused(9, 4, 17)
    snapshot = states.encode(9)
    read, end = ProducerStates.decode(snapshot)
    assert end == len(snapshot)
    assert read.next_offset == 9
    assert [(pid, one.epoch, list(one.batches)) for pid, one in read.items()] == [
        (pid, one.epoch, list(one.batches)) for pid, one in states.items()
    ]
    for size in range(len(snapshot)):
        with pytest.raises(EntryCorrupt):
            ProducerStates.decode(snapshot[:size])
    with pytest.raises(EntryCorrupt):
        ProducerStates.decode(b"\x07" + snapshot[1:])


def test_a_snapshot_fits_the_metadata_store_however_many_producers_there_are() -> None:
    states = ProducerStates()
    for producer_id in range(7000):
        for number in range(5):
            states.add(producer_id, 0, number, number, 1, producer_id)
    snapshot = states.encode(5)
    assert len(snapshot) <= VALUE_BYTES_MAX
    kept = {producer_id for producer_id, _ in ProducerStates.decode(snapshot)[0].items()}
    assert 4000 < len(kept) < 7000
    assert kept == set(range(7000 - len(kept), 7000)), "those that wrote last"


def test_idle_producers_are_forgotten() -> None:
    states = ProducerStates()
    states.add(7, 0, 0, 0, 1, 1000)
    states.add(8, 0, 0, 1, 1, 2000)
    states.refused(9, 0, 5)
    states.expire(1500)
    assert [producer_id for producer_id, _ in states.items()] == [8]


def test_a_producer_is_as_young_as_its_last_restart_whatever_its_records_say() -> None:
    async def scenario() -> None:
        bench = Bench()
        data = batch(1, 7, 0, 0, 1_000)  # records of 1970
        bench.partition.append(data, bench.clock.now_ms(), lambda _: None)
        await bench.flush()
        await bench.crash(None)
        bench.partition.producers.expire(bench.clock.now_ms() - 60_000)
        assert len(bench.partition.producers) == 1

    run(scenario())


def test_what_follows_a_batch_that_failed_is_not_stored_before_it() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.produce(7, 0, 0)
        bench.produce(7, 0, 1)
        await settle()
        bench.store.fail()
        await settle()
        with pytest.raises(OutOfOrderSequence):
            bench.produce(7, 0, 2)
        assert bench.produce(7, 0, 0)[0] == 0
        assert bench.produce(7, 0, 1)[0] == 1
        await bench.flush()

        bench.store.full = True
        with pytest.raises(StorageError):
            bench.produce(8, 0, 0)
        bench.store.full = False
        with pytest.raises(OutOfOrderSequence):
            bench.produce(8, 0, 1)
        assert bench.produce(8, 0, 0)[0] == 2
        await bench.flush()

    run(scenario())


def test_a_repeated_batch_fails_with_the_one_it_repeats() -> None:
    async def scenario() -> None:
        bench = Bench()
        _, first = bench.produce(7, 0, 0)
        base, again = bench.produce(7, 0, 0)
        assert base == 0
        await settle()
        assert not again
        bench.store.fail()
        await settle()
        assert isinstance(first[0], StorageError)
        assert isinstance(again[0], StorageError)
        _, retry = bench.produce(7, 0, 0)
        await bench.flush()
        assert retry == [None]
        assert bench.partition.log.high_watermark == 1

    run(scenario())


def test_a_snapshot_is_not_stored_when_a_batch_in_it_failed_while_others_were_waited_for() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.produce(7, 0, 0)
        await settle()
        durable = bench.partition.durable_waits.until(bench.partition.log.next_offset)
        bench.store.fail()
        await settle()
        bench.produce(8, 0, 0)  # takes the offset that the failed one had
        await bench.flush()
        assert await durable is False

    run(scenario())


def test_a_producer_that_had_a_marker_is_known_for_it_under_later_epochs_and_after_failed_appends() -> None:
    states = ProducerStates()
    states.marked(7, 0)
    assert states.items() == []  # of one that is not known there is nothing to remember
    states.add(7, 0, 0, 0, 1, 1000)
    states.add(8, 0, 0, 1, 1, 1000)
    states.marked(7, 0)
    states.add(7, 1, 0, 3, 1, 1000)
    states.raise_epoch(7, 2)
    states.refused(7, 2, 0)
    for known in (states, states.below(3), ProducerStates.decode(states.encode(4))[0]):
        assert {producer_id: entry.is_marked for producer_id, entry in known.items()} == {7: True, 8: False}


def test_those_that_have_not_written_for_longest_are_forgotten_first_and_are_new_when_they_come_again() -> (
    None
):
    states = ProducerStates()
    for producer_id in (7, 8, 9):
        states.add(producer_id, 0, 0, producer_id, 1, 1000)
    states.add(7, 0, 1, 10, 1, 1000)
    assert states.forget_oldest(1, 100, lambda _: False) == 1
    assert [producer_id for producer_id, _ in states.items()] == [9, 7]
    assert states.check(8, 0, 1, 1) is None, "anything, as of one that has expired"
    with pytest.raises(OutOfOrderSequence):
        states.check(7, 0, 5, 1)


def test_a_producer_with_an_open_transaction_or_a_batch_that_may_fail_is_not_forgotten() -> None:
    states = ProducerStates()
    for producer_id in (7, 8, 9):
        states.add(producer_id, 0, 0, producer_id, 1, 1000)
    assert states.forget_oldest(3, 9, {7}.__contains__) == 1
    assert [producer_id for producer_id, _ in states.items()] == [7, 9]


def test_a_snapshot_keeps_the_order_in_which_producers_wrote() -> None:
    states = ProducerStates()
    for producer_id in (9, 7, 8):
        states.add(producer_id, 0, 0, producer_id, 1, 1000)
    read, _ = ProducerStates.decode(states.encode(10))
    assert [producer_id for producer_id, _ in read.items()] == [9, 7, 8]


def test_a_thousand_producers_take_less_than_half_a_megabyte() -> None:
    tracemalloc.start()
    try:
        states = ProducerStates()
        for number in range(5):
            for producer_id in range(1_000_000, 1_001_000):
                states.add(producer_id, 0, number, producer_id + number, 1, 1_700_000_000_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(states) == 1000
    assert size < 500_000

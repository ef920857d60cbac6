"""Producers of both protocols against a list of what their partition must hold, with failures and crashes between,
and deduplication that is turned off and on.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.broker.log.errors import ProducersNotKnown
from magnetar.broker.upkeep.deduplication_learner import DeduplicationLearner
from magnetar.ledger.entry import EntryKind

from .pulsar_entries import sent
from .test_producer_state import Bench, batch, settle


class PublishMachine(RuleBasedStateMachine):
    """Producers of both protocols, on a disk that fails and a server that crashes.

    `log` is what the partition must hold: (kind, producer, highest sequence id or None, base, count, bytes).  `is_on`
    and `is_known`: whether the partition deduplicates, and whether it knows already what producers have sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.log: list[tuple[EntryKind, str, int | None, int, int, bytes]] = []
        self.durable_count = 0
        self.answers: list[str] = []  # in the order of the calls: what was appended, or "again"
        self.expected: list[str] = []
        self.snapshot: Mapping[str, bytes] | None = None
        self.is_on = self.is_known = True
        self.snapshot_knows = True

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        async def make() -> Bench:
            bench = Bench()
            bench.deduplicates = True
            bench.partition.deduplicate(True)
            return bench

        self.bench = self.do(make())

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.do(self.bench.flush())
            self.bench.partition.close()
            self.do(self.bench.flush())
        self.loop.close()

    def highest(self, name: str, rows: list[tuple[EntryKind, str, int | None, int, int, bytes]]) -> int:
        return next((row[2] for row in reversed(rows) if row[1] == name and row[2] is not None), -1)

    def answered(self, label: str, row: Any, error: Exception | None) -> None:
        if error is None:
            self.answers.append(label)
            if row is not None:
                assert self.log[self.durable_count] is row
                self.durable_count += 1

    @property
    def end(self) -> int:
        return self.log[-1][3] + self.log[-1][4] if self.log else 0

    @rule(
        name=st.sampled_from("abc"),
        ahead=st.integers(-4, 3),
        count=st.integers(1, 3),
        chunk=st.sampled_from([None, None, (0, 2), (1, 2)]),
    )
    def send(self, name: str, ahead: int, count: int, chunk: tuple[int, int] | None) -> None:
        count = 1 if chunk else count
        sequence_id = max(self.highest(name, self.log) + ahead, 0)
        view = sent(name, sequence_id, count, chunk=chunk)
        highest = sequence_id + count - 1
        is_again = self.is_on and highest <= self.highest(name, self.log)
        row = None
        if not is_again:
            completes = chunk is None or chunk[0] == chunk[1] - 1
            row = (EntryKind.PULSAR, name, highest if completes else None, self.end, count, bytes(view.data))

        async def publish() -> None:
            if not self.is_known:
                with pytest.raises(ProducersNotKnown):
                    self.bench.partition.publish(view.data, view, self.bench.clock.now_ms(), lambda _: None)
                return
            label = "again" if is_again else f"{self.end}"
            if row is not None:
                self.log.append(row)
            self.expected.append(label)
            entry = self.bench.partition.publish(
                view.data,
                view,
                self.bench.clock.now_ms(),
                lambda error: self.answered(label, row, error),
            )
            assert (entry.base_offset == -1) == is_again

        self.do(publish())

    @rule(count=st.integers(1, 3))
    def produce(self, count: int) -> None:
        now_ms = self.bench.clock.now_ms()
        data = batch(count, -1, -1, -1, now_ms)

        async def append() -> None:
            row = (EntryKind.KAFKA, "", None, self.end, count, b"")
            label = f"{self.end}"
            self.log.append(row)
            self.expected.append(label)
            self.bench.partition.append(data, now_ms, lambda error: self.answered(label, row, error))

        self.do(append())

    @rule(count=st.integers(1, 4))
    def disk_writes(self, count: int) -> None:
        async def write() -> None:
            self.bench.store.write(count)
            await settle()

        self.do(write())

    @rule()
    def disk_fails(self) -> None:
        async def fail() -> None:
            await settle()
            if len(self.bench.store):
                self.bench.store.fail()
                await settle()
                del self.log[self.durable_count :]
                self.expected = list(self.answers)

        self.do(fail())

    @rule()
    def take_a_snapshot(self) -> None:
        if self.durable_count == len(self.log):
            self.snapshot = self.bench.partition.snapshot()
            self.snapshot_knows = (self.is_on and self.is_known) or not self.log

    @rule()
    def crash(self) -> None:
        async def crash() -> None:
            await settle()
            await self.bench.crash(self.snapshot)

        self.do(crash())
        self.is_known = not self.is_on or self.snapshot is None or self.snapshot_knows
        del self.log[self.durable_count :]
        self.expected = list(self.answers)

    @rule(on=st.booleans())
    def turn(self, on: bool) -> None:
        async def turn() -> None:
            must_read = self.bench.partition.deduplicate(on)
            assert must_read == (on and not self.is_on and bool(self.log))

        self.bench.deduplicates = on
        self.do(turn())
        self.is_known = not on or (self.is_known if self.is_on else not self.log)
        self.is_on = on

    @rule()
    def learn(self) -> None:
        async def learn() -> None:
            learning = asyncio.create_task(DeduplicationLearner(self.bench.clock).learn(self.bench.partition))
            await self.bench.flush()
            await learning

        self.do(learn())
        self.is_known = True

    @invariant()
    def answers_come_in_order_and_only_for_what_is_durable(self) -> None:
        if not hasattr(self, "bench"):
            return
        assert self.answers == self.expected[: len(self.answers)]
        durable = self.log[: self.durable_count]
        assert DeduplicationLearner.knows(self.bench.partition) == self.is_known
        for name in "abc" if self.is_known else "":
            expected = self.highest(name, durable) if self.is_on else -1
            assert self.bench.partition.last_sequence_id(name) == expected

    @rule()
    @precondition(lambda self: self.durable_count)
    def read_everything(self) -> None:
        entries = self.do(self.bench.partition.log.read(0, 1 << 20))
        offset = entries[-1].last_offset + 1
        while offset < self.bench.partition.log.high_watermark:
            entries += self.do(self.bench.partition.log.read(offset, 1 << 20))
            offset = entries[-1].last_offset + 1
        durable = self.log[: self.durable_count]
        assert [(e.kind, e.base_offset, e.message_count) for e in entries] == [
            (row[0], row[3], row[4]) for row in durable
        ]
        for entry, row in zip(entries, durable, strict=True):
            assert row[0] is EntryKind.KAFKA or bytes(entry.payload) == row[5]


PublishMachine.TestCase.settings = settings(stateful_step_count=30, suppress_health_check=list(HealthCheck))
TestPublishing = PublishMachine.TestCase

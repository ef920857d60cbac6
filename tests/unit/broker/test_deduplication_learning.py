"""Deduplication is turned on for a log that has entries: what producers have sent is read from it first."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar.base.errors import LedgerNotFound
from magnetar.broker.log import deduplication_reading, producer_snapshots
from magnetar.broker.log.errors import ProducersNotKnown
from magnetar.broker.log.partition import Partition
from magnetar.broker.upkeep.deduplication_learner import DeduplicationLearner
from magnetar.storage.store import READ_ENTRIES_MAX, LedgerId, StoredEntry
from magnetar.wire.pulsar.entry import EntryView

from .pulsar_entries import sent
from .test_partition_recovery import TransactionBench
from .test_producer_state import settle


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.fixture(autouse=True)
def an_entry_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication_reading, "REPLAY_BYTES", 1)


class World(TransactionBench):
    """A partition without deduplication, and who reads its log when that is turned on."""

    def __init__(self) -> None:
        super().__init__()
        self.learner = DeduplicationLearner(self.clock)

    def send(self, *views: EntryView) -> list[int]:
        """Publish; the base offsets, -1 for a duplicate."""
        now_ms = self.clock.now_ms()
        return [self.partition.publish(view.data, view, now_ms, lambda _: None).base_offset for view in views]

    async def learn(self) -> None:
        await self.learner.learn(self.partition)

    async def turn_on(self) -> None:
        """From now on, and once the log was read."""
        self.partition.deduplicate(True)
        await self.learn()

    def last(self, *names: str) -> list[int]:
        return [self.partition.last_sequence_id(name) for name in names]


async def world_with(*views: EntryView) -> World:
    """What these have sent is durable."""
    world = World()
    world.send(*views)
    await world.flush()
    return world


class Gate:
    """Holds back each read of a partition's log until the test lets it go."""

    def __init__(self, partition: Partition) -> None:
        self.reads: list[asyncio.Event] = []
        self._read = partition.log.read_stored
        self._is_open = False
        partition.log.read_stored = self.read  # type: ignore[method-assign]

    async def read(
        self, offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> tuple[LedgerId, list[StoredEntry]]:
        self.reads.append(asyncio.Event())
        if not self._is_open:
            await self.reads[-1].wait()
        return await self._read(offset, bytes_max, entries_max)

    async def pass_one(self) -> None:
        self.reads[-1].set()
        await settle()

    def open(self) -> None:
        self._is_open = True
        self.reads[-1].set()


@asynccontextmanager
async def being_learned(world: World) -> AsyncIterator[tuple[Gate, "asyncio.Task[None]"]]:
    """Deduplication was turned on, and the first read of the log waits."""
    gate = Gate(world.partition)
    world.partition.deduplicate(True)
    task = asyncio.create_task(world.learn())
    await settle()
    assert len(gate.reads) == 1
    yield gate, task
    gate.open()
    await asyncio.wait([task])


def test_what_was_sent_before_it_was_turned_on_is_known() -> None:
    async def scenario() -> None:
        world = World()
        world.send(sent("a", 4, 3), sent("b", 9), sent("c", 1, chunk=(0, 2)))
        world.produce(7, 0, 0)
        world.send(sent("b", 2))
        await world.flush()
        assert world.partition.deduplicate(True), "there is something to read"
        await world.learn()
        assert world.learner._readings == {}
        assert world.last("a", "b", "c", "nobody") == [6, 2, -1, -1]
        assert world.send(sent("a", 6), sent("b", 2), sent("c", 1, chunk=(0, 2)), sent("b", 3)) == [
            -1,
            -1,
            7,
            8,
        ]
        assert not world.partition.deduplicate(True), "it is on"
        assert len(world.partition.producers) == 1, "Kafka's producers are as they were"

    run(scenario())


def test_a_log_without_entries_needs_no_reading() -> None:
    async def scenario() -> None:
        world = World()
        assert not world.partition.deduplicate(True)
        assert world.send(sent("a", 1), sent("a", 1)) == [0, -1]

    run(scenario())


def test_nothing_is_stored_before_it_is_known_what_was_sent() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 1))
        async with being_learned(world):
            with pytest.raises(ProducersNotKnown):
                world.send(sent("a", 2))
            with pytest.raises(ProducersNotKnown):
                world.last("a")
            assert world.produce(7, 0, 0)[0] == 1, "Kafka's producers do not wait"
        assert world.send(sent("a", 1), sent("a", 2)) == [-1, 2]

    run(scenario())


def test_what_is_on_its_way_when_it_is_turned_on_is_known_once_it_is_durable() -> None:
    async def scenario() -> None:
        world = World()
        world.send(sent("a", 1))
        world.partition.deduplicate(True)
        task = asyncio.create_task(world.learn())
        await settle()
        assert not task.done()
        await world.flush()
        await task
        assert world.send(sent("a", 1)) == [-1]

    run(scenario())


@pytest.mark.parametrize("asked_before", [False, True])
def test_what_fails_on_its_way_when_it_is_turned_on_is_not_known(asked_before: bool) -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 0))
        world.send(sent("a", 1))
        world.partition.deduplicate(True)
        task = asyncio.create_task(world.learn()) if asked_before else None
        await settle()
        world.store.fail()
        await settle()
        await (task or world.learn())
        assert world.send(sent("a", 0), sent("a", 1)) == [-1, 1]

    run(scenario())


def test_turned_off_and_on_again_it_knows_what_was_sent_in_between() -> None:
    async def scenario() -> None:
        world = World()
        world.partition.deduplicate(True)
        world.send(sent("a", 5))
        world.partition.deduplicate(False)
        assert world.send(sent("a", 5), sent("b", 3), sent("a", 6)) == [1, 2, 3]
        await world.flush()
        assert world.partition.deduplicate(True)
        await world.learn()
        assert world.send(sent("a", 6), sent("b", 3), sent("b", 4)) == [-1, -1, 4]

    run(scenario())


def test_turned_off_while_it_reads_it_ends_and_turned_on_again_it_reads_anew() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5), sent("b", 1))
        async with being_learned(world) as (gate, task):
            world.partition.deduplicate(False)
            assert world.learner.problem is None
            await gate.pass_one()
            await task
            assert len(gate.reads) == 1
            assert world.send(sent("a", 9)) == [2]
        await world.flush()
        await world.turn_on()
        assert world.last("a", "b") == [9, 1]

    run(scenario())


def test_turned_off_and_on_while_it_reads_it_waits_for_the_new_reading() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5))
        async with being_learned(world) as (gate, task):
            world.partition.deduplicate(False)
            world.send(sent("b", 2))
            await world.flush()
            world.partition.deduplicate(True)
            await gate.pass_one()
            assert not task.done()
        assert world.last("a", "b") == [5, 2]

    run(scenario())


def test_all_who_wait_share_one_reading() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5))
        async with being_learned(world) as (gate, _):
            others = [asyncio.create_task(world.learn()) for _ in range(3)]
            await settle()
            assert len(gate.reads) == 1
        await asyncio.gather(*others)

    run(scenario())


def test_the_reading_goes_on_when_who_asked_for_it_has_gone() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5), sent("b", 6))
        async with being_learned(world) as (gate, task):
            await gate.pass_one()
            task.cancel()
            await settle()
            assert len(gate.reads) == 2
        await world.learn()
        assert len(gate.reads) == 2, "what was read is not read again"
        assert world.last("a", "b") == [5, 6]

    run(scenario())


def test_logs_take_turns() -> None:
    async def scenario() -> None:
        large, small = World(), World()
        small.learner = large.learner
        large.send(*(sent("a", number) for number in range(20)))
        small.send(sent("b", 7))
        await large.flush()
        await small.flush()
        async with being_learned(large) as (gate, task):
            small.partition.deduplicate(True)
            other = asyncio.create_task(small.learn())
            await settle()
            assert not other.done(), "one piece at a time is in memory"
            for _ in range(2):
                await gate.pass_one()
            await other
            assert not task.done()
        assert (large.last("a"), small.last("b")) == ([19], [7])

    run(scenario())


def test_a_start_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5), sent("b", 6))
        log = world.partition.log
        read = log.read_stored

        async def deleted(
            offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
        ) -> tuple[LedgerId, list[StoredEntry]]:
            log.log_start, log.read_stored = 1, read  # type: ignore[method-assign]
            raise LedgerNotFound("retention was faster")

        log.read_stored = deleted  # type: ignore[method-assign]
        await world.turn_on()
        assert world.last("a", "b") == [-1, 6]

    run(scenario())


def test_an_entry_that_cannot_be_read_holds_producers_back_until_it_is_deleted() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5), sent("b", 6), sent("c", 7))
        world.damage(1)
        await world.crash(world.partition.snapshot())
        world.partition.deduplicate(True)
        for _ in range(2):
            with pytest.raises(ProducersNotKnown, match="cannot be read from offset 1 on"):
                await world.learn()
        assert "cannot be read from offset 1 on" in str(world.learner.problem)
        await world.partition.log.trim(log_start=2)
        await world.learn()
        assert world.learner.problem is None
        assert world.last("a", "b", "c") == [5, -1, 7], "what was read before it is known"

    run(scenario())


def test_what_cannot_be_read_is_no_problem_once_it_is_turned_off() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5))
        world.damage(0)
        await world.crash(world.partition.snapshot())
        world.partition.deduplicate(True)
        with pytest.raises(ProducersNotKnown):
            await world.learn()
        world.partition.deduplicate(False)
        assert world.learner.problem is None
        assert world.send(sent("a", 5)) == [1]

    run(scenario())


def test_of_many_producers_those_that_sent_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication_reading, "PRODUCERS_MAX", 3)

    async def scenario() -> None:
        world = World()
        names = [f"p{number}" for number in range(7)]
        world.send(*(sent(name, 1) for name in names[:6]), sent("p0", 2), sent("p6", 1))
        await world.flush()
        await world.turn_on()
        assert world.last(*names) == [2, -1, -1, -1, -1, 1, 1]

    run(scenario())


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_a_server_that_is_killed_while_it_reads_reads_again(pieces: int) -> None:
    async def scenario() -> None:
        world = World()
        world.deduplicates = True
        world.send(sent("a", 5), sent("b", 6), sent("c", 7))
        world.produce(7, 0, 0)
        await world.flush()
        async with being_learned(world) as (gate, _):
            for _ in range(pieces):
                await gate.pass_one()
            snapshot = world.partition.snapshot()
        await world.crash(snapshot)
        with pytest.raises(ProducersNotKnown):
            world.send(sent("a", 5))
        await world.learn()
        assert world.last("a", "b", "c") == [5, 6, 7]
        assert len(world.partition.producers) == 1

    run(scenario())


def test_what_was_read_is_in_the_next_snapshot() -> None:
    async def scenario() -> None:
        world = World()
        world.deduplicates = True
        world.send(sent("a", 5))
        await world.flush()
        world.partition.snapshot()
        await world.turn_on()
        assert world.partition.bytes_since_snapshot, "it is due to be stored"
        await world.crash(world.partition.snapshot())
        assert world.send(sent("a", 5)) == [-1]

    run(scenario())


def test_turned_on_while_the_server_is_down_it_reads_the_log() -> None:
    async def scenario() -> None:
        world = await world_with(sent("a", 5))
        snapshot = world.partition.snapshot()
        assert producer_snapshots.covered(snapshot) == 1
        world.deduplicates = True
        world.send(sent("b", 6), sent("a", 2))
        await world.flush()
        await world.crash(snapshot)
        await world.learn()
        assert world.last("a", "b") == [2, 6], "the last entry counts, and the replay has found it"

    run(scenario())


def test_a_reading_ends_with_its_partition_and_with_the_server() -> None:
    async def scenario() -> None:
        deleted, stopped = World(), World()
        for world in (deleted, stopped):
            world.send(sent("a", 5), sent("a", 6))
            await world.flush()
        async with being_learned(deleted) as (gate, task):
            deleted.partition.close()
            await gate.pass_one()
            with pytest.raises(ProducersNotKnown):
                await task
            assert len(gate.reads) == 1
        assert deleted.learner.problem is None
        async with being_learned(stopped) as (gate, task):
            await stopped.learner.close()
            await asyncio.wait([task])
            assert len(gate.reads) == 1

    run(scenario())

"""What a run of Pulsar's compaction shows of itself, what it asks for, and how it ends."""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.compaction import beside, run
from magnetar.broker.log.model import CompactionState
from magnetar.broker.log.partition import Partition
from magnetar.wire.compaction import Latest, latest, latest_offsets
from magnetar.wire.kafka.records import read_header

from .beside_world import LogBeside


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def small_log() -> LogBeside:
    """The clock is not at zero: what is counted from the beginning of a run shows."""
    world = LogBeside(random.Random(1), entries_max=100)
    world.clock.advance(1000)
    return world


async def put(world: LogBeside, keys: str) -> None:
    """An entry of one record for each letter, which is its key."""
    for key in keys:
        await world.send([(key.encode(), b"value")])


def test_before_the_first_run_nothing_was_looked_at_and_nothing_is_left_to_do() -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "abc")
        assert world.beside.left_bytes == 0
        assert world.beside.not_compacted_bytes(world.partition) == world.log.size_bytes > 0
        await world.beside.hold_all(world.partition)
        assert world.holds == [0]
        world.compactor.close()

    play(scenario())


def test_the_subscription_is_at_the_beginning_of_a_run_and_then_at_its_end() -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "abca")
        assert await world.run() is CompactionState.SUCCESS
        assert world.holds == [0, 4]
        await put(world, "ab")
        assert await world.run() is CompactionState.SUCCESS
        assert world.holds == [0, 4, 4, 6]
        await world.beside.hold_all(world.partition)
        assert world.holds[-1] == 6
        world.compactor.close()

    play(scenario())


def test_what_a_transaction_has_not_decided_is_left_for_the_next_run() -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "ab")
        await world.send_in_transaction(0)
        await put(world, "c")
        assert await world.run() is CompactionState.SUCCESS
        assert world.horizon == 2
        assert world.holds == [0, 2]
        await world.end(0, commit=True)
        assert await world.run() is CompactionState.SUCCESS
        assert world.horizon == world.log.high_watermark
        await world.check()
        world.compactor.close()

    play(scenario())


def test_a_run_without_anything_new_writes_no_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "abca")
        await world.run()
        ledgers, written = world.log.stored_ids, world.compactor.counts.written_bytes
        held: list[int] = []

        async def hold(name: str, positions: Mapping[Partition, int]) -> None:
            held.append(positions[world.partition])
            assert len(held) == 1, "there is no step"

        monkeypatch.setattr(world.beside, "_hold", hold)
        assert await world.run() is CompactionState.SUCCESS
        assert held == [4]
        assert world.log.stored_ids == ledgers
        assert world.compactor.counts.written_bytes == written
        assert world.partition.compaction.removed_messages == 0
        world.compactor.close()

    play(scenario())


def test_the_time_that_a_run_took_is_shown_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "abca")

        async def slow(*arguments: Any) -> None:
            await run.rewrite(*arguments)
            world.clock.advance(2.5)

        monkeypatch.setattr(beside, "rewrite", slow)
        assert await world.run() is CompactionState.SUCCESS
        assert world.partition.compaction.duration_ms == 2500
        assert world.partition.compaction.succeeded_ms == world.clock.now_ms()
        assert world.compactor.counts.seconds == 2.5
        world.compactor.close()

    play(scenario())


def test_all_bytes_that_a_run_reads_and_writes_are_counted_and_were_foreseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads what is new twice, and what the run before has left once."""

    async def scenario() -> None:
        world = small_log()
        counts = world.compactor.counts
        left: list[int] = []

        async def noting(*arguments: Any) -> None:
            left.append(world.beside.left_bytes)
            await run.note(*arguments)

        monkeypatch.setattr(beside, "note", noting)
        await put(world, "abca")
        first = world.log.size_bytes
        await world.run()
        assert (left, counts.read_bytes) == ([2 * first], 2 * first)
        former = world.log.compacted
        assert former is not None
        assert counts.written_bytes == former.size_bytes > 0

        await put(world, "ab")
        second = world.log.size_bytes - first
        estimate = world.beside.not_compacted_bytes(world.partition)
        await world.run()
        assert left[1:] == [2 * estimate + former.size_bytes]
        assert counts.read_bytes == 2 * first + 2 * second + former.size_bytes
        assert world.log.compacted is not None
        assert counts.written_bytes == former.size_bytes + world.log.compacted.size_bytes
        assert world.beside.left_bytes == 0
        world.compactor.close()

    play(scenario())


def test_removed_messages_are_those_of_all_steps_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for three keys, and the log has four."""

    async def scenario() -> None:
        world = small_log()
        monkeypatch.setattr(beside, "keys_in", lambda size: 3)
        await put(world, "aabbbcccd")
        assert await world.run() is CompactionState.SUCCESS
        assert len(world.holds) > 2, "there were several steps"
        assert world.partition.compaction.removed_messages == 5
        assert world.compactor.counts.removed_records == 5
        assert world.compactor.counts.runs == 1
        await world.check()
        world.compactor.close()

    play(scenario())


def test_the_table_of_keys_is_not_larger_than_there_are_offsets_to_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = small_log()
        asked: list[int] = []

        def seen(keys_max: int, expected_bytes: int) -> Latest:
            asked.append(keys_max)
            return latest_offsets(keys_max, expected_bytes)

        monkeypatch.setattr(beside, "latest_offsets", seen)
        for keys in ("abcd", "ab"):
            await put(world, keys)
            await world.run()
        assert asked == [4, 2]
        world.compactor.close()

    play(scenario())


@pytest.mark.parametrize("before", ["", "xy"])
def test_a_log_that_starts_inside_a_batch_is_compacted_to_its_end(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of keys was too small for the whole batch: the run failed, or began again and again."""

    async def scenario() -> None:
        world = small_log()
        await put(world, before)
        if before:
            await world.run()
        start = len(world.rows)
        await world.send([(b"%d" % number, b"value") for number in range(10)])
        await world.log.trim(log_start=start + 5)
        held: list[int] = []

        async def hold(name: str, positions: Mapping[Partition, int]) -> None:
            held.append(positions[world.partition])
            assert len(held) <= 2, "there is one step"

        monkeypatch.setattr(world.beside, "_hold", hold)
        assert await world.run() is CompactionState.SUCCESS
        assert held == [start + 5, start + 10]
        assert world.horizon == start + 10
        world.compactor.close()

    play(scenario())


def test_a_run_goes_on_where_the_log_starts_when_that_moves_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asked for records that were deleted, or had no room for the keys of the batch in which the log had started."""

    async def scenario() -> None:
        world = small_log()
        await world.send([(b"%d" % number, b"value") for number in range(10)])
        await world.send([(b"a", b"value"), (b"b", b"value")])
        await world.log.trim(log_start=5)
        held: list[int] = []

        async def hold(name: str, positions: Mapping[Partition, int]) -> None:
            held.append(positions[world.partition])
            assert len(held) <= 2, "there is one step"
            await world.log.trim(log_start=11)

        monkeypatch.setattr(world.beside, "_hold", hold)
        assert await world.run() is CompactionState.SUCCESS
        assert held == [5, 12]
        assert world.horizon == 12
        assert world.log.compacted is not None
        assert [one.base_offset for one in await world.log.compacted.read(0, 1 << 20, 10)] == [10]
        world.compactor.close()

    play(scenario())


def test_the_first_record_of_a_log_stays_through_the_runs_after_it() -> None:
    async def scenario() -> None:
        world = small_log()
        for keys in ("ab", "c", "d"):
            await put(world, keys)
            await world.run()
        assert [row.key for row in world.expected()] == [b"a", b"b", b"c", b"d"]
        await world.check()
        world.compactor.close()

    play(scenario())


def test_what_stands_for_the_last_record_has_the_epoch_of_that_record() -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "a")
        await world.crash()
        await world.send([(b"b", None)])
        await world.crash()
        assert await world.run() is CompactionState.SUCCESS
        assert world.log.compacted is not None
        entries = await world.log.compacted.read(0, 1 << 20, 10)
        headers = [read_header(entry.payload) for entry in entries]
        assert [(one.base_offset, one.is_control) for one in headers] == [(0, False), (1, True)]
        assert headers[1].partition_leader_epoch == 1
        world.compactor.close()

    play(scenario())


def test_a_second_log_waits_for_the_run_of_the_first() -> None:
    """One table of keys is in memory, not one for each."""

    async def scenario() -> None:
        world, other = small_log(), small_log()
        await put(world, "ab")
        await put(other, "ab")
        asked: list[Partition] = []
        may_go = asyncio.Event()

        async def hold(name: str, positions: Mapping[Partition, int]) -> None:
            asked.extend(positions)
            await may_go.wait()

        shared = beside.CompactorBeside(world.clock, world.compactor, hold)
        runs = [shared.start(one.partition) for one in (world, other)]
        await world.settle()
        assert asked == [world.partition]
        assert other.partition.compaction.state is CompactionState.RUNNING
        may_go.set()
        await asyncio.gather(*runs)
        assert asked == [world.partition] * 2 + [other.partition] * 2
        for one in (world, other):
            assert one.partition.compaction.state is CompactionState.SUCCESS
            one.compactor.close()

    play(scenario())


def test_a_stop_ends_the_run_that_is_under_way_and_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "ab")
        held: list[int] = []

        async def hold(name: str, positions: Mapping[Partition, int]) -> None:
            held.append(positions[world.partition])
            await asyncio.Event().wait()

        monkeypatch.setattr(world.beside, "_hold", hold)
        running = world.beside.start(world.partition)
        await world.settle()
        assert (held, running.done()) == ([0], False)
        closing = asyncio.ensure_future(world.beside.close())
        await asyncio.sleep(0)
        assert not closing.done(), "it waits for the end of the run"
        await world.settle()
        assert closing.done()
        assert running.cancelled()
        assert world.partition.compaction.state is CompactionState.ERROR
        with pytest.raises(StorageError, match="the server stops"):
            await world.compactor.thread.run(list)

    play(scenario())


def test_a_run_that_ends_by_our_own_fault_says_so_and_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = small_log()
        await put(world, "ab")
        before = world.log.stored_ids

        async def broken(*arguments: Any) -> None:
            raise ValueError("a bug")

        monkeypatch.setattr(beside, "rewrite", broken)
        with pytest.raises(ValueError, match="a bug"):
            await world.beside.start(world.partition)
        await world.settle()
        figures = world.partition.compaction
        assert (figures.state, figures.error) == (CompactionState.ERROR, "a bug")
        assert figures.failed_ms == world.clock.now_ms()
        counts = world.compactor.counts
        assert (counts.failures, counts.runs) == (1, 0)
        assert world.beside.left_bytes == 0
        assert world.log.stored_ids == before
        assert not await world.environment.tombstones.load()
        world.compactor.close()

    play(scenario())

"""What a run of compaction counts, and how much it asks for at a time."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.compaction import compactor
from magnetar.broker.compaction.compactor import CompactionCounts, aborted_in, offsets_between
from magnetar.broker.compaction.entries import Entries
from magnetar.broker.compaction.plan import Plan, plan
from magnetar.broker.log.model import AbortedRange
from magnetar.wire.compaction import Latest, latest, latest_offsets
from magnetar.wire.kafka.records import read_header

from .world import CompactedLog


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def compacted_before(world: CompactedLog) -> None:
    """A log of several ledgers, the first of which were compacted."""
    for _ in range(6):
        await world.send()
        await world.publish()
    while not await world.compact():
        pass
    for _ in range(6):
        await world.send()
        await world.publish()


def next_plan(world: CompactedLog) -> Plan:
    world.partition.stored_snapshot.note(world.partition.snapshot())
    wanted = plan(world.partition, world.clock.now_ms(), world.partition.recovers_from)
    assert wanted is not None
    return wanted


def test_before_the_first_run_nothing_is_counted_and_nothing_is_left_to_do() -> None:
    async def scenario() -> None:
        assert set(vars(CompactionCounts()).values()) == {0}
        world = CompactedLog(random.Random(1))
        assert world.compactor.left_bytes == 0
        world.compactor.close()

    run(scenario())


def test_time_and_removed_records_are_counted_for_each_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock and the counts are not at zero when the run begins, and the log is rewritten in several groups."""

    async def scenario() -> None:
        world = CompactedLog(random.Random(5), entries_max=2)
        await compacted_before(world)
        world.clock.advance(1000)
        made: list[Entries] = []

        class SeenEntries(Entries):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                made.append(self)

        monkeypatch.setattr(compactor, "Entries", SeenEntries)
        object.__setattr__(world.partition.topic.config, "segment_bytes", 1)
        before = dict(vars(world.compactor.counts))
        wanted = next_plan(world)
        await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        counts = world.compactor.counts
        assert world.log.cleaned == wanted.end
        assert counts.seconds == before["seconds"], "the clock stood still"
        assert counts.removed_records - before["removed_records"] == made[0].removed > 0
        world.compactor.close()

    run(scenario())


def test_a_run_that_fails_is_counted_once_and_not_as_one_that_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = CompactedLog(random.Random(6), entries_max=2)
        await compacted_before(world)
        wanted, runs = next_plan(world), world.compactor.counts.runs

        async def refused(*arguments: object) -> None:
            raise EntryCorrupt("an entry cannot be read")

        monkeypatch.setattr(compactor, "note", refused)
        with pytest.raises(EntryCorrupt):
            await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        assert (world.compactor.counts.failures, world.compactor.counts.runs) == (1, runs)
        assert world.compactor.left_bytes == 0
        world.compactor.close()

    run(scenario())


def test_the_table_of_keys_is_not_larger_than_there_are_offsets_to_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = CompactedLog(random.Random(5), entries_max=2)
        await compacted_before(world)
        wanted = next_plan(world)
        assert 0 < wanted.begin < wanted.end
        asked: list[int] = []

        def seen(keys_max: int, expected_bytes: int) -> Latest:
            asked.append(keys_max)
            return latest_offsets(keys_max, expected_bytes)

        monkeypatch.setattr(compactor, "latest_offsets", seen)
        await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        assert asked == [wanted.end - wanted.begin]
        world.compactor.close()

    run(scenario())


def test_a_log_that_starts_inside_a_batch_is_compacted_to_its_end() -> None:
    """The table of keys was too small for the whole batch: run after run wrote the same ledger again."""

    async def scenario() -> None:
        world = CompactedLog(random.Random(1), entries_max=1)
        await world.send([(b"%d" % number, b"value") for number in range(10)])
        await world.send([(b"9", b"value")])
        await world.send([(b"0", b"value")])
        await world.publish()  # in the next ledger
        await world.log.trim(log_start=5)
        wanted = next_plan(world)
        assert (wanted.begin, wanted.end) == (5, 12)
        await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        assert world.log.cleaned == 12
        world.compactor.close()

    run(scenario())


def test_the_offsets_of_a_run_are_those_of_whole_entries_also_if_the_start_of_the_log_moves_meanwhile() -> (
    None
):
    async def scenario() -> None:
        world = CompactedLog(random.Random(1))
        for _ in range(2):
            await world.send([(b"k", b"v")] * 10)
        counted = [await offsets_between(world.log, begin, 20) for begin in (0, 5, 10, 15)]
        assert counted == [20, 20, 10, 10]
        for start in (15, 20):
            await world.log.trim(log_start=start)
            assert await offsets_between(world.log, 5, 20) == 15
        world.compactor.close()

    run(scenario())


def test_what_stands_for_a_ledger_of_one_record_has_the_epoch_of_that_record() -> None:
    async def scenario() -> None:
        world = CompactedLog(random.Random(4), entries_max=1)
        world.pairs = lambda count, **_: [(b"k", b"v")]  # type: ignore[method-assign]
        for _ in range(3):
            await world.send()
            await world.crash()
        await world.send()
        await world.publish()  # closes the ledger
        object.__setattr__(world.partition.topic.config, "segment_bytes", 1)
        while world.log.cleaned < 4:
            await world.compact()
        headers = [read_header(entry.payload) for entry in (await world.entries())[:3]]
        assert [(one.partition_leader_epoch, one.is_control) for one in headers] == [
            (0, True),
            (1, True),
            (2, True),
        ]
        world.compactor.close()

    run(scenario())


def test_the_loop_has_a_turn_after_the_aborted_transactions_of_each_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = CompactedLog(random.Random(12), entries_max=2)
        for number in range(6):
            await world.send_in_transaction(number)
            await world.end(number, commit=False)
        transactions = world.partition.transactions
        between = transactions.aborted_between
        events: list[str] = []

        def seen(_: object, first: int, end: int) -> list[AbortedRange]:
            events.append("looked")
            asyncio.get_running_loop().call_soon(events.append, "turn")
            return between(first, end)

        ledgers = list(world.log.ledgers)
        assert len(ledgers) > 2
        monkeypatch.setattr(type(transactions), "aborted_between", seen)
        await aborted_in(world.partition, ledgers)
        assert events == ["looked", "turn"] * len(ledgers)
        world.compactor.close()

    run(scenario())

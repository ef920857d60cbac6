"""The process dies, or stops, at every step of a compaction beside the log; what its next start finds is whole."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from magnetar.base.errors import MetadataError, StorageError
from magnetar.broker.compaction import beside, run
from magnetar.broker.compaction.errors import CompactionRunning
from magnetar.broker.log.model import CompactionState
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.producer_recovery import Uncertain
from magnetar.ledger.state import State
from magnetar.storage.store import LedgerId
from magnetar.wire.compaction import latest

from .beside_world import LogBeside
from .test_compaction_steps import Life, MortalLedgerStore, MortalMetadataStore
from .test_compaction_stop import GatedMetadata, SlowMetadata


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


async def filled(life: Life, seed: int = 5, **fields: object) -> LogBeside:
    """A log of several ledgers, a part of which was compacted before."""
    fields.setdefault("store", MortalLedgerStore(life))
    fields.setdefault("metadata", MortalMetadataStore(life))
    world = LogBeside(random.Random(seed), entries_max=3, **fields)
    for _ in range(8):
        await world.send()
        await world.publish()
    await world.send_in_transaction(3)
    await world.end(3, commit=False)
    await world.run()
    for _ in range(6):
        await world.send()
        await world.publish()
    return world


def filled_ledgers(world: LogBeside) -> set[LedgerId]:
    return {number for number, ledger in world.store.ledgers.items() if ledger.entries}


@pytest.mark.parametrize("is_last_made", [False, True])
@pytest.mark.parametrize("steps_of_keys", [20, 1000])
def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing(
    is_last_made: bool, steps_of_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "keys_in", lambda size: steps_of_keys)

    async def die_after(steps: int) -> bool:
        """Whether the process died before the compaction was over."""
        life = Life()
        world = await filled(life)
        former = world.horizon
        life.steps_left, life.is_last_made = steps, is_last_made

        running = asyncio.ensure_future(world.run())
        over = asyncio.ensure_future(life.over.wait())
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        is_over = running.done() and life.steps_left >= 0
        running.cancel()
        for task in [*world.beside._tasks, *world.environment.tasks]:
            task.cancel()  # cleaning up waits for a disk that does not write any more
        await world.settle()
        life.steps_left = 1 << 30
        world.store.life = Life()
        world.store.life.steps_left = 0  # the dead process writes no more
        await world.crash()
        assert world.horizon >= former
        await world.check()
        assert await world.run() is CompactionState.SUCCESS
        assert world.horizon == world.log.high_watermark
        await world.check()
        world.compactor.close()
        return not is_over

    steps = 0
    while asyncio.run(die_after(steps)):
        steps += 1
    assert steps > 5


def test_a_stop_while_the_ledger_is_committed_loses_nothing() -> None:
    async def scenario() -> None:
        metadata = SlowMetadata()
        world = await filled(Life(), metadata=metadata)
        metadata.is_armed = True
        world.beside.start(world.partition)
        await metadata.begun.wait()
        closing = asyncio.ensure_future(world.beside.close())
        await world.settle()
        metadata.may_go.set()
        await closing
        await world.settle()
        assert world.horizon == world.log.high_watermark
        assert filled_ledgers(world) <= set(world.log.stored_ids) <= set(world.store.ledgers)
        await world.crash()
        assert world.log.problem is None
        await world.check()
        world.compactor.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [GatedMetadata, SlowMetadata])
def test_a_commit_that_fails_is_said_and_leaves_what_there_was(kind: type[GatedMetadata]) -> None:
    async def scenario() -> None:
        metadata = kind()
        world = await filled(Life(), metadata=metadata)
        before, ledgers = world.log.stored_ids, filled_ledgers(world)
        metadata.is_armed = True
        running = world.beside.start(world.partition)
        await metadata.begun.wait()
        metadata.is_armed = False
        metadata.fail_next = 1
        metadata.may_go.set()
        await running
        await world.settle()
        figures = world.partition.compaction
        assert figures.state is CompactionState.ERROR
        assert figures.error
        assert figures.failed_ms == world.clock.now_ms()
        assert world.compactor.counts.failures == 1
        assert (world.log.stored_ids, filled_ledgers(world)) == (before, ledgers)
        assert not await world.environment.tombstones.load()
        await world.check()
        assert await world.run() is CompactionState.SUCCESS
        assert figures.error == ""
        await world.check()
        world.compactor.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [StorageError("the disk is full"), asyncio.CancelledError()])
def test_a_run_that_ends_early_leaves_no_ledger(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world = await filled(Life())
        before = world.log.stored_ids

        async def broken(*arguments: object) -> None:
            await run.rewrite(*arguments)  # type: ignore[arg-type]
            raise error

        monkeypatch.setattr(beside, "rewrite", broken)
        assert await world.run() is CompactionState.ERROR
        assert world.log.stored_ids == before
        assert filled_ledgers(world) <= set(before)
        assert not await world.environment.tombstones.load()
        assert world.beside.left_bytes == 0
        world.compactor.close()

    asyncio.run(scenario())


def test_a_log_that_is_deleted_meanwhile_takes_what_is_left_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = await filled(Life())

        async def erasing(*arguments: object) -> None:
            await run.rewrite(*arguments)  # type: ignore[arg-type]
            if world.log.state is not State.CLOSED:
                await world.log.erase()

        monkeypatch.setattr(beside, "rewrite", erasing)
        assert await world.run() is CompactionState.ERROR
        assert filled_ledgers(world) == set()
        world.compactor.close()

    asyncio.run(scenario())


def test_the_subscription_moves_only_when_the_ledger_is_in_its_place() -> None:
    async def scenario() -> None:
        metadata = GatedMetadata()
        world = await filled(Life(), metadata=metadata)
        held = world.held
        metadata.is_armed = True
        running = world.beside.start(world.partition)
        await metadata.begun.wait()
        assert world.held == held < world.log.high_watermark
        metadata.may_go.set()
        metadata.is_armed = False
        await running
        assert world.held == world.log.high_watermark
        world.compactor.close()

    asyncio.run(scenario())


def test_one_run_at_a_time_and_another_is_refused_for_the_same_log() -> None:
    async def scenario() -> None:
        world = await filled(Life())
        running = world.beside.start(world.partition)
        with pytest.raises(CompactionRunning):
            world.beside.start(world.partition)
        await running
        assert await world.run() is CompactionState.SUCCESS, "nothing new, and that is no error"
        assert world.partition.compaction.removed_messages == 0
        world.compactor.close()

    asyncio.run(scenario())


def test_a_snapshot_of_producers_leaves_the_figures_alone() -> None:
    """`compaction-status` answered NOT_RUN after one, and a second run could begin beside the first."""

    async def scenario() -> None:
        world = await filled(Life())
        running = world.beside.start(world.partition)
        world.partition.snapshot()
        with pytest.raises(CompactionRunning):
            world.beside.start(world.partition)
        await running
        world.partition.snapshot()
        assert world.partition.compaction.state is CompactionState.SUCCESS
        world.compactor.close()

    asyncio.run(scenario())


def test_figures_say_what_a_run_has_done() -> None:
    async def scenario() -> None:
        world = await filled(Life())
        counts = world.compactor.counts
        before = dict(vars(counts))
        world.clock.advance(7)
        was = len(world.expected())
        assert await world.run() is CompactionState.SUCCESS
        figures = world.partition.compaction
        assert figures.removed_messages == was - len(world.expected())
        assert figures.succeeded_ms == world.clock.now_ms()
        assert (figures.failed_ms, figures.error) == (0, "")
        assert counts.runs == before["runs"] + 1
        assert counts.removed_records == before["removed_records"] + figures.removed_messages
        assert counts.read_bytes > before["read_bytes"]
        assert counts.written_bytes > before["written_bytes"]
        assert counts.won_bytes == before["won_bytes"]
        assert world.beside.not_compacted_bytes(world.partition) == 0
        world.compactor.close()

    asyncio.run(scenario())


def test_a_log_whose_transactions_are_not_known_is_not_compacted() -> None:
    async def scenario() -> None:
        world = await filled(Life())
        world.partition.uncertain = Uncertain(world.horizon, world.horizon, "it is being read")
        assert await world.run() is CompactionState.ERROR
        assert "being read" in world.partition.compaction.error
        world.compactor.close()

    asyncio.run(scenario())


def test_what_nobody_can_hold_is_not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = await filled(Life())

        async def refused(name: str, positions: Mapping[Partition, int]) -> None:
            raise MetadataError("not now")

        monkeypatch.setattr(world.beside, "_hold", refused)
        before = world.log.stored_ids
        assert await world.run() is CompactionState.ERROR
        assert world.log.stored_ids == before
        world.compactor.close()

    asyncio.run(scenario())

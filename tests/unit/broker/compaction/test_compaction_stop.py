"""A server that stops while a log is compacted, or cannot commit: what its next start finds is whole."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from magnetar.base.errors import MetadataError, MetadataLost, StorageError
from magnetar.broker.compaction import compactor, run
from magnetar.broker.compaction.plan import plan
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.state import State
from magnetar.metadata.store import CommitStep
from magnetar.storage.store import LedgerId
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.compaction import latest

from .test_compaction_steps import check_whole
from .world import CompactedLog


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


class GatedMetadata(MemoryMetadataStore):
    """Once it is `armed`, the commit of a chain waits, when it has `begun`, until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.begun = asyncio.Event()
        self.may_go = asyncio.Event()

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        if self.is_armed and any(one.path.startswith(METADATA_ROOT) for one in operations):
            self.begun.set()
            await self.may_go.wait()
            await self.commit_chain(operations)
        else:
            await super().commit(operations)

    async def commit_chain(self, operations: Sequence[CommitStep]) -> None:
        await super().commit(operations)


class SlowMetadata(GatedMetadata):
    """A commit goes on when the coroutine that asked for it is cancelled, as the real store's do."""

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        await asyncio.shield(asyncio.ensure_future(super().commit(operations)))


async def world_to_compact(metadata: MemoryMetadataStore) -> CompactedLog:
    world = CompactedLog(random.Random(3), metadata=metadata, entries_max=3)
    for _ in range(12):
        await world.send()
        await world.publish()
    world.snapshot = world.partition.snapshot()
    world.partition.stored_snapshot.note(world.snapshot)
    return world


async def begin_swap(world: CompactedLog) -> "asyncio.Future[None]":
    """A run that waits for the commit which puts its first ledger into the chain."""
    metadata = world.metadata
    assert isinstance(metadata, GatedMetadata)
    wanted = plan(world.partition, world.clock.now_ms(), world.partition.recovers_from)
    assert wanted is not None
    metadata.is_armed = True
    running = asyncio.ensure_future(world.compactor.run(world.partition, wanted, world.clock.now_ms()))
    begun = asyncio.ensure_future(metadata.begun.wait())
    await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
    assert not running.done(), running
    return running


def let_go(world: CompactedLog) -> None:
    assert isinstance(world.metadata, GatedMetadata)
    world.metadata.may_go.set()


def filled_ledgers(world: CompactedLog) -> set[LedgerId]:
    return {number for number, ledger in world.store.ledgers.items() if ledger.entries}


def test_a_stop_while_the_new_ledger_is_committed_loses_nothing() -> None:
    async def scenario() -> None:
        world = await world_to_compact(SlowMetadata())
        running = await begin_swap(world)
        running.cancel()
        await world.settle()
        let_go(world)
        with pytest.raises(asyncio.CancelledError):
            await running
        await world.settle()
        assert filled_ledgers(world) <= set(world.log.stored_ids) <= set(world.store.ledgers)
        assert world.log.rewrite_count == 1
        await world.crash()
        assert world.log.problem is None
        await check_whole(world)
        world.compactor.close()

    asyncio.run(scenario())


def test_a_stop_while_a_commit_fails_leaves_no_ledger() -> None:
    async def scenario() -> None:
        world = await world_to_compact(SlowMetadata())
        before, filled = world.log.stored_ids, filled_ledgers(world)
        running = await begin_swap(world)
        running.cancel()
        await world.settle()
        world.metadata.fail_next = 1
        let_go(world)
        with pytest.raises(asyncio.CancelledError):
            await running
        await world.settle()
        assert (world.log.stored_ids, filled_ledgers(world)) == (before, filled)
        assert not await world.environment.tombstones.load()
        world.compactor.close()

    asyncio.run(scenario())


def test_a_commit_that_fails_leaves_no_ledger_and_the_next_run_goes_on() -> None:
    async def scenario() -> None:
        world = await world_to_compact(GatedMetadata())
        before, filled = world.log.stored_ids, filled_ledgers(world)
        running = await begin_swap(world)
        world.metadata.fail_next = 1
        let_go(world)
        with pytest.raises(MetadataError):
            await running
        await world.settle()
        assert (world.log.stored_ids, filled_ledgers(world)) == (before, filled)
        while not await world.compact():
            pass
        await world.check()
        world.compactor.close()

    asyncio.run(scenario())


class LosingMetadata(GatedMetadata):
    """Its disk fails behind a commit that was written, or in front of it; nothing is taken any more."""

    def __init__(self, *, is_written: bool) -> None:
        super().__init__()
        self.is_written = is_written
        self.is_lost = False

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        if self.is_lost:
            raise MetadataError("metadata cannot be written")
        await super().commit(operations)

    async def commit_chain(self, operations: Sequence[CommitStep]) -> None:
        if self.is_written:
            await super().commit_chain(operations)
        self.is_lost = True
        raise MetadataLost("metadata cannot be written")


@pytest.mark.parametrize("is_written", [False, True])
def test_where_it_is_not_known_whether_a_commit_was_made_both_ledgers_stay(is_written: bool) -> None:
    async def scenario() -> None:
        metadata = LosingMetadata(is_written=is_written)
        world = await world_to_compact(metadata)
        before = filled_ledgers(world)
        running = await begin_swap(world)
        let_go(world)
        with pytest.raises(MetadataLost):
            await running
        await world.settle()
        assert before < filled_ledgers(world)
        metadata.is_lost = metadata.is_armed = False  # the next start
        await world.crash()
        assert world.log.problem is None
        await check_whole(world)
        world.compactor.close()

    asyncio.run(scenario())


def test_a_topic_whose_policy_has_changed_meanwhile_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = await world_to_compact(MemoryMetadataStore())
        before, filled = world.log.stored_ids, filled_ledgers(world)
        wanted = plan(world.partition, world.clock.now_ms(), world.partition.recovers_from)
        assert wanted is not None

        async def changed(*arguments: object) -> None:
            await run.rewrite(*arguments)  # type: ignore[arg-type]
            object.__setattr__(world.partition.topic.config, "compact", False)

        monkeypatch.setattr(compactor, "rewrite", changed)
        await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        await world.settle()
        assert (world.log.stored_ids, filled_ledgers(world)) == (before, filled)
        world.compactor.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("state", [State.CLOSED, State.REFUSED])
def test_a_log_that_is_closed_or_refused_is_not_changed(state: State) -> None:
    async def scenario() -> None:
        world = await world_to_compact(MemoryMetadataStore())
        log = world.partition.log
        before = await world.metadata.scan(METADATA_ROOT)
        log.state = state
        with pytest.raises(StorageError, match="not to be changed any more"):
            await log.replace(list(log.ledgers)[:1], None, 3)
        assert log.cleaned == 0
        assert await world.metadata.scan(METADATA_ROOT) == before

    asyncio.run(scenario())

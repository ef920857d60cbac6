"""The disk is full from any step of a compaction on, for a while: the log stays whole, and the next runs get on."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from magnetar.base.errors import BrokerError, MetadataError, StorageFull
from magnetar.broker.compaction.plan import plan
from magnetar.metadata.store import CommitStep
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.compaction import latest

from .test_compaction_steps import check_whole
from .world import CompactedLog

FULL = "no space left on device"
RETRY_S = 10.0


class Room:
    """So many writes succeed until the disk is full."""

    def __init__(self) -> None:
        self.steps_left = 1 << 30
        self.refused = 0

    def take(self) -> bool:
        self.steps_left -= 1
        self.refused += self.steps_left < 0
        return self.steps_left >= 0


class FullLedgerStore(MemoryLedgerStore):
    def __init__(self, room: Room) -> None:
        super().__init__()
        self.room = room

    def write(self, count: int | None = None) -> None:
        due, self._queue = self._queue, []
        for one in due:
            if self.room.take():
                one.apply()
                one.report(None)
            else:
                if one.ledger is not None:
                    one.ledger.failed = True
                    one.ledger.appended = len(one.ledger.entries)
                one.report(StorageFull(FULL))
        self._wake()


class FullMetadataStore(MemoryMetadataStore):
    def __init__(self, room: Room) -> None:
        super().__init__()
        self.room = room

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        if not self.room.take():
            raise MetadataError(FULL)
        await super().commit(operations)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


async def filled(room: Room, seed: int) -> CompactedLog:
    world = CompactedLog(
        random.Random(seed),
        store=FullLedgerStore(room),
        metadata=FullMetadataStore(room),
        entries_max=3,
        config={"segment.bytes": "1048576"},
    )
    for _ in range(12):
        await world.send()
        await world.publish()
    await world.send_in_transaction(3)
    await world.end(3, commit=False)
    return world


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_disk_that_is_full_at_any_step_loses_nothing_and_leaves_nothing(
    is_killed: bool, groups: int
) -> None:
    """`is_killed`: the server is, too, while the disk is full."""

    async def full_after(steps: int) -> bool:
        """Whether anything was refused."""
        room = Room()
        world = await filled(room, seed=5)
        world.log.limits.size_bytes_max = 1 << 30
        world.snapshot = world.partition.snapshot()
        world.partition.stored_snapshot.note(world.snapshot)
        wanted = plan(world.partition, world.clock.now_ms(), world.partition.recovers_from)
        assert wanted is not None
        size = sum(info.size_bytes for info in wanted.ledgers)
        object.__setattr__(
            world.partition.topic.config, "segment_bytes", size if groups == 1 else size // groups
        )
        room.steps_left = steps
        refused: BrokerError | None = None
        try:
            await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        except BrokerError as error:
            refused = error
        await world.settle()
        assert (refused is None) or FULL in str(refused)
        was_full = room.refused > 0
        for entry in await world.entries():  # readers meet nothing of it
            assert entry.payload
        room.steps_left = 1 << 30
        if is_killed:
            await world.crash()
        else:
            world.clock.advance(RETRY_S)  # what could not be deleted is tried again
            await world.settle()
        await check_whole(world)
        while await world.compact() or world.log.cleaned < wanted.end:
            pass
        world.compacted(wanted.begin, world.log.cleaned, world.clock.now_ms())
        await world.check()
        world.compactor.close()
        return was_full

    steps = 0
    while asyncio.run(full_after(steps)):
        steps += 1
    assert steps > 4 + 3 * groups

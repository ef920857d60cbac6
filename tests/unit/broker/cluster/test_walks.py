"""Whole brokers that come, go, lose their sessions and hand bundles over, while clients append wherever they may.

One walk follows from its seed.  At its end each log has what was acknowledged, where it was, and nothing twice.
"""

from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

import pytest

from magnetar.base.errors import BrokerError
from magnetar.broker.cluster.bundles import position_of

from .world import NAMESPACE, NOW_MS, Cluster, Member, batch, cluster, run

T: Final = "persistent://public/default/t"
PARTITIONS: Final = 6
STEPS: Final = 150
BROKERS_MAX: Final = 8  # of one walk, those that have gone included


class Walk:
    """See the module's text."""

    def __init__(self, world: Cluster, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.sent = 0
        self.offsets: dict[int, int] = {}  # of each batch that a broker took
        self.acknowledged: list[set[int]] = [set() for _ in range(PARTITIONS)]

    async def step(self) -> None:
        chance = self.random.random()
        if chance < 0.6:
            self.append(self.random.randrange(PARTITIONS))
        elif chance < 0.8:
            await self.hand_over(self.random.randrange(PARTITIONS))
        elif chance < 0.84 and len(self.world.running) > 1:
            await self.lose(self.random.choice(self.world.running))
        elif chance < 0.88 and len(self.world.brokers) < BROKERS_MAX:
            self.world.metadata.fail_next = 0
            await self.world.begin()
        elif chance < 0.90:
            self.world.metadata.fail_next = 2
        if self.random.random() < 0.5:
            await self.world.turn()

    def append(self, index: int) -> None:
        """A client sends to any broker that takes it, also to one that has lost the bundle and has not heard of it."""
        for member in self.random.sample(self.world.brokers, len(self.world.brokers)):
            with suppress(BrokerError):
                partition = member.topic(T).partition(index)
                done = partial(self._done, index, self.sent)
                self.offsets[self.sent] = partition.append(batch(self.sent), NOW_MS, done).base_offset
                self.sent += 1
                return

    def _done(self, index: int, number: int, error: Exception | None) -> None:
        if error is None:
            self.acknowledged[index].add(number)

    async def hand_over(self, index: int) -> None:
        asked, taker = (self.random.choice(self.world.running) for _ in range(2))
        record = asked.seat.view.find(NAMESPACE, position_of(f"{T}-partition-{index}"))
        if record is not None:
            with suppress(BrokerError):  # it moves already
                await asked.membership.ask(record, taker.name)

    async def lose(self, member: Member) -> None:
        """The session of a broker ends, and it may not hear of that."""
        self.world.metadata.fail_next = 0
        member.session.is_deaf = self.random.random() < 0.5
        await self.world.end_session(member)

    async def end(self) -> None:
        self.world.metadata.fail_next = 0
        for member in self.world.brokers:
            if member.session.is_deaf:
                member.membership.end()
                await self.world.end_session(member)  # which it may have begun since
        await self.world.settle()


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_or_moved_whatever_brokers_do(seed: int) -> None:
    @run
    async def scenario() -> None:
        async with cluster(3) as world:
            await world.brokers[0].make(T, PARTITIONS)
            walk = Walk(world, seed)
            for _ in range(STEPS):
                await walk.step()
            await walk.end()
            assert sum(map(len, walk.acknowledged)) > STEPS // 4
            for index in range(PARTITIONS):
                await check(walk, index)

    scenario()


async def check(walk: Walk, index: int) -> None:
    log = walk.world.owner(f"{T}-partition-{index}").topic(T).partition(index).log
    found: dict[int, int] = {}  # the offset of each number
    offset = 0
    while offset < log.high_watermark:
        for entry in await log.read(offset, 1 << 20):
            assert entry.base_offset == offset, "offsets are dense"
            number = int(bytes(entry.payload).rpartition(b"v")[2][:-1])  # before the count of headers
            assert number not in found
            found[number] = offset
            offset = entry.last_offset + 1
    for number in walk.acknowledged[index]:
        assert found[number] == walk.offsets[number]
    assert list(found) == sorted(found)

"""Brokers report what they have to do, and the leader balances by it."""

from magnetar.broker.cluster.ownership.records import LOADS, read_loads
from magnetar.broker.upkeep.bundle_loads import INTERVAL_S, UNIT_BYTES_PER_S
from magnetar.metadata.store import Versioned

from .world import NAMESPACE, Cluster, append, cluster, run

T = "persistent://public/default/t"
P0 = f"{T}-partition-0"


async def work(world: Cluster, units: float, intervals: int = 1) -> None:
    """Let the owner of a partition take so much while time passes."""
    owner = world.owner(P0)
    partition = owner.topic(T).partition(0)
    for _ in range(intervals):
        partition.log.appended_bytes += round(units * UNIT_BYTES_PER_S * INTERVAL_S)
        for _ in range(20):
            world.clock.advance(INTERVAL_S / 20)
            await world.turn()


async def stored(world: Cluster, name: str) -> Versioned | None:
    return await world.metadata.get(LOADS + name)


@run
async def test_every_broker_hears_the_load_of_each_bundle() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner = world.owner(P0)
        await append(owner.topic(T).partition(0))
        await work(world, units=8.0, intervals=6)
        found = await stored(world, owner.name)
        assert found is not None
        loads = read_loads(found)
        busy = world.record(P0).bundle
        assert 6.0 < loads.pop(busy) < 9.0
        assert set(loads.values()) == {0.0}
        for one in world.brokers:
            assert one.seat.view.loads.keys() == one.seat.view.records.keys()
            assert one.seat.view.loads[busy] > 6.0


@run
async def test_what_does_not_change_is_not_reported_again() -> None:
    async with cluster(1) as world:
        await work_nothing(world)
        first = await stored(world, "b1")
        assert first is not None
        await work_nothing(world)
        assert await stored(world, "b1") == first


async def work_nothing(world: Cluster) -> None:
    for _ in range(40):
        world.clock.advance(INTERVAL_S / 20)
        await world.turn()


@run
async def test_a_bundle_that_moves_brings_its_load_along() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, other = world.owner(P0), world.other(P0)
        await append(owner.topic(T).partition(0))
        await work(world, units=8.0, intervals=6)
        await world.hand_over(P0, other)
        busy = world.record(P0).bundle
        assert owner.seat.view.loads[busy] > 6.0, "before the next owner has measured anything"
        await work(world, units=8.0)
        found = await stored(world, other.name)
        assert found is not None
        assert read_loads(found)[busy] > 5.0
        assert busy not in read_loads(await stored(world, owner.name) or found)


@run
async def test_a_busy_bundle_counts_as_several() -> None:
    world = Cluster()
    first = await world.join()
    await first.make(T)
    await append(first.topic(T).partition(0))
    await work(world, units=12.0, intervals=4)
    busy = world.record(P0).bundle
    assert first.seat.view.loads[busy] > 6.0
    second = await world.join()
    await world.until(lambda: len(second.seat.served) == len(first.seat.view.records) - 1)
    assert list(first.seat.served) == [busy]
    for member in (second, first):
        await world.run(member.stop())
    assert busy.namespace == NAMESPACE

"""Messages that are to be delivered later."""

from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.ticker import LOOK_S_MAX

from .driver import World, scenario, settle

SHARED = SubscriptionType.SHARED


@scenario
async def test_delayed_messages_come_when_their_time_has_come_to_shared_consumers(world: World) -> None:
    at_ms = world.clock.now_ms() + 10_000
    await world.publish(1, deliver_at_time=at_ms)
    await world.publish(1)
    client = await world.sub(kind=SHARED)
    other = await world.sub("other")
    assert client.entries == [1]
    assert other.entries == [0, 1], "only Shared and Key_Shared wait"
    await world.advance(8)
    assert client.entries == [1]
    await world.advance(3)
    assert client.entries == [1, 0]


@scenario
async def test_delayed_messages_come_soon_after_the_clock_has_jumped_to_their_time(world: World) -> None:
    # A machine that slept for eight hours: its timers did not, and the message came eight hours late.
    await world.publish(1, deliver_at_time=world.clock.now_ms() + 3_600_000)
    client = await world.sub(kind=SHARED)
    world.clock.step(3_600)
    await world.advance(LOOK_S_MAX + 1)
    assert client.entries == [0]


@scenario
async def test_very_many_messages_that_are_due_together_all_come(world: World) -> None:
    await world.publish(2500, deliver_at_time=world.clock.now_ms() + 5_000)
    client = await world.sub(kind=SHARED, permits=3000)
    for _ in range(30):
        await settle()
    assert client.entries == []
    for _ in range(8):
        await world.advance(1)
    assert client.entries == list(range(2500))

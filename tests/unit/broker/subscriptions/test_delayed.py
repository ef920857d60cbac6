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


@scenario
async def test_what_is_due_waits_for_permits_and_comes_before_what_is_new(world: World) -> None:
    await world.publish(1200, deliver_at_time=world.clock.now_ms() + 5_000)
    client = await world.sub(kind=SHARED, permits=1)
    for _ in range(30):
        await settle()
    await world.advance(6)
    assert client.taken() == [0]
    await world.publish(1)
    client.flow(3000)
    for _ in range(30):
        await settle()
    assert client.entries == list(range(1, 1201))


@scenario
async def test_a_delayed_message_that_is_acknowledged_meanwhile_does_not_come(world: World) -> None:
    await world.publish(4, deliver_at_time=world.clock.now_ms() + 5_000)
    client = await world.sub(kind=SHARED)
    subscription = world.subscription()
    assert subscription is not None
    dispatcher = subscription.dispatcher
    assert dispatcher is not None
    subscription.advance([(1, 2)])
    assert dispatcher.delayed_count == 3
    world.clock.advance(5)  # they are being read again
    subscription.advance([(2, 3)])
    await settle()
    assert client.entries == [0, 3]
    assert dispatcher.delayed_count == 0


@scenario
async def test_delayed_messages_that_retention_has_taken_hold_nothing_up(world: World) -> None:
    await world.publish(4, deliver_at_time=world.clock.now_ms() + 5_000)
    client = await world.sub(kind=SHARED)
    await world.partition.log.trim(log_start=2)
    await world.advance(6)
    assert client.entries == [2, 3]
    assert world.cursor().mark_delete == 2


@scenario
async def test_the_rest_of_a_delayed_batch_comes(world: World) -> None:
    await world.publish(1, messages=3, deliver_at_time=world.clock.now_ms() + 5_000)
    client = await world.sub(kind=SHARED)
    subscription = world.subscription()
    assert subscription is not None
    assert subscription.dispatcher is not None
    subscription.advance([(0, 1)])
    assert subscription.dispatcher.delayed_count == 2
    await world.advance(6)
    assert client.entries == [0]
    assert client.member.state.unacked_messages == 2


@scenario
async def test_delayed_batches_that_are_gone_when_they_are_read_again_are_due_no_more(world: World) -> None:
    await world.publish(4, messages=3, deliver_at_time=world.clock.now_ms() + 5_000)
    client = await world.sub(kind=SHARED)
    subscription = world.subscription()
    assert subscription is not None
    assert subscription.dispatcher is not None
    world.clock.advance(5)
    bases = subscription.dispatcher.due(2)
    world.partition.log.log_start = 6  # after the reader was told what is due
    entries, gone = await subscription._reader._found_at(bases)
    assert (entries, gone) == ([], [(0, 6), (3, 6)])
    subscription._reader._offers.offer_due([], gone)
    assert subscription.dispatcher.due(10) == [6, 9]
    assert world.cursor().mark_delete == 6
    await settle()
    assert client.entries == [2, 3]

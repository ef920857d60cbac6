"""Who may subscribe, and to what: types, names, properties, and many at once."""

import asyncio

import pytest

from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.errors import (
    SubscriptionBusy,
    SubscriptionNotAllowed,
    SubscriptionNotFound,
)
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.request import NAME_BYTES_MAX, PROPERTIES_MAX
from magnetar.ledger.cursor import PROPERTY_BYTES_MAX

from .driver import World, scenario, settle

SHARED = SubscriptionType.SHARED


@scenario
async def test_a_second_exclusive_consumer_is_refused_and_the_first_goes_on(world: World) -> None:
    await world.publish(1)
    client = await world.sub()
    with pytest.raises(ConsumerBusy):
        await world.sub(consumer="second")
    await world.publish(1)
    assert client.entries == [0, 1]


@scenario
async def test_the_type_is_that_of_the_connected_consumers(world: World) -> None:
    client = await world.sub(kind=SHARED)
    with pytest.raises(SubscriptionBusy, match="Subscription is of different type"):
        await world.sub()
    await client.leave()
    await world.sub()


@scenario
async def test_read_compacted_is_for_exclusive_and_failover(world: World) -> None:
    with pytest.raises(SubscriptionNotAllowed):
        await world.sub(kind=SHARED, spec={"reads_compacted": True})
    await world.sub(spec={"reads_compacted": True})


@scenario
async def test_a_subscription_that_may_not_be_made_is_not_found(world: World) -> None:
    with pytest.raises(SubscriptionNotFound):
        await world.sub(may_create=False)
    assert world.broker.subscriptions.names(world.partition) == []
    client = await world.sub()
    await client.leave()
    await world.sub(may_create=False)


@scenario
async def test_names_and_properties_that_cannot_be_kept_are_refused(world: World) -> None:
    registry = world.broker.subscriptions
    for name, properties in (
        ("n" * (NAME_BYTES_MAX + 1), {}),
        ("s", {"k" * PROPERTY_BYTES_MAX: ""}),
        ("s", {"k": "v" * (PROPERTY_BYTES_MAX + 1)}),
        ("s", {str(number): "" for number in range(PROPERTIES_MAX + 1)}),
    ):
        with pytest.raises(SubscriptionNotAllowed):
            await world.sub(name, properties=properties)
        with pytest.raises(SubscriptionNotAllowed):
            await registry.create(world.partition, name, 0, properties)
    assert registry.names(world.partition) == []
    full = {str(number): "v" * 900 for number in range(PROPERTIES_MAX)}
    await world.sub("n" * NAME_BYTES_MAX, properties=full)
    assert registry.properties(world.cursor("n" * NAME_BYTES_MAX)) == full


@scenario
async def test_many_that_subscribe_at_once_get_one_subscription(world: World) -> None:
    world.metadata.hold()
    joining = [asyncio.ensure_future(world.sub(kind=SHARED, consumer=str(n))) for n in range(5)]
    await settle()
    world.metadata.release()
    clients = await asyncio.gather(*joining)
    assert len({client.member.subscription for client in clients}) == 1
    assert len(world.broker.subscriptions.of(world.partition)) == 1


@scenario
async def test_a_subscription_that_could_not_be_stored_is_made_by_the_next_try(world: World) -> None:
    world.metadata.fail_next = 2
    with pytest.raises(Exception, match="cannot write now"):
        await world.sub()
    world.metadata.fail_next = 0
    await world.sub()

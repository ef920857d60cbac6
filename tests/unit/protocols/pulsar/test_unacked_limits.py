"""How many messages a consumer, and all of a subscription, may leave unacknowledged."""

from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.testing.pulsar import PulsarDoor
from tests.unit.protocols.pulsar.pulsar_consuming import (
    EXCLUSIVE,
    KEY_SHARED,
    SHARED,
    WithDoor,
    acknowledgement,
    entries,
    messages,
    one,
    publish,
    quiet,
    subscribe,
)
from tests.unit.protocols.pulsar.pulsar_producing import partition_of, set_policies

CONSUMER = "max_unacked_messages_per_consumer"
SUBSCRIPTION = "max_unacked_messages_per_subscription"


def blocked(door: PulsarDoor) -> tuple[bool, bool]:
    """Whether the only consumer is, and whether its subscription is."""
    (found,) = door.broker.subscriptions.of(partition_of(door))
    assert found.dispatcher is not None
    return found.consumers[0].state.blocked, found.dispatcher.blocked


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize(("policy", "seen"), [(CONSUMER, (True, False)), (SUBSCRIPTION, (False, True))])
def test_delivery_stops_at_the_limit_and_goes_on_below_half_of_it(
    with_door: WithDoor, kind: int, policy: str, seen: tuple[bool, bool]
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **{policy: 4})
        client = await door.connected()
        await publish(client, 9)
        await subscribe(client, subType=kind)
        found = await messages(client, 4)
        await quiet(client)
        assert blocked(door) == seen
        client.say(acknowledgement(one(found[0])))
        await quiet(client)
        client.say(acknowledgement(one(found[1])))
        assert entries(await messages(client, 2)) == [4, 5]
        await quiet(client)
        assert blocked(door) == seen

    with_door(scenario)


def test_a_consumer_that_has_a_subscription_for_itself_is_not_limited(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **{CONSUMER: 2, SUBSCRIPTION: 2})
        client = await door.connected()
        await publish(client, 9)
        await subscribe(client, subType=EXCLUSIVE)
        await messages(client, 9)

    with_door(scenario)


@pytest.mark.parametrize("policy", [CONSUMER, SUBSCRIPTION])
def test_a_change_holds_for_consumers_that_are_there(with_door: WithDoor, policy: str) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **{policy: 2})
        client = await door.connected()
        await publish(client, 9)
        await subscribe(client, subType=SHARED)
        await messages(client, 2)
        await quiet(client)
        await door.broker.namespaces.change_topic(TopicName.parse("t"), lambda _: {policy: 5})
        await messages(client, 3)
        await quiet(client)
        await door.broker.namespaces.change_topic(TopicName.parse("t"), lambda _: {policy: 0})
        await messages(client, 4)

    with_door(scenario)


def test_topics_that_store_nothing_have_no_limit(with_door: WithDoor) -> None:
    topic = "non-persistent://public/default/t"

    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **{CONSUMER: 2, SUBSCRIPTION: 2})
        client = await door.connected()
        await subscribe(client, topic=topic, subType=SHARED)
        other: Any = await door.connected()
        await publish(other, 5, topic=topic)
        await messages(client, 5)

    with_door(scenario)

"""The types of subscriptions that a namespace or a topic allows."""

import pytest

from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import ServerError
from tests.unit.protocols.pulsar.pulsar_consuming import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    WithDoor,
    refused,
    subscribe,
)
from tests.unit.protocols.pulsar.pulsar_producing import set_policies

NAMES = {EXCLUSIVE: "Exclusive", SHARED: "Shared", FAILOVER: "Failover", KEY_SHARED: "Key_Shared"}


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("kind", NAMES)
def test_only_the_types_that_are_enabled_can_be_subscribed_with(
    with_door: WithDoor, domain: str, kind: int
) -> None:
    topic, others = f"{domain}://public/default/t", NAMES.keys() - {kind}

    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, subscription_types_enabled=[NAMES[kind]])
        client = await door.connected()
        for other in sorted(others):
            text = f"Topic[{{{topic}}}] doesn't support {NAMES[other]} sub type!"
            assert await refused(client, topic=topic, subType=other) == (ServerError.NotAllowedError, text)
        await subscribe(client, topic=topic, subType=kind)

    with_door(scenario)


def test_an_empty_list_allows_all_of_them(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, subscription_types_enabled=[])
        client = await door.connected()
        for kind, name in NAMES.items():
            await subscribe(client, 1 + kind, subType=kind, subscription=name)

    with_door(scenario)

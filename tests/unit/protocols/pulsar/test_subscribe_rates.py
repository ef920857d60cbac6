"""A subscribe rate refuses consumers that come too often, with Pulsar's error."""

from typing import Any

from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandCloseConsumer, ServerError
from tests.unit.protocols.pulsar.pulsar_consuming import SHARED, WithDoor, refused, subscribe
from tests.unit.protocols.pulsar.pulsar_producing import set_policies

REFUSAL = (ServerError.NotAllowedError, "Subscribe limited by subscribe rate limit per consumer.")
ONE: dict[str, Any] = {"subType": SHARED, "consumer_name": "one"}


def rate(times: int, period_s: int = 30) -> dict[str, Any]:
    return {
        "clusterSubscribeRate": {
            "subscribeThrottlingRatePerConsumer": times,
            "ratePeriodInSecond": period_s,
        }
    }


async def again(client: PulsarClient, **fields: Any) -> None:
    await subscribe(client, consumer_id=9, **{**ONE, **fields})
    await client.ask(CommandCloseConsumer(consumer_id=9, request_id=1), BaseCommand.SUCCESS)


def test_a_consumer_that_comes_too_often_is_refused_until_the_period_is_over(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(2))
        client = await door.connected()
        await again(client)
        await again(client)
        assert await refused(client, **ONE) == REFUSAL
        elsewhere = await door.connected()
        assert await refused(elsewhere, **ONE) == REFUSAL, "it is known by its host, not by its connection"
        door.clock.advance(29)
        assert await refused(client, **ONE) == REFUSAL
        door.clock.advance(1)
        await again(client)

    with_door(scenario)


def test_others_are_not_counted_with_it(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(1))
        client = await door.connected()
        await again(client)
        await again(client, consumer_name="two")
        await again(client, topic="persistent://public/default/other")
        await again(client, topic="non-persistent://public/default/t")
        await again(client, topic="non-persistent://public/default/t")
        await subscribe(client, consumer_id=8, **ONE)
        assert await refused(client, **ONE) == REFUSAL

    with_door(scenario)


def test_a_rate_is_raised_and_lifted(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(1))
        client = await door.connected()
        await again(client)
        await set_policies(door, message_ttl_in_seconds=60)
        assert await refused(client, **ONE) == REFUSAL, "the same rate forgets nothing"
        await set_policies(door, **rate(3))
        for _ in range(3):
            await again(client)
        assert await refused(client, **ONE) == REFUSAL
        await set_policies(door, **rate(-1))
        for _ in range(10):
            await again(client)

    with_door(scenario)

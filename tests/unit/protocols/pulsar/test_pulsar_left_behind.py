"""What the end of one of Pulsar's clients leaves in memory: nothing that only the cycle collector can free."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from magnetar.testing.pulsar import TIMEOUT_S, PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandUnsubscribe,
)
from tests.unit.circles import circles_of
from tests.unit.protocols.pulsar.pulsar_consuming import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    WithDoor,
    publish,
    subscribe,
)
from tests.unit.protocols.pulsar.pulsar_producing import entry, produce, send

Life = Callable[[PulsarDoor, PulsarClient], Awaitable[None]]


async def receive(client: PulsarClient, **fields: Any) -> None:
    await subscribe(client, permits=2, **fields)
    for _ in range(2):
        message = await client.hear(BaseCommand.MESSAGE)
    client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
    ack = CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[message.message_id])
    client.say(ack)


async def reads(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, durable=False)


async def reads_and_closes(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, durable=False)
    await client.ask(CommandCloseConsumer(consumer_id=1, request_id=2), BaseCommand.SUCCESS)


async def consumes_alone(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, subType=EXCLUSIVE)


async def consumes_in_turn(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, subType=FAILOVER)


async def shares(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, subType=SHARED)


async def shares_by_key(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, subType=KEY_SHARED)


async def unsubscribes(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client)
    await client.ask(CommandUnsubscribe(consumer_id=1, request_id=2), BaseCommand.SUCCESS)


async def seeks(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client)
    seek = CommandSeek(consumer_id=1, request_id=2, message_publish_time=0)
    await client.ask(seek, BaseCommand.SUCCESS)


async def seeks_beside_others(door: PulsarDoor, client: PulsarClient) -> None:
    await receive(client, subType=SHARED)
    seek = CommandSeek(consumer_id=1, request_id=2, message_publish_time=0)
    await client.ask(seek, BaseCommand.SUCCESS)


async def produces(door: PulsarDoor, client: PulsarClient) -> None:
    await publish(client, 3)


async def sends_what_is_refused(door: PulsarDoor, client: PulsarClient) -> None:
    await produce(client)
    damaged = bytearray(entry(1))
    damaged[-1] ^= 1
    send(client, 0)
    send(client, 1, bytes(damaged))
    send(client, 2, txnid_most_bits=0, txnid_least_bits=1)
    for _ in range(2):
        await client.hear(BaseCommand.SEND_ERROR)


LIVES: tuple[Life, ...] = (
    reads,
    reads_and_closes,
    consumes_alone,
    consumes_in_turn,
    shares,
    shares_by_key,
    unsubscribes,
    seeks,
    seeks_beside_others,
    produces,
    sends_what_is_refused,
)


async def live(door: PulsarDoor, life: Life) -> None:
    client = await door.connected()
    await life(door, client)
    client.leave()
    await settled(door)


async def settled(door: PulsarDoor) -> None:
    """Until the broker has let go of all that clients had."""
    partitions = [one for topic in door.broker.topics for one in topic.open_partitions]
    async with asyncio.timeout(TIMEOUT_S):
        while any(map(door.broker.subscriptions.of, partitions)):
            await asyncio.sleep(0.001)
            door.clock.advance(1.0)
    for _ in range(20):  # what has ended is told those that wait for it
        await asyncio.sleep(0)


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_a_client_that_goes_leaves_no_circle(with_door: WithDoor, life: Life) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await publish(await door.connected(), 5)
        assert not await circles_of(partial(live, door, life))

    with_door(scenario)

"""A consumer's commands, as the tests of the Pulsar door say them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from magnetar.base.names import TopicName
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandFlow,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

WithDoor = Callable[..., None]
TOPIC = "persistent://public/default/t"
FULL = TopicName.parse("t").full
NO_ID = (1 << 64) - 1
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)


def subscription(consumer_id: int, **fields: Any) -> CommandSubscribe:
    return CommandSubscribe(
        **{
            "topic": TOPIC,
            "subscription": "s",
            "subType": EXCLUSIVE,
            "consumer_id": consumer_id,
            "request_id": 100 + consumer_id,
            **fields,
        }
    )


async def subscribe(client: PulsarClient, consumer_id: int = 1, permits: int = 100, **fields: Any) -> None:
    defaults = {"consumer_name": f"c{consumer_id}", "initialPosition": CommandSubscribe.Earliest}
    command = subscription(consumer_id, **{**defaults, **fields})
    success = await client.ask(command, BaseCommand.SUCCESS)
    assert success.request_id == command.request_id
    if permits:
        client.say(CommandFlow(consumer_id=consumer_id, messagePermits=permits))


async def refused(client: PulsarClient, **fields: Any) -> tuple["ServerError", str]:
    error = await client.ask(subscription(9, **{"request_id": 9, **fields}), BaseCommand.ERROR)
    assert error.request_id == 9
    return error.error, error.message


async def publish(
    client: PulsarClient, count: int = 1, messages: int = 1, **fields: Any
) -> list[MessageIdData]:
    """`count` entries by a producer of their own; their ids."""
    producer_id = 1000 + len(client.session.producers)
    topic = fields.pop("topic", TOPIC)
    command = CommandProducer(topic=topic, producer_id=producer_id, request_id=1)
    await client.ask(command, BaseCommand.PRODUCER_SUCCESS)
    ids = []
    for number in range(count):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, **fields)
        if messages > 1:
            metadata.num_messages_in_batch = messages
        send = CommandSend(producer_id=producer_id, sequence_id=number, num_messages=messages)
        client.say(send, frame_entry(metadata, b"12345678" * messages))
        ids.append((await client.hear(BaseCommand.SEND_RECEIPT)).message_id)
    return ids


async def messages(client: PulsarClient, count: int) -> list[Any]:
    return [await client.hear(BaseCommand.MESSAGE) for _ in range(count)]


async def consuming(
    door: PulsarDoor, count: int, *, messages_each: int = 1, **fields: Any
) -> tuple[PulsarClient, list[Any]]:
    """A client that has published `count` entries, is subscribed and was sent them all."""
    client = await door.connected()
    await publish(client, count, messages_each)
    await subscribe(client, **fields)
    return client, await messages(client, count)


def acknowledgement(*ids: MessageIdData, **fields: Any) -> CommandAck:
    return CommandAck(**{"consumer_id": 1, "ack_type": CommandAck.Individual, "message_id": ids, **fields})


async def quiet(client: PulsarClient) -> None:
    """All that can happen now has happened, and the client got nothing of it."""
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert client.received == []


def mark_delete(door: PulsarDoor, subscription: str = "s") -> int:
    cursor = door.broker.cursors.get(CursorKey(subscription, FULL, 0))
    assert cursor is not None
    return cursor.mark_delete


def one(message: Any) -> MessageIdData:
    return MessageIdData(ledgerId=message.message_id.ledgerId, entryId=message.message_id.entryId)


def entries(found: Iterable[Any]) -> list[int]:
    """The entry ids of messages."""
    return [message.message_id.entryId for message in found]

"""A producer's commands, as the tests of the Pulsar door say them."""

from collections.abc import Callable
from typing import Any

from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.entry import Entry
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    MessageMetadata,
    ServerError,
)

WithDoor = Callable[..., None]
TOPIC = "persistent://public/default/t"
NO_ID = (1 << 64) - 1


def entry(sequence_id: int, payload: bytes = b"payload", **fields: Any) -> bytes:
    return frame_entry(
        MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000, **fields),
        payload,
    )


async def produce(client: PulsarClient, producer_id: int = 1, **fields: Any) -> CommandProducerSuccess:
    command = CommandProducer(
        **{"topic": TOPIC, "producer_id": producer_id, "request_id": 50 + producer_id, **fields}
    )
    success: CommandProducerSuccess = await client.ask(command, BaseCommand.PRODUCER_SUCCESS)
    assert success.request_id == command.request_id
    return success


async def producing(door: PulsarDoor, **fields: Any) -> PulsarClient:
    """A client that has producer 1."""
    client = await door.connected()
    await produce(client, **fields)
    return client


async def refused(client: PulsarClient, **fields: Any) -> tuple["ServerError", str]:
    command = CommandProducer(**{"topic": TOPIC, "producer_id": 1, "request_id": 9, **fields})
    error = await client.ask(command, BaseCommand.ERROR)
    assert error.request_id == 9
    return error.error, error.message


def send(client: PulsarClient, sequence_id: int, data: bytes | None = None, **fields: Any) -> None:
    command = CommandSend(**{"producer_id": 1, "sequence_id": sequence_id, "num_messages": 1, **fields})
    client.say(command, entry(sequence_id) if data is None else data)


async def set_policies(door: PulsarDoor, **policies: Any) -> None:
    """Of public/default, beside those that it has."""
    await door.broker.namespaces.change("public/default", lambda found: {**found, **policies})


def topic_of(door: PulsarDoor) -> Topic:
    topic = door.broker.topics.find(TopicName.parse("t"))
    assert topic is not None
    return topic


def partition_of(door: PulsarDoor, index: int = 0) -> Partition:
    return topic_of(door).partition(index)


async def stored(partition: Partition) -> list[Entry]:
    found: list[Entry] = []
    offset = 0
    while offset < partition.log.high_watermark:
        found += await partition.log.read(offset, 1 << 20)
        offset = found[-1].last_offset + 1
    return found

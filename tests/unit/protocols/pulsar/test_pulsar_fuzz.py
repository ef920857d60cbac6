"""Whatever well-formed commands a client sends, in whatever order: it is answered or cut off, and nothing breaks."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from magnetar.base.names import TopicName
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.protocols.pulsar.handlers.producer import State
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.testing.pulsar import PulsarDoor, framed
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandSend, MessageMetadata

ROUNDS: Final = 30
COMMANDS_PER_ROUND: Final = 60
TEXTS: Final = (
    *["", "t", "p", "s", "persistent://public/default/t", "persistent://public/default/t-partition-0"],
    *["non-persistent://public/default/n", "persistent://public/default/parts-partition-1", "public/default"],
    *["persistent://public/nowhere/t", "a/b/c/d", "-partition-", "é" * 300, ".*", "(", "\0", "standalone"],
)
NUMBERS: Final = (0, 1, 2, 3, 5, 127, 1000, (1 << 31) - 1, (1 << 63) - 1)
TOPICS: Final = TEXTS[4:8]
SERVED: Final = load_commands().keys() - {BaseCommand.CONNECT}
CLIENTS: Final = tuple(field for field in BaseCommand.DESCRIPTOR.fields if field.number in SERVED)
LIKELY: Final = (
    "producer",
    "send",
    "send",
    "subscribe",
    "flow",
    "ack",
    "seek",
    "redeliverUnacknowledgedMessages",
)


def fill(message: Message, choose: random.Random, depth: int = 0) -> None:
    """Set required fields, and some of the others, to something."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            for _ in range(choose.choice((0, 0, 1, 3))):
                if field.message_type is not None:
                    if depth < 3:
                        fill(getattr(message, field.name).add(), choose, depth + 1)
                else:
                    getattr(message, field.name).append(value(field, choose))
        elif field.is_required or choose.random() < 0.4:
            if field.message_type is not None:
                if depth < 3 or field.is_required:
                    part = getattr(message, field.name)
                    part.SetInParent()
                    fill(part, choose, depth + 1)
            else:
                setattr(message, field.name, value(field, choose))


def value(field: Any, choose: random.Random) -> Any:
    # Mostly so that commands meet each other's topics, producers and consumers.
    if choose.random() < 0.9:
        if field.name == "topic":
            return choose.choice(TOPICS)
        if field.name in ("producer_id", "consumer_id"):
            return choose.choice((1, 2))
        if field.name == "subscription":
            return choose.choice(("s", "z"))
        if field.name in ("ledgerId", "entryId"):
            return choose.choice((0, 1, 2, 3, 4, 5))
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return choose.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return choose.choice((b"", b"\0", b"\xff" * 8, bytes(8), b"{}"))
        case FieldDescriptor.TYPE_BOOL:
            return choose.random() < 0.5
        case FieldDescriptor.TYPE_ENUM:
            return choose.choice(field.enum_type.values).number
        case FieldDescriptor.TYPE_INT32:
            return choose.choice((*NUMBERS[:8], -1, -(1 << 31)))
        case FieldDescriptor.TYPE_UINT32:
            return choose.choice((*NUMBERS[:8], (1 << 32) - 1))
        case FieldDescriptor.TYPE_INT64:
            return choose.choice((*NUMBERS, -1, -(1 << 63)))
        case FieldDescriptor.TYPE_UINT64:
            return choose.choice((*NUMBERS, (1 << 64) - 1, 1 << 63))
    return 1.0


def entry(choose: random.Random) -> bytes:
    metadata = MessageMetadata()
    fill(metadata, choose)
    size = choose.choice((0, 1, 10, 600))
    if not 0 < metadata.num_messages_in_batch <= size // 6:
        metadata.ClearField("num_messages_in_batch")
    return frame_entry(metadata, bytes(size))


def command(session: PulsarSession, choose: random.Random) -> bytes:
    name = choose.choice(LIKELY) if choose.random() < 0.7 else choose.choice(CLIENTS).name
    ready = [key for key, one in session.producers.items() if getattr(one, "state", None) is State.READY]
    if name == "send" and not ready and choose.random() < 0.99:
        name = "producer"
    body = getattr(BaseCommand(), name)
    fill(body, choose)
    if isinstance(body, CommandSend):
        if choose.random() < 0.99:
            body.producer_id = choose.choice(ready or [1])
        if choose.random() < 0.9:
            body.ClearField("txnid_most_bits")
            body.ClearField("txnid_least_bits")
        return framed(body, entry(choose))
    return framed(body)


# A new seed is drawn in the test: as a parameter it would give the workers of one run different names of tests.
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_random_commands_break_nothing(
    with_door: Callable[..., None], caplog: pytest.LogCaptureFixture, seed: int | None
) -> None:
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)

    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(TopicName.parse("parts"), 2)
        for _ in range(ROUNDS):
            client = await door.connected()
            for _ in range(COMMANDS_PER_ROUND):
                if client.is_closed:
                    break
                client.give(command(client.session, choose))
                if choose.random() < 0.5:
                    await asyncio.sleep(choose.choice((0, 0, 0.002)))
                if choose.random() < 0.05:
                    door.clock.advance(choose.choice((0.1, 1.0, 20.0)))
                client.received.clear()
            if not client.is_closed:
                client.leave()
            await asyncio.sleep(0)
        await door.service.tasks.ended()
        for topic in door.broker.topics:
            for partition in topic.open_partitions:
                await partition.durable_waits.until(partition.log.next_offset)
        await asyncio.sleep(0)
        assert door.service.queued_bytes == 0
        assert not door.service.sessions

    with_door(scenario)
    failures = [record for record in caplog.records if record.exc_info is not None]
    assert not failures, f"seed {seed}: {caplog.text[-6000:]}"

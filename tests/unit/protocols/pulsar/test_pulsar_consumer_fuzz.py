"""Consumer commands in any order and with any numbers: the broker has an answer for each, or none, and goes on."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSend,
    CommandSubscribe,
    CommandUnsubscribe,
    IntRange,
    KeySharedMeta,
    KeySharedMode,
    MessageIdData,
    MessageMetadata,
)

WithDoor = Callable[..., None]
TOPICS = ("persistent://public/default/t", "non-persistent://public/default/n")
STEPS = 150
EDGES = (0, 1, 2, 3, 63, 64, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


class Nuisance:
    """A client that says anything; everything it says follows from its seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.request_id = 0
        self.sequence_id = 0

    def u64(self) -> int:
        return self.rng.choice((self.rng.randrange(4), self.rng.choice(EDGES)))

    def u32(self) -> int:
        return self.u64() & 0xFFFFFFFF

    def consumer_id(self) -> int:
        return self.rng.choice((1, 1, 2, 2, 3, self.u64()))

    def message_id(self) -> MessageIdData:
        rng = self.rng
        found = MessageIdData(
            ledgerId=rng.choice((1, 1, 1, self.u64())), entryId=rng.choice((rng.randrange(20), self.u64()))
        )
        if rng.random() < 0.5:
            found.batch_index = rng.choice((-1, 0, 5, (1 << 31) - 1))
        if rng.random() < 0.4:
            found.ack_set.extend(rng.choice((-1, 0, 1, rng.getrandbits(62))) for _ in range(rng.randrange(4)))
        return found

    def say(self) -> Any:
        rng = self.rng
        self.request_id += 1
        request: dict[str, Any] = {"request_id": self.request_id}
        consumer: dict[str, Any] = {"consumer_id": self.consumer_id()}
        match rng.randrange(12):
            case 0 | 1:
                sharing = KeySharedMeta(
                    keySharedMode=rng.choice((KeySharedMode.STICKY, KeySharedMode.AUTO_SPLIT))
                )
                for _ in range(rng.randrange(3)):
                    start, end = (rng.choice((-1, 0, 100, 65_535, 1 << 20)) for _ in range(2))
                    sharing.hashRanges.append(IntRange(start=start, end=end))
                return CommandSubscribe(
                    topic=rng.choice(TOPICS), subscription=rng.choice(("a", "b", "")), durable=rng.random() < 0.8,
                    subType=CommandSubscribe.SubType.Name(rng.randrange(4)), keySharedMeta=sharing,
                    initialPosition=CommandSubscribe.InitialPosition.Name(rng.randrange(2)),
                    start_message_id=self.message_id(), start_message_rollback_duration_sec=self.u64(),
                    priority_level=rng.choice((-1, 0, 5)), consumer_epoch=self.u64(), read_compacted=rng.random() < 0.2,
                    **request, **consumer,
                )  # fmt: skip
            case 2 | 3 | 4:
                return CommandFlow(messagePermits=self.u32(), **consumer)
            case 5 | 6:
                return CommandAck(
                    ack_type=CommandAck.AckType.Name(rng.randrange(2)),
                    message_id=[self.message_id() for _ in range(rng.randrange(5))],
                    **(request if rng.random() < 0.5 else {}), **consumer,
                )  # fmt: skip
            case 7:
                ids = [self.message_id() for _ in range(rng.randrange(3))]
                return CommandRedeliverUnacknowledgedMessages(
                    message_ids=ids, consumer_epoch=self.u64(), **consumer
                )
            case 8:
                seek = CommandSeek(**request, **consumer)
                if rng.random() < 0.6:
                    seek.message_id.CopyFrom(self.message_id())
                elif rng.random() < 0.8:
                    seek.message_publish_time = self.u64()
                return seek
            case 9:
                return CommandGetLastMessageId(**request, **consumer)
            case 10:
                return CommandConsumerStats(**request, **consumer)
            case _:
                if rng.random() < 0.5:
                    return CommandUnsubscribe(force=rng.random() < 0.5, **request, **consumer)
                return CommandCloseConsumer(**request, **consumer)

    def publish(self, client: PulsarClient) -> None:
        count = self.rng.choice((1, 1, 5))
        for producer_id in range(len(TOPICS)):
            self.sequence_id += 1
            metadata = MessageMetadata(
                producer_name=f"p{producer_id}", sequence_id=self.sequence_id, publish_time=self.sequence_id
            )
            if count > 1:
                metadata.num_messages_in_batch = count
            if self.rng.random() < 0.2:
                metadata.deliver_at_time = self.u64() >> 1
            send = CommandSend(producer_id=producer_id, sequence_id=self.sequence_id, num_messages=count)
            client.say(send, frame_entry(metadata, b"12345678" * count))


@pytest.mark.parametrize("round_number", range(8))
def test_nothing_that_consumers_say_breaks_the_broker(
    with_door: WithDoor, caplog: pytest.LogCaptureFixture, round_number: int
) -> None:
    seed = random.randrange(1 << 32)

    async def scenario(door: PulsarDoor) -> None:
        nuisance = Nuisance(random.Random(seed))
        producer = await door.connected()
        for producer_id, topic in enumerate(TOPICS):
            command = CommandProducer(topic=topic, producer_id=producer_id, request_id=producer_id)
            await producer.ask(command, BaseCommand.PRODUCER_SUCCESS)
        clients = [await door.connected() for _ in range(3)]
        for _ in range(STEPS):
            client = nuisance.rng.choice(clients)
            if nuisance.rng.random() < 0.2:
                nuisance.publish(producer)
            if nuisance.rng.random() < 0.02:
                clients.remove(client)
                client.leave()
                clients.append(await door.connected())
            elif nuisance.rng.random() < 0.05:
                client.session.peer_is_slow(nuisance.rng.random() < 0.5)
            else:
                client.say(nuisance.say())
            if nuisance.rng.random() < 0.3:
                door.clock.advance(0.5)
                await asyncio.sleep(0.001)
            assert not client.is_closed or client not in clients, "its connection was closed"
        for client in clients:
            client.session.peer_is_slow(False)
        if door.service.tasks:
            await asyncio.wait(set(door.service.tasks), timeout=10)
        assert not door.service.tasks, "a command is stuck"

    with caplog.at_level(logging.ERROR):
        try:
            with_door(scenario)
            assert not caplog.records, [record.getMessage() for record in caplog.records]
        except BaseException as error:
            error.add_note(f"seed {seed}, round {round_number}")
            raise

"""Small requests of both doors, made by hand: one at a time, each with its answer, by a client that costs little.

They are what `bench.instructions` counts and `bench.layers` takes apart.
"""

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from struct import pack
from typing import Any, Final, NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder

from bench.process import RunFailed
from bench.servers import HOST
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import asking, fetch, metadata, produce
from magnetar.wire.pulsar.commands import frame_command, read_command
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandConnect,
    CommandFlow,
    CommandPong,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageMetadata,
    SingleMessageMetadata,
)

CLIENT_ID: Final = "bench"
BATCH: Final = 100  # messages
VALUE_BYTES: Final = 100
LARGE_VALUE_BYTES: Final = 1024
PATIENCE_S: Final = 300.0
SETTLE_S: Final = 2.0


class Way(NamedTuple):
    """One thing that a client does, and has an answer to."""

    name: str
    once: Callable[[], None]
    requests: int = 1
    """How many of it are done at once."""


def kafka_topic(records: int = 1, in_flight: int = 1) -> str:
    """The topic that `kafka_ways` uses."""
    return f"counted-{records}-{in_flight}"


class Ports(NamedTuple):
    """A server's two doors."""

    kafka: int
    pulsar: int


class Client:
    """One connection, to either door."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def say(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def hear(self) -> bytes:
        """The next frame, without its size."""
        data = self._received
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            part = self._socket.recv(1 << 20)
            if not part:
                raise RunFailed("the server has closed the connection")
            data += part
        end = 4 + int.from_bytes(data[:4], "big")
        self._received = data[end:]
        return data[4:end]

    def hear_command(self, kind: "BaseCommand.Type") -> Any:
        """The next command of Pulsar's of this kind; those that ask whether the client is there are answered."""
        while True:
            found, command, _ = read_command(memoryview(self.hear()))
            if found == kind:
                return command
            if found == BaseCommand.PING:
                self.say(frame_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong())))
            elif found == BaseCommand.ERROR:
                raise RunFailed(f"the server refuses: {command.message}")


def kafka_frame(module: Any, version: int, request: Any) -> bytes:
    """A request as a client sends it; `module` is its codec."""
    parts: list[Any] = [encode_request_header(module.API_KEY, version, 1, CLIENT_ID)]
    asking.load(module.API_KEY).encode_request(version, request, parts)
    body = b"".join(parts)
    return pack(">i", len(body)) + body


def kafka_ways(ports: Ports, records: int = 1, in_flight: int = 1) -> Iterator[Way]:
    """One batch of `records` in each Produce, and a Fetch of one batch."""
    client = Client(ports.kafka)
    name = kafka_topic(records, in_flight)
    topic = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)])
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number in range(records):
        builder.append(number, int(time.time() * 1000), None, bytes(VALUE_BYTES), [])
    row = produce.PartitionProduceData(0, bytes(builder.build()))
    one = produce.ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[produce.TopicProduceData(name, partition_data=[row])]
    )
    wanted = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1)
    first = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[fetch.FetchTopic(name, partitions=[wanted])],
    )  # fmt: skip

    def ask(frames: bytes, count: int) -> None:
        client.say(frames)
        for _ in range(count):
            client.hear()

    ask(kafka_frame(metadata, 9, topic), 1)
    time.sleep(SETTLE_S)  # until the topic is there
    how = _how(records, "record", in_flight)
    for verb, frame in (("Produce", kafka_frame(produce, 9, one)), ("Fetch", kafka_frame(fetch, 11, first))):
        yield Way(f"{verb} of {how}", partial(ask, frame * in_flight, in_flight), in_flight)


def _how(number: int, what: str, in_flight: int) -> str:
    what = f"one {what}" if number == 1 else f"{number} {what}s"
    return what if in_flight == 1 else f"{what}, {in_flight} in flight"


def pulsar_client(ports: Ports) -> Client:
    """A connection to Pulsar's door that has said hello."""
    client = Client(ports.pulsar)
    hello = CommandConnect(client_version="bench", protocol_version=21)
    client.say(frame_command(BaseCommand(type=BaseCommand.CONNECT, connect=hello)))
    client.hear_command(BaseCommand.CONNECTED)
    return client


def pulsar_ways(
    ports: Ports, messages: int = BATCH, in_flight: int = 1, value_bytes: int = VALUE_BYTES
) -> Iterator[Way]:
    """Entries of `messages`, sent with `in_flight` at a time, and received with a flow and an acknowledgement for
    every ten.
    """
    topic = f"counted-pulsar-{messages}-{in_flight}-{value_bytes}"
    producer = pulsar_client(ports)
    make = CommandProducer(topic=topic, producer_id=1, request_id=1)
    producer.say(frame_command(BaseCommand(type=BaseCommand.PRODUCER, producer=make)))
    name = producer.hear_command(BaseCommand.PRODUCER_SUCCESS).producer_name
    described = MessageMetadata(producer_name=name, sequence_id=0, publish_time=int(time.time() * 1000))
    content = bytes(value_bytes)
    if messages > 1:
        described.num_messages_in_batch = messages
        single = SingleMessageMetadata(payload_size=value_bytes).SerializeToString()
        content = (pack(">I", len(single)) + single + content) * messages
    entry = bytes(frame_entry(described, content))
    numbers = count()

    def sent() -> bytes:
        command = CommandSend(producer_id=1, sequence_id=next(numbers), num_messages=messages)
        head = frame_command(BaseCommand(type=BaseCommand.SEND, send=command))
        return pack(">I", len(head) - 4 + len(entry)) + head[4:] + entry

    def send() -> None:
        producer.say(b"".join(sent() for _ in range(in_flight)))
        for _ in range(in_flight):
            producer.hear_command(BaseCommand.SEND_RECEIPT)

    how = f"{_how(messages, 'message', in_flight)} ({value_bytes} B)"
    yield Way(f"Send of {how}", send, in_flight)
    consumer = pulsar_client(ports)
    subscribe = CommandSubscribe(
        topic=topic, subscription="bench", subType=CommandSubscribe.Exclusive, consumer_id=1,
        request_id=1, initialPosition=CommandSubscribe.Earliest,
    )  # fmt: skip
    consumer.say(frame_command(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)))
    consumer.hear_command(BaseCommand.SUCCESS)
    flow = CommandFlow(consumer_id=1, messagePermits=10 * messages)
    left = 0

    def receive() -> None:
        nonlocal left
        if not left:
            consumer.say(frame_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))
            left = 10
        last = consumer.hear_command(BaseCommand.MESSAGE).message_id
        left -= 1
        if not left:
            ack = CommandAck(consumer_id=1, ack_type=CommandAck.Cumulative, message_id=[last])
            consumer.say(frame_command(BaseCommand(type=BaseCommand.ACK, ack=ack)))

    yield Way(f"Delivery of {_how(messages, 'message', 1)} ({value_bytes} B)", receive)

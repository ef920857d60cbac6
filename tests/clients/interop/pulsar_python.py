"""pulsar-client (the Python wheel over the C++ core) behind the face that the interop tests need."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import pulsar

from tests.clients.adapters import TooFew
from tests.clients.interop.interop_corpus import Message, Mode

TIMEOUT_S = 60.0
RECEIVE_TIMEOUT_MS = 2000
COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


class PulsarPython:
    name = "pulsar-client"

    def produce(
        self, url: str, topic: str, mode: Mode, messages: Sequence[Message]
    ) -> list[tuple[int, int, int]]:
        """Write in order and wait; returns the acknowledged positions."""
        results: list[object] = [None] * len(messages)
        with client(url) as connection:
            producer = connection.create_producer(
                topic,
                compression_type=COMPRESSIONS[mode.compression],
                batching_enabled=mode.packing == "batched",
                batching_max_messages=16,
                batching_max_publish_delay_ms=20,
                chunking_enabled=mode.packing == "chunked",
                block_if_queue_full=True,
                message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition,
            )

            def done(index: int):  # type: ignore[no-untyped-def]
                def callback(result: object, message_id: object) -> None:
                    results[index] = message_id if result == pulsar.Result.Ok else result

                return callback

            for index, message in enumerate(messages):
                producer.send_async(
                    message.value,
                    done(index),
                    properties=dict(message.properties) or None,
                    partition_key=message.key or None,
                    ordering_key=message.ordering_key or None,
                    event_timestamp=message.event_ms or None,
                )
            producer.flush()
            deadline = time.monotonic() + TIMEOUT_S
            while any(result is None for result in results) and time.monotonic() < deadline:
                time.sleep(0.01)
        return [position_of(result) for result in results]

    def consume(self, url: str, topic: str, count: int) -> list[Message]:
        """Read `count` messages from the beginning with a subscription that is gone afterwards."""
        with client(url) as connection:
            consumer = connection.subscribe(
                topic, "interop-reader", initial_position=pulsar.InitialPosition.Earliest
            )
            try:
                return receive(consumer, count)
            finally:
                consumer.unsubscribe()


@contextlib.contextmanager
def client(url: str) -> Iterator[pulsar.Client]:
    connection = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield connection
    finally:
        connection.close()


def receive(consumer: pulsar.Consumer, count: int) -> list[Message]:
    """`count` messages, none of them acknowledged."""
    return [shown(message) for message in receive_raw(consumer, count)]


def receive_raw(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    found: list[pulsar.Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        try:
            found.append(consumer.receive(RECEIVE_TIMEOUT_MS))
        except pulsar.Timeout:
            if time.monotonic() > deadline:
                raise TooFew(f"pulsar-client: {len(found)} of {count} messages") from None
    return found


def shown(message: pulsar.Message) -> Message:
    return Message(
        max(message.message_id().partition(), 0),
        message.partition_key(),
        None if message.has_null_value() else message.data(),
        dict(message.properties()),
        message.event_timestamp(),
        message.ordering_key(),
        position_of(message.message_id()),
    )


def position_of(message_id: object) -> tuple[int, int, int]:
    assert not isinstance(message_id, pulsar.Result), f"a send failed: {message_id}"
    assert message_id is not None, "a send was not acknowledged in time"
    return (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())  # type: ignore[attr-defined]

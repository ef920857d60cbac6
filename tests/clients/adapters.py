"""Three clients that we did not write, behind one small face, for tests that mix them.

Each adapter produces a list of `Record` (partition and timestamp explicit, so that nothing is left to
chance) and consumes a topic from its beginning, or goes on where a group has committed.  Producers are
idempotent: the others may change the order when a request is retried, and a new topic's first one often
is.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 30.0
FETCH_BYTES = 4 << 20
RECORD_BYTES_MAX = 8 << 20
SESSION_TIMEOUT_MS = 6000


@dataclass(frozen=True)
class Record:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    offset: int = -1  # -1: not written yet

    def at(self, offset: int) -> "Record":
        return replace(self, offset=offset)


class Client(Protocol):
    """One client library."""

    name: str

    def can_write(self, record: "Record") -> bool:
        """Whether the library accepts the record: the protocol allows more than some do."""
        ...

    def produce(self, bootstrap: str, topic: str, compression: str, records: Sequence[Record]) -> list[int]:
        """Write in order and wait; returns the acknowledged offsets, one per record."""
        ...

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]:
        """Read `count` records from the beginning; in order within each partition."""
        ...

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[Record]:
        """Join, read at least `count` records, commit exactly the first `count`, leave."""
        ...


class TooFew(AssertionError):
    """Fewer records than were written came back in time."""


def create_topic(
    bootstrap: str, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(TIMEOUT_S)


class Confluent:
    name = "confluent-kafka"

    def can_write(self, record: Record) -> bool:
        return True

    def produce(self, bootstrap: str, topic: str, compression: str, records: Sequence[Record]) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "linger.ms": 20,
                "enable.idempotence": True,
                "message.max.bytes": RECORD_BYTES_MAX,
            }
        )
        offsets = [-1] * len(records)
        errors: list[Any] = []

        def delivered(index: int) -> Any:
            def callback(error: Any, message: Any) -> None:
                if error:
                    errors.append(error)
                else:
                    offsets[index] = message.offset()

            return callback

        for index, record in enumerate(records):
            producer.produce(
                topic,
                partition=record.partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                on_delivery=delivered(index),
            )
        left = producer.flush(TIMEOUT_S)
        assert not errors, errors
        assert left == 0, f"{left} records were not delivered"
        return offsets

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]:
        consumer = self._consumer(bootstrap, "unused")
        try:
            assigned = [confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)]
            consumer.assign(assigned)
            return [self._record(message) for message in self._poll(consumer, count)]
        finally:
            consumer.close()

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[Record]:
        consumer = self._consumer(bootstrap, group)
        try:
            consumer.subscribe([topic])
            messages = self._poll(consumer, count)[:count]
            ends = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [confluent_kafka.TopicPartition(topic, *end) for end in ends.items()]
            for committed in consumer.commit(offsets=offsets, asynchronous=False):
                assert committed.error is None, committed.error
            return [self._record(message) for message in messages]
        finally:
            consumer.close()

    def _consumer(self, bootstrap: str, group: str) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": FETCH_BYTES,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
            }
        )

    def _poll(self, consumer: Any, count: int) -> list[Any]:
        messages: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count:
            if time.monotonic() > deadline:
                raise TooFew(f"{self.name}: {len(messages)} of {count} records")
            for message in consumer.consume(count - len(messages), 0.2):
                assert message.error() is None, message.error()
                messages.append(message)
        return messages

    def _record(self, message: Any) -> Record:
        kind, timestamp_ms = message.timestamp()
        assert kind == confluent_kafka.TIMESTAMP_CREATE_TIME
        headers = tuple(message.headers() or ())
        return Record(
            message.partition(), message.key(), message.value(), headers, timestamp_ms, message.offset()
        )


class KafkaPython:
    name = "kafka-python"

    def can_write(self, record: Record) -> bool:
        null_header = any(value is None for _, value in record.headers)
        return not null_header and (record.key is not None or record.value is not None)

    def produce(self, bootstrap: str, topic: str, compression: str, records: Sequence[Record]) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            linger_ms=20,
            enable_idempotence=True,
            max_request_size=RECORD_BYTES_MAX,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]:
        consumer = self._consumer(bootstrap, None)
        try:
            assigned = [PyTopicPartition(topic, n) for n in range(partitions)]
            consumer.assign(assigned)
            consumer.seek_to_beginning(*assigned)
            return self._poll(consumer, count)
        finally:
            consumer.close()

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[Record]:
        consumer = self._consumer(bootstrap, group)
        try:
            # It may join before it knows the topic and then assigns itself nothing, for good when the answer comes in
            # the middle of that (seen once in some thousand runs, on a busy machine).
            assert consumer.partitions_for_topic(topic)
            consumer.subscribe([topic])
            records = self._poll(consumer, count)[:count]
            ends = {
                PyTopicPartition(topic, r.partition): OffsetAndMetadata(r.offset + 1, "", -1) for r in records
            }
            consumer.commit(ends)
            return records
        finally:
            consumer.close()

    def _consumer(self, bootstrap: str, group: str | None) -> Any:
        return KafkaConsumer(**_consuming(bootstrap, group))

    def _poll(self, consumer: Any, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(records) < count:
            if time.monotonic() > deadline:
                raise TooFew(f"{self.name}: {len(records)} of {count} records")
            for batch in consumer.poll(200).values():
                for message in batch:
                    assert message.timestamp_type == 0
                    records.append(_plain(message))
        return records


class AioKafka:
    name = "aiokafka"

    def can_write(self, record: Record) -> bool:
        return record.key is not None or record.value is not None

    def produce(self, bootstrap: str, topic: str, compression: str, records: Sequence[Record]) -> list[int]:
        async def write() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if compression == "none" else compression,
                linger_ms=20,
                enable_idempotence=True,
                max_request_size=RECORD_BYTES_MAX,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        partition=record.partition,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                done = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
                return [metadata.offset for metadata in done]
            finally:
                await producer.stop()

        return asyncio.run(write())

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]:
        async def read() -> list[Record]:
            consumer = self._consumer(bootstrap, None)
            await consumer.start()
            try:
                assigned = [AioTopicPartition(topic, n) for n in range(partitions)]
                consumer.assign(assigned)
                await consumer.seek_to_beginning(*assigned)
                return await self._poll(consumer, count)
            finally:
                await consumer.stop()

        return asyncio.run(read())

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[Record]:
        async def read() -> list[Record]:
            consumer = self._consumer(bootstrap, group)
            consumer.subscribe([topic])
            await consumer.start()
            try:
                records = (await self._poll(consumer, count))[:count]
                await consumer.commit({AioTopicPartition(topic, r.partition): r.offset + 1 for r in records})
                return records
            finally:
                await consumer.stop()

        return asyncio.run(read())

    def _consumer(self, bootstrap: str, group: str | None) -> Any:
        return AIOKafkaConsumer(**_consuming(bootstrap, group))

    async def _poll(self, consumer: Any, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(records) < count:
            if time.monotonic() > deadline:
                raise TooFew(f"{self.name}: {len(records)} of {count} records")
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                for message in batch:
                    assert message.timestamp_type == 0
                    records.append(_plain(message))
        return records


def _consuming(bootstrap: str, group: str | None) -> dict[str, Any]:
    """The options of a consumer, which kafka-python and aiokafka call alike."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "max_partition_fetch_bytes": FETCH_BYTES,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": 500,
    }


def _plain(message: Any) -> Record:
    headers = tuple((name, None if value is None else bytes(value)) for name, value in message.headers)
    return Record(message.partition, message.key, message.value, headers, message.timestamp, message.offset)


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), AioKafka())

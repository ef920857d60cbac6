"""Clients that we did not write, and what they write for tests."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import confluent_kafka
import pulsar
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.client.rest import RestClient
from magnetar.testing.server import MagnetarProcess

FLUSH_S = 60
Headers = list[tuple[str, str | bytes | None]]


class Writers:
    """Kafka's and Pulsar's clients of one server."""

    def __init__(self, server: MagnetarProcess) -> None:
        self._server = server
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap})
        self._pulsar: pulsar.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pulsar is not None:
            self._pulsar.close()

    @property
    def pulsar(self) -> "pulsar.Client":
        if self._pulsar is None:
            logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
            self._pulsar = pulsar.Client(self._server.pulsar_url, logger=logger)
        return self._pulsar

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """A topic; dots in names of settings are written as underscores."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(FLUSH_S)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        wanted = [confluent_kafka.admin.NewPartitions(topic, partitions)]
        self._admin.create_partitions(wanted)[topic].result(FLUSH_S)

    def position(self, subscription: str) -> int:
        """Where a subscription stands, which is on one partition."""
        with RestClient(self._server.http_url) as client:
            (position,) = client.positions(subscription)
            return position.offset

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(FLUSH_S)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention, at once: what lies before `offset` is gone."""
        wanted = [confluent_kafka.TopicPartition(topic, partition, offset)]
        for future in self._admin.delete_records(wanted).values():
            future.result(FLUSH_S)

    def kafka(
        self,
        topic: str,
        rows: Sequence[tuple[bytes | None, bytes | None]],
        *,
        partition: int = 0,
        compression: str = "none",
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        **config: Any,
    ) -> None:
        """Keys and values, acknowledged when this returns."""
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._server.bootstrap,
                "compression.type": compression,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        _produce(producer, topic, rows, partition, timestamp_ms, headers)
        assert producer.flush(FLUSH_S) == 0

    def transaction(
        self,
        topic: str,
        rows: Sequence[tuple[bytes | None, bytes | None]],
        *,
        name: str,
        commit: bool,
        partition: int = 0,
    ) -> None:
        """The rows in one transaction of its own."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._server.bootstrap, "transactional.id": name}
        )
        producer.init_transactions(FLUSH_S)
        producer.begin_transaction()
        _produce(producer, topic, rows, partition, None, None)
        if commit:
            producer.commit_transaction(FLUSH_S)
        else:
            producer.flush(FLUSH_S)
            producer.abort_transaction(FLUSH_S)

    def pulsar_rows(
        self,
        topic: str,
        rows: Sequence[tuple[str | None, bytes]],
        *,
        partition: int | None = None,
        compression: Any = None,  # of pulsar.CompressionType
        properties: dict[str, str] | None = None,
        batched: bool = True,
        chunked: bool = False,
        **message: Any,
    ) -> None:
        """Keys and payloads, acknowledged when this returns."""
        name = topic if partition is None else f"{topic}-partition-{partition}"
        producer = self.pulsar.create_producer(
            name,
            compression_type=compression or pulsar.CompressionType.NONE,
            batching_enabled=batched,
            batching_max_publish_delay_ms=5,
            batching_max_messages=500,
            max_pending_messages=5000,
            block_if_queue_full=True,
            chunking_enabled=chunked,
        )
        try:
            for key, payload in rows:
                producer.send_async(
                    payload,
                    _expect_sent,
                    properties=properties,
                    **({"partition_key": key} if key else {}),
                    **message,
                )
            producer.flush()
        finally:
            producer.close()


def _produce(
    producer: "confluent_kafka.Producer",
    topic: str,
    rows: Sequence[tuple[bytes | None, bytes | None]],
    partition: int,
    timestamp_ms: int | None,
    headers: Headers | None,
) -> None:
    extra: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
    for number, (key, value) in enumerate(rows):
        if extra:
            extra["timestamp"] = timestamp_ms + number if timestamp_ms is not None else 0
        producer.produce(topic, value, key, partition, headers=headers, **extra)
        if number % 1000 == 999:
            producer.poll(0)


def _expect_sent(result: "pulsar.Result", _: object) -> None:
    if result != pulsar.Result.Ok:
        raise AssertionError(f"Pulsar's client could not send: {result}")

"""Writing as Spark has it written, without Spark: micro-batches of tasks, and a driver that may die at any request."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
import pyarrow as pa

from magnetar.client.kafka.cluster import Cluster
from magnetar.pipelines.connector.write.exactly_once import TaskResult, commit_batch, write_task
from magnetar.pipelines.connector.write.options import WriteOptions, parse
from magnetar.testing.server import MagnetarProcess

TIMEOUT_S = 30.0


def options_for(server: MagnetarProcess, **more: str) -> WriteOptions:
    return parse(
        {"kafka.bootstrap.servers": server.bootstrap, **{k.replace("_", "."): v for k, v in more.items()}},
        streaming=True,
    )


def rows(values: Sequence[str], **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values), **columns})


class Died(Exception):
    """The driver, or a worker, is gone at this point."""


class MortalCluster(Cluster):
    """Its user dies at one request: before it is sent, or when its answer has come."""

    def __init__(self, bootstrap: str, at_request: int, *, answered: bool) -> None:
        super().__init__(bootstrap)
        self._left = at_request
        self._answered = answered

    def ask(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._answered:
            raise Died
        answer = super().ask(*arguments)
        if self._left == 0:
            raise Died
        return answer


def run_batch(
    cluster: Cluster, options: WriteOptions, query_id: str, batch_id: int, tasks: Sequence[Sequence[str]]
) -> None:
    """What Spark does with one micro-batch: every task, then the commit."""
    done = [
        write_task(cluster, options, query_id, batch_id, task, iter([rows(values)]))
        if values
        else TaskResult(query_id, task)
        for task, values in enumerate(tasks)
    ]
    commit_batch(cluster, options, done, batch_id)


def read_committed(server: MagnetarProcess, topic: str, partitions: int) -> list[confluent_kafka.Message]:
    """All that a reader of committed records sees; waits for transactions that are open."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    ends = {
        n: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, n), timeout=TIMEOUT_S)[1]
        for n in range(partitions)
    }
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in ends])
    found: list[confluent_kafka.Message] = []
    finished: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(finished) < partitions:
        assert time.monotonic() < deadline, f"{topic}: {len(found)} records, {finished} of {ends} read"
        for message in consumer.consume(1000, 0.05):
            error = message.error()
            if error is None:
                found.append(message)
                continue
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            # The end of what is committed comes before the end of the log while a transaction is open.
            if (message.offset() or 0) >= ends[message.partition() or 0]:
                finished.add(message.partition() or 0)
    consumer.close()
    return found


def values_of(messages: Sequence[confluent_kafka.Message]) -> list[str]:
    return sorted((message.value() or b"").decode() for message in messages)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {TIMEOUT_S:g} s: {what}"
        time.sleep(0.05)

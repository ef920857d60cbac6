"""What Spark does for a query topic -> topic, without Spark: a loop of micro-batches over a checkpoint.

    python -m tests.crash.spark.plain_query BOOTSTRAP HTTP_URL SOURCE SINK PARTITIONS CHECKPOINT

As in Spark, what a batch reads is noted before it runs (`offsets/N`), that it is committed afterwards (`commits/N`),
and a batch that is not noted as committed runs again as it was noted.  Says `{"batch": N}` for each one that is
committed.
"""

import json
import sys
import time
from pathlib import Path

import confluent_kafka
import pyarrow as pa

from magnetar.client.kafka.cluster import Cluster
from magnetar.pipelines.connector.write.exactly_once import TaskResult, commit_batch, write_task
from magnetar.pipelines.connector.write.options import parse

QUERY_ID = "00000000-0000-0000-0000-000000000000"
TIMEOUT_S = 60.0
RECORDS_MAX = 2_000  # of a partition in a batch


class Source:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "plain-query",
                "log_level": 2,
                "fetch.wait.max.ms": 50,
            }
        )

    def ends(self) -> list[int]:
        return [
            self._consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(self._topic, n), timeout=TIMEOUT_S
            )[1]
            for n in range(self._partitions)
        ]

    def read(self, partition: int, begin: int, end: int) -> list[bytes]:
        found: list[bytes] = []
        self._consumer.assign([confluent_kafka.TopicPartition(self._topic, partition, begin)])
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < end - begin:
            assert time.monotonic() < deadline, (
                f"{self._topic} {partition} {begin}-{end}: {len(found)} records"
            )
            messages = self._consumer.consume(end - begin - len(found), 0.5)
            found += [message.value() or b"" for message in messages if message.error() is None]
        return found


def note(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".tmp")
    half.write_text(json.dumps(value))
    half.replace(path)


def main() -> None:
    bootstrap, _, source_topic, sink_topic, partition_count, folder = sys.argv[1:]
    partitions = int(partition_count)
    checkpoint = Path(folder)
    options = parse({"kafka.bootstrap.servers": bootstrap, "topic": sink_topic}, streaming=True)
    source = Source(bootstrap, source_topic, partitions)
    cluster = Cluster(bootstrap)
    batch = max((int(path.name) for path in checkpoint.glob("offsets/*[0-9]")), default=0)
    while True:
        planned = checkpoint / "offsets" / str(batch)
        if not planned.exists():
            begin = (
                json.loads((checkpoint / "offsets" / str(batch - 1)).read_text())
                if batch
                else [0] * partitions
            )
            end = [min(there, at + RECORDS_MAX) for at, there in zip(begin, source.ends(), strict=True)]
            if end == begin:
                time.sleep(0.02)
                continue
            note(planned, end)
        if not (checkpoint / "commits" / str(batch)).exists():
            begin = (
                json.loads((checkpoint / "offsets" / str(batch - 1)).read_text())
                if batch
                else [0] * partitions
            )
            done = []
            for partition, (first, last) in enumerate(
                zip(begin, json.loads(planned.read_text()), strict=True)
            ):
                if first == last:
                    done.append(TaskResult(QUERY_ID, partition))
                    continue
                values = source.read(partition, first, last)
                rows = pa.record_batch(
                    {"value": pa.array(values), "partition": pa.array([partition] * len(values), pa.int32())}
                )
                done.append(write_task(cluster, options, QUERY_ID, batch, partition, iter([rows])))
            commit_batch(cluster, options, done, batch)
            note(checkpoint / "commits" / str(batch), None)
            print(json.dumps({"batch": batch}), flush=True)
        batch += 1


if __name__ == "__main__":
    main()

"""Spark's own Kafka connector at work; run by the PySpark that has it, which knows nothing of this repository.

    python kafka_connector.py BOOTSTRAP FOLDER < TASKS

TASKS is a JSON list, each done in its order and answered with one line of JSON, `ANSWER` before it.
"""

import hashlib
import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


class Connector:
    def __init__(self, bootstrap: str, folder: str) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap}
        self.folder = folder
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", os.environ["SPARK_KAFKA_JARS"])
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("ERROR")

    def read(self, **options: str) -> Any:
        """For each topic and partition: how many rows, from which offset to which, and a digest of all they hold."""
        rows = self.spark.read.format("kafka").options(**self.options, **options).load()
        found: dict[str, Any] = {}
        for row in rows.orderBy("topic", "partition", "offset").collect():
            place = found.setdefault(
                f"{row.topic}-{row.partition}", {"count": 0, "offsets": [row.offset, 0], "rows": []}
            )
            place["count"] += 1
            place["offsets"][1] = row.offset
            headers = (
                [[each.key, _text(each.value)] for each in row.headers or ()] if "headers" in row else []
            )
            millis = int(row.timestamp.timestamp() * 1000)
            place["rows"].append([_text(row.key), _text(row.value), row.offset, millis, headers])
        for place in found.values():
            place["digest"] = hashlib.sha256(json.dumps(place.pop("rows")).encode()).hexdigest()
        return found

    def copy(self, source: str, target: str, **options: str) -> Any:
        """What is in `source` now, through a stream into `target`; goes on where the last call ended."""
        rows = (
            self.spark.readStream.format("kafka")
            .options(**self.options, **options)
            .option("subscribe", source)
            .load()
        )
        query = (
            rows.select("key", "value", "headers")
            .writeStream.format("kafka")
            .options(**self.options)
            .option("topic", target)
            .option("checkpointLocation", f"{self.folder}/{target}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress]

    def write(self, topic: str, count: int) -> Any:
        numbers = self.spark.range(0, count, 1, 2).select(
            F.col("id").cast("string").cast("binary").alias("value")
        )
        numbers.write.format("kafka").options(**self.options).option("topic", topic).mode("append").save()
        return count


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def main(bootstrap: str, folder: str) -> None:
    connector = Connector(bootstrap, folder)
    for task in json.load(sys.stdin):
        answer = getattr(connector, task.pop("do"))(**task)
        print("ANSWER", json.dumps(answer), flush=True)
    connector.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

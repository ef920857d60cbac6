"""The kind `table` as the worker runs it: streams of slices into tables, each record once over restarts."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from magnetar.pipelines.kinds.kind import Context, Spec
from magnetar.pipelines.kinds.table.kind import TableKind, table_writer
from magnetar.pipelines.targets.iceberg.history import IcebergHistory
from magnetar.testing.server import MagnetarProcess
from tests.unit.pipelines.targets.test_targets import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

Run = Callable[..., None]


@pytest.fixture
def run(spark: "SparkSession", server: MagnetarProcess, tmp_path: Path) -> Run:
    """`run(config)`: take the pipeline through all that there is now, from where the last run ended."""

    def _run(config: Mapping[str, Any], name: str = "pipe") -> None:
        spec = Spec(name, "id", "table", TableKind().validate(config), f"pipeline-{name}-{tmp_path.name}")
        context = Context(server.http_url, server.bootstrap, tmp_path)
        query = (
            table_writer(spark, spec, context)
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(500)
        finally:
            query.stop()

    return _run


def produce(server: MagnetarProcess, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def declare(server: MagnetarProcess, topic: str, **fields: str) -> None:
    """Give the topic a JSON schema."""
    import urllib.request

    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()],
    }
    request = urllib.request.Request(
        f"{server.http_url}/admin/v2/schemas/public/default/{topic}/schema",
        json.dumps({"type": "JSON", "schema": json.dumps(definition), "properties": {}}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def consumed(server: MagnetarProcess, topic: str) -> list[Any]:
    """All that a reader of committed records sees."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
def test_a_topic_becomes_a_table_over_restarts_and_what_cannot_be_read_dead_letters(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], tmp_path: Path, form: str
) -> None:
    name = topic()
    config = {"topics": name, "path": str(tmp_path / "table"), "format": form}
    declare(server, name, a="int")
    produce(server, name, [b'{"a": %d}' % n for n in range(500)] + [b"no json"])
    run(config)
    declare(server, name, a="int", b="string")
    produce(server, name, [b'{"a": %d, "b": "x"}' % n for n in range(500, 900)] + [b"{}{}"])
    run(config)
    run(config)
    if form == "delta":
        table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    elif form == "iceberg":
        table = rows_of(IcebergHistory(str(tmp_path / "table")))
    else:
        files = [str(path) for path in (tmp_path / "table").rglob("*.parquet")]
        tables = [pyarrow.dataset.dataset(file).to_table() for file in files]
        table = pa.concat_tables(tables, promote_options="default")
    rows = table.sort_by("__offset").to_pylist()
    assert [row["a"] for row in rows] == list(range(900))
    assert [row["__offset"] for row in rows] == [n for n in range(901) if n != 500]
    assert {row["b"] for row in rows} == {None, "x"}
    dead = consumed(server, f"{name}-pipe-DLQ")
    assert [one.value() for one in dead] == [b"no json", b"{}{}"]
    assert [dict(one.headers())["magnetar.offset"] for one in dead] == [b"500", b"901"]


def test_columns_that_do_not_fit_end_the_pipeline_with_a_sentence(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], tmp_path: Path
) -> None:
    first, second = topic(), topic()
    declare(server, first, a="int")
    declare(server, second, a="string")
    produce(server, first, [b'{"a": 1}'])
    produce(server, second, [b'{"a": "x"}'])
    run({"topics": first, "path": str(tmp_path / "table")})
    with pytest.raises(Exception, match='column "a" is int32 in the table and string in version 0'):
        run({"topics": second, "path": str(tmp_path / "table")}, "other")

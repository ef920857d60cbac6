"""The kind `source` as the worker runs it: files into topics, each row once over restarts, with a schema."""

import json
import os
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc

from magnetar.base.errors import ConfigError
from magnetar.client.rest import RestClient, Schema
from magnetar.pipelines.kinds.kind import Context, NotYet, Spec
from magnetar.pipelines.kinds.source.kind import SourceKind, source_writer
from magnetar.pipelines.values.decoding import decode
from magnetar.pipelines.values.topic_schema import TopicSchema
from magnetar.testing.server import MagnetarProcess
from tests.spark.test_tables import consumed
from tests.unit.pipelines.targets.test_targets import DAY_US, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

Run = Callable[..., None]


@pytest.fixture
def run(spark: "SparkSession", server: MagnetarProcess, tmp_path: Path) -> Run:
    """`run(config)`: take the pipeline through all files that there are now, from where the last run ended."""
    own = tmp_path / "own"
    own.mkdir()

    def _run(config: Mapping[str, Any]) -> None:
        spec = Spec("pipe", "id", "source", SourceKind().validate(config), f"pipeline-{tmp_path.name}")
        context = Context(server.http_url, server.bootstrap, own)
        query = (
            source_writer(spark, spec, context)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    return _run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def schema_of(server: MagnetarProcess, topic: str) -> Schema:
    with RestClient(server.http_url) as client:
        return client.schema(topic)


def values_of(server: MagnetarProcess, topic: str) -> list[bytes]:
    return [message.value() for message in consumed(server, topic)]


def test_each_line_of_json_is_a_record_once_with_the_columns_of_the_first_start(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    config = {"format": "json", "path": str(folder), "topic": name}
    (folder / "a.json").write_text("".join(f'{{"id": {n}, "who": {{"name": "x{n}"}}}}\n' for n in range(100)))
    run(config)
    (folder / "b.json").write_text('{"id": 100, "later": true}\n{"id": 101, "who": {"name": null}}\n')
    month_before = (folder / "a.json").stat().st_mtime - 30 * 86_400  # as a copy may have it
    os.utime(folder / "b.json", (month_before, month_before))
    run(config)
    run(config)
    found = [json.loads(value) for value in values_of(server, name)]
    assert sorted(one["id"] for one in found) == list(range(102))
    assert [one for one in found if one["id"] in (0, 100)] == [
        {"id": 0, "who": {"name": "x0"}},
        {"id": 100},
    ]
    first = schema_of(server, name)
    assert (first.version, first.type) == (0, "JSON")
    assert [one["name"] for one in json.loads(first.schema)["fields"]] == ["id", "who"]

    (folder / "c.json").write_text('{"id": 102, "later": true}\n')
    run({**config, "schema": "id BIGINT, who STRUCT<name: STRING>, later BOOLEAN"})
    assert json.loads(values_of(server, name)[-1]) == {"id": 102, "later": True}
    assert schema_of(server, name).version == 1


def test_every_type_is_read_again_by_the_schema(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    row: dict[str, Any] = {
        "yes": True,
        "small": 1,
        "n": 1 << 60,
        "half": 0.5,
        "text": "ä",
        "day": date(2026, 11, 27),
        "at": datetime(2026, 11, 27, 4, 0, 0, 7, tzinfo=UTC),
        "price": Decimal("1.50"),
        "raw": b"\xff",
        "who": {"name": "x", "born": date(1970, 1, 2)},
        "days": [date(1970, 1, 3), None],
        "times": [("k", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))],
    }
    day, time = pa.date32(), pa.timestamp("us", "UTC")
    types = pa.schema(
        [
            ("yes", pa.bool_()),
            ("small", pa.int8()),
            ("n", pa.int64()),
            ("half", pa.float64()),
            ("text", pa.string()),
            ("day", day),
            ("at", time),
            ("price", pa.decimal128(10, 2)),
            ("raw", pa.binary()),
            ("who", pa.struct([("name", pa.string()), ("born", day)])),
            ("days", pa.list_(day)),
            ("times", pa.map_(pa.string(), time)),
        ]
    )
    pq.write_table(pa.Table.from_pylist([row, dict.fromkeys(row)], types), folder / "a.parquet")
    run({"format": "parquet", "path": str(folder), "topic": name})
    schema = schema_of(server, name)
    values = pa.array(values_of(server, name), pa.binary())
    found = decode(TopicSchema(schema.type, schema.schema), values)
    assert found.undecodable == {}
    first, second = sorted(found.columns.to_pylist(), key=lambda one: one["yes"] is None)
    assert first == {**row, "price": "1.50", "raw": "/w=="}
    assert set(second.values()) == {None}


def test_columns_of_csv_have_names_and_types_by_their_header(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    (folder / "a.csv").write_text("id,name\n1,x\n2,\n")
    run({"format": "csv", "path": str(folder), "topic": name, "options": {"header": True}})
    found = sorted(json.loads(value)["id"] for value in values_of(server, name))
    assert found == [1, 2]
    fields = json.loads(schema_of(server, name).schema)["fields"]
    assert [one["type"] for one in fields] == [["null", "int"], ["null", "string"]]


def test_rows_of_a_delta_table_are_records_once_and_each_version_brings_its_own(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    config = {"format": "delta", "path": str(folder), "topic": name}
    days = [date(2026, 11, 27), date(2026, 11, 28), None]
    with pytest.raises(NotYet, match="there is no Delta table"):
        run(config)
    for first in (0, 30):
        rows = [
            {
                "id": first + n,
                "day": days[n % 3],
                "at": datetime(2026, 1, 1, tzinfo=UTC),
                "who": {"tags": ["x", None]},
            }
            for n in range(30)
        ]
        write_deltalake(folder, pa.Table.from_pylist(rows), mode="append", partition_by=["day"])
        run(config)
    DeltaTable(folder).optimize.compact()
    run(config)
    found = [json.loads(value) for value in values_of(server, name)]
    since_1970 = [None if day is None else (day - date(1970, 1, 1)).days for day in days]
    assert sorted((one["id"], one.get("day")) for one in found) == [(n, since_1970[n % 3]) for n in range(60)]
    assert {one["at"] for one in found} == {1_767_225_600_000_000}
    assert all(one["who"] == {"tags": ["x", None]} for one in found)
    types = {one["name"]: one["type"][1] for one in json.loads(schema_of(server, name).schema)["fields"]}
    assert types["id"] == "long"
    assert types["day"] == {"type": "int", "logicalType": "date"}


def test_rows_of_an_iceberg_table_are_records_once_and_each_version_brings_its_own(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    config = {"format": "iceberg", "path": str(folder), "topic": name}
    with pytest.raises(NotYet, match="there is no Iceberg table"):
        run(config)
    table = Table("iceberg", folder)
    for batch in range(3):
        table.target.commit(table.written(batch, batch * 10, batch * 10 + 10, step_us=DAY_US))
        run(config)
    run(config)
    found = [json.loads(value) for value in values_of(server, name)]
    assert sorted((one["__offset"], one["a"], one["record_date"]) for one in found) == [
        (n, n, n) for n in range(30)
    ]


def test_rows_of_orc_files_are_records_once(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    config = {"format": "orc", "path": str(folder), "topic": name}
    for first in (0, 10):
        rows = [{"id": first + number, "who": {"name": f"x{number}"}} for number in range(10)]
        orc.write_table(pa.Table.from_pylist(rows), folder / f"{first}.orc")
        run(config)
    found = [json.loads(value) for value in values_of(server, name)]
    assert sorted((one["id"], one["who"]["name"]) for one in found) == [(n, f"x{n % 10}") for n in range(20)]


def test_lines_of_text_files_are_records_once(
    run: Run, server: MagnetarProcess, topic: Callable[[], str], folder: Path
) -> None:
    name = topic()
    (folder / "a.txt").write_text("one\n\n")
    run({"format": "text", "path": str(folder), "topic": name})
    (folder / "b.txt").write_text("two;three")
    run({"format": "text", "path": str(folder), "topic": name, "options": {"lineSep": ";"}})
    found = [json.loads(value) for value in values_of(server, name)]
    assert sorted(one["value"] for one in found) == ["", "one", "three", "two"]
    fields = json.loads(schema_of(server, name).schema)["fields"]
    assert [(one["name"], one["type"]) for one in fields] == [("value", ["null", "string"])]


def test_lines_of_a_socket_come_also_after_another_start(
    spark: "SparkSession", server: MagnetarProcess, topic: Callable[[], str], tmp_path: Path
) -> None:
    name = topic()
    (tmp_path / "own").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        options = {"host": "127.0.0.1", "port": listening.getsockname()[1]}
        config = SourceKind().validate({"format": "socket", "topic": name, "options": options})
        spec = Spec("lines", "id", "source", config, f"pipeline-{tmp_path.name}")
        context = Context(server.http_url, server.bootstrap, tmp_path / "own")
        for line in ("one", "two"):
            query: Any = SourceKind().start(spark, spec, str(tmp_path / "checkpoint"), context)
            try:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(f"{line}\n".encode())
                    while not any(one["numInputRows"] for one in query.recentProgress):
                        query.processAllAvailable()
            finally:
                query.stop()
    found = [json.loads(value) for value in values_of(server, name)]
    assert found == [{"value": "one"}, {"value": "two"}]


def test_what_is_not_there_yet_is_waited_for(run: Run, topic: Callable[[], str], tmp_path: Path) -> None:
    config = {"format": "json", "path": str(tmp_path / "later"), "topic": topic()}
    with pytest.raises(NotYet, match="there is no folder"):
        run(config)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "_hidden").write_text("{}")
    with pytest.raises(NotYet, match="no file in"):
        run(config)


def test_what_is_no_field_of_a_schema_is_named(run: Run, topic: Callable[[], str], folder: Path) -> None:
    (folder / "a.json").write_text('{"flight no": 1}\n')
    with pytest.raises(ConfigError, match="the column 'flight no' cannot be a field"):
        run({"format": "json", "path": str(folder), "topic": topic()})
    with pytest.raises(ConfigError, match="no field has"):
        run({"format": "json", "path": str(folder), "topic": topic(), "schema": "a INTERVAL DAY TO SECOND"})

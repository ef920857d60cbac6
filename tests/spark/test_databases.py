"""Tables of a database by JDBC, as the worker runs them: topics into tables, and tables into topics, each row once.

The database is Derby, which comes with Spark.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds.database_tables import DatabaseTable
from magnetar.pipelines.kinds.kind import Context, NotYet, Spec
from magnetar.pipelines.kinds.source.kind import SourceKind, database_writer
from magnetar.pipelines.kinds.table.kind import TableKind, table_writer
from magnetar.pipelines.spark.databases import Databases
from magnetar.testing.server import MagnetarProcess
from tests.spark.test_sources import values_of
from tests.spark.test_tables import consumed, declare, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

Run = Callable[..., None]


@pytest.fixture
def databases(spark: "SparkSession", tmp_path: Path) -> Databases:
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", os.devnull)
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = tmp_path / "jdbc"
    folder.mkdir()
    (derby,) = (Path(spec.origin).parent / "jars").glob("derby-1*.jar")
    shutil.copy(derby, folder)
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    (folder / "databases.toml").write_text(f'[shop]\nurl = "{url}"\ndriver = "{derby.name}"\n')
    return Databases(folder)


@pytest.fixture
def context(server: MagnetarProcess, tmp_path: Path, databases: Databases) -> Context:
    return Context(server.http_url, server.bootstrap, tmp_path, databases=databases)


@pytest.fixture
def run(spark: "SparkSession", context: Context, tmp_path: Path) -> Run:
    """`run(kind, config)`: take the pipeline through all that there is now, from where the last run ended."""

    def _run(kind: str, config: Mapping[str, Any]) -> None:
        made: TableKind | SourceKind = TableKind() if kind == "table" else SourceKind()
        spec = Spec("pipe", "id", kind, made.validate(config), f"pipeline-{tmp_path.name}")
        writer = (
            table_writer(spark, spec, context)
            if kind == "table"
            else database_writer(spark, spec, context)[0]
        )
        query = (
            writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{kind}"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(500)
        finally:
            query.stop()

    return _run


def options(databases: Databases) -> dict[str, str]:
    return databases.find("shop").options(None, None)


def rows(spark: "SparkSession", databases: Databases, table: str) -> list[dict[str, Any]]:
    found = spark.read.format("jdbc").options(**options(databases), dbtable=table).load().collect()
    return [row.asDict() for row in found]


def put(spark: "SparkSession", databases: Databases, table: str, begin: int, end: int) -> None:
    made = spark.range(begin, end).selectExpr(
        "id", "concat('x', id) AS name", "CAST(id AS DECIMAL(9, 2)) AS price"
    )
    made.write.format("jdbc").options(**options(databases), dbtable=table).mode("append").save()


def test_a_topic_becomes_a_table_over_restarts_and_what_cannot_be_read_dead_letters(
    run: Run,
    spark: "SparkSession",
    server: MagnetarProcess,
    topic: Callable[[], str],
    databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    config = {"topics": name, "format": "jdbc", "database": "shop", "table": "orders"}
    declare(server, name, a="int", b="string")
    produce(server, name, [b'{"a": %d, "b": "x"}' % n for n in range(500)] + [b"no json"])
    run("table", config)
    produce(server, name, [b'{"a": %d}' % n for n in range(500, 900)] + [b"{}{}"])

    def dies(_: DatabaseTable) -> None:
        raise ZeroDivisionError("between the commit of the database and that of Spark")

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseTable, "drop_staged", dies)
        with pytest.raises(Exception, match="between the commit"):
            run("table", config)
    run("table", config)
    found = sorted(rows(spark, databases, "orders"), key=lambda row: row["__offset"])
    assert [row["a"] for row in found] == [*range(900)]
    assert [row["b"] for row in found] == ["x"] * 500 + [None] * 400
    assert [row["__offset"] for row in found] == [n for n in range(901) if n != 500]
    assert [one.value() for one in consumed(server, f"{name}-pipe-DLQ")] == [b"no json", b"{}{}"]
    assert not (tmp_path / "staged").exists()
    (note,) = rows(spark, databases, "magnetar_batches")
    assert note["BATCH_NUMBER"] == 1


def test_a_column_that_the_table_has_not_is_named(
    run: Run, spark: "SparkSession", server: MagnetarProcess, topic: Callable[[], str], databases: Databases
) -> None:
    name = topic()
    declare(server, name, a="int")
    produce(server, name, [b'{"a": 1}'])
    put(spark, databases, "orders", 0, 1)
    config = {"topics": name, "format": "jdbc", "database": "shop", "table": "orders", "metadata_columns": []}
    with pytest.raises(Exception, match='table orders has no column "a": add it'):
        run("table", config)
    with pytest.raises(ConfigError, match="has no database 'shops': did you mean shop"):
        run("table", {**config, "database": "shops"})


def test_rows_of_a_table_are_records_once_and_so_are_later_ones(
    run: Run, spark: "SparkSession", server: MagnetarProcess, topic: Callable[[], str], databases: Databases
) -> None:
    name = topic()
    config = {"format": "jdbc", "database": "shop", "table": "bills", "column": "ID", "topic": name}
    with pytest.raises(NotYet, match="the database shop has no table bills that can be read: create it"):
        run("source", config)
    put(spark, databases, "bills", 0, 100)
    run("source", config)
    run("source", config)
    put(spark, databases, "bills", 100, 150)
    run("source", config)
    found = sorted((json.loads(value) for value in values_of(server, name)), key=lambda one: one["id"])
    assert [(one["id"], one["name"]) for one in found] == [(n, f"x{n}") for n in range(150)]
    assert found[1]["price"] == "1.00"
    with pytest.raises(ConfigError, match="column name of bills must have whole numbers, and has string"):
        run("source", {**config, "column": "name"})
    with pytest.raises(ConfigError, match="table bills has no column nr"):
        run("source", {**config, "column": "nr"})


def test_a_source_that_runs_sees_new_rows_and_ends_when_it_is_stopped(
    spark: "SparkSession",
    server: MagnetarProcess,
    topic: Callable[[], str],
    databases: Databases,
    context: Context,
) -> None:
    name = topic()
    put(spark, databases, "bills", 0, 10)
    kind = SourceKind()
    config = {"format": "jdbc", "database": "shop", "table": "bills", "column": "id", "topic": name}
    spec = Spec("live", "id", "source", kind.validate(config), f"pipeline-{context.folder.name}")
    query = kind.start(spark, spec, str(context.folder / "live"), context)
    try:
        found: list[Any] = []
        put(spark, databases, "bills", 10, 20)
        while len(found) < 20:
            assert query.exception() is None
            found += values_of(server, name)  # those that are new
    finally:
        query.stop()
    assert sorted(json.loads(value)["id"] for value in found) == [*range(20)]
    assert not query.isActive

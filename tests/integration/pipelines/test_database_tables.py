"""Batches become part of a table of a database once: with Derby, which comes with Spark, in a JVM without Spark."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds import database_tables
from magnetar.pipelines.kinds.database_tables import (
    DatabaseTable,
    check_column,
    check_table,
    connected,
    greatest,
    is_there,
    quoting,
)
from magnetar.pipelines.kinds.kind import NotYet
from magnetar.pipelines.spark.java import find_java
from magnetar.pipelines.targets.errors import TableError

QUERY = "0f2e3d4c-aaaa-bbbb-cccc-000000000000"
DRIVER = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What these modules need of a session: its JVM."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = tmp_path_factory.mktemp("derby")
    port, token = launch_gateway(
        classpath=f"{Path(spec.origin).parent / 'jars'}/*",
        java_path=str(find_java().home / "bin/java"),
        javaopts=[
            "-Xmx192m",
            f"-Dderby.system.home={folder}",
            f"-Dderby.stream.error.file={folder}/derby.log",
        ],
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield SimpleNamespace(_jvm=gateway.jvm)
    gateway.shutdown()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"url": f"jdbc:derby:memory:{tmp_path.name};create=true", "driver": DRIVER}


@pytest.fixture
def connection(spark: Any, options: dict[str, str]) -> Iterator[Any]:
    with connected(spark, options) as made:
        yield made


@pytest.fixture
def table(spark: Any, options: dict[str, str], connection: Any) -> DatabaseTable:
    made = DatabaseTable(connection, "orders", QUERY, quoting(spark, options["url"]))
    execute(connection, 'CREATE TABLE orders (ID BIGINT, "name" VARCHAR(10), more INT DEFAULT 7)')
    execute(connection, f'CREATE TABLE {made.staged} ("id" BIGINT, "name" VARCHAR(20))')
    made.prepare()
    return made


COLUMNS = (("ID", "id"), ("name", "name"))


def execute(connection: Any, sql: str) -> None:
    statement = connection.createStatement()
    statement.execute(sql)
    statement.close()


def rows(connection: Any, sql: str = 'SELECT id, "name", more FROM orders ORDER BY id') -> list[list[str]]:
    statement = connection.createStatement()
    found = statement.executeQuery(sql)
    count = found.getMetaData().getColumnCount()
    read = []
    while found.next():
        read.append([found.getString(place) for place in range(1, count + 1)])
    statement.close()
    return read


def stage(table: DatabaseTable, *numbers: int) -> int:
    execute(table.connection, f"DELETE FROM {table.staged}")
    for number in numbers:
        execute(table.connection, f"INSERT INTO {table.staged} VALUES ({number}, 'x{number}')")
    return len(numbers)


def test_a_batch_is_in_the_table_once_however_often_it_is_committed(table: DatabaseTable) -> None:
    assert not table.has(0)
    assert table.commit(0, COLUMNS, stage(table, 1, 2))
    assert table.has(0)
    assert not table.commit(0, COLUMNS, stage(table, 3))
    assert table.commit(1, COLUMNS, stage(table, 4))
    assert not table.commit(0, COLUMNS, stage(table, 5))
    assert rows(table.connection) == [["1", "x1", "7"], ["2", "x2", "7"], ["4", "x4", "7"]]
    assert rows(table.connection, "SELECT query_id, batch_number FROM magnetar_batches") == [[QUERY, "1"]]


def test_rows_that_a_task_wrote_twice_are_no_batch(table: DatabaseTable) -> None:
    stage(table, 1, 2, 2)
    with pytest.raises(TableError, match="has 3 rows of a batch of 2"):
        table.commit(0, COLUMNS, 2)
    assert not table.has(0)
    assert rows(table.connection) == []
    assert table.commit(0, COLUMNS, stage(table, 1, 2))


def test_a_row_that_the_database_refuses_leaves_nothing_of_its_batch(table: DatabaseTable) -> None:
    stage(table, 1)
    execute(table.connection, f"INSERT INTO {table.staged} VALUES (2, 'longer than ten')")
    with (
        pytest.raises(TableError, match=r"the database says: .*truncation"),
        database_tables.told({"url": "jdbc:x"}),
    ):
        table.commit(0, COLUMNS, 2)
    assert not table.has(0)
    assert rows(table.connection) == []


def test_what_another_query_has_written_says_nothing_of_this_one(
    spark: Any, options: dict[str, str], table: DatabaseTable
) -> None:
    assert table.commit(5, COLUMNS, stage(table, 1))
    other = DatabaseTable(table.connection, "orders", "other", table.quote)
    other.prepare()
    assert not other.has(0)
    table.prepare()
    assert table.has(5), "what was there stays"
    with connected(spark, options) as later:
        assert DatabaseTable(later, "orders", QUERY, table.quote).has(5)


def test_two_drivers_commit_a_batch_once(spark: Any, options: dict[str, str], table: DatabaseTable) -> None:
    stage(table, 1)
    with connected(spark, options) as second:
        other = DatabaseTable(second, "orders", QUERY, table.quote)
        assert other.commit(0, COLUMNS, 1)
        assert not table.commit(0, COLUMNS, 1)
    assert [row[0] for row in rows(table.connection)] == ["1"]


def test_the_staged_table_goes_and_need_not_be_there(table: DatabaseTable) -> None:
    table.drop_staged()
    table.drop_staged()
    assert (
        rows(table.connection, "SELECT tablename FROM sys.systables WHERE tablename LIKE 'MAGNETAR_S%'") == []
    )


def test_a_table_in_a_schema_has_its_batches_beside_it(table: DatabaseTable) -> None:
    execute(table.connection, "CREATE SCHEMA shop")
    other = DatabaseTable(table.connection, "shop.orders", QUERY, table.quote)
    other.prepare()
    assert other.staged.startswith("shop.magnetar_staged_")
    assert rows(table.connection, "SELECT * FROM shop.magnetar_batches") == [[QUERY, "-1"]]


def test_the_greatest_number_is_none_in_an_empty_table(table: DatabaseTable) -> None:
    assert not is_there(table.connection, "none")
    assert is_there(table.connection, "orders")
    assert greatest(table.connection, "orders", "id") is None
    table.commit(0, COLUMNS, stage(table, 3, 1 << 29, 9))
    assert greatest(table.connection, "orders", "id") == 1 << 29


def test_without_transactions_there_is_no_pipeline() -> None:
    connection: Any = SimpleNamespace(getMetaData=lambda: SimpleNamespace(supportsTransactions=lambda: False))
    with pytest.raises(ConfigError, match="has no transactions"):
        DatabaseTable(connection, "orders", QUERY, str).check()


def test_a_driver_that_is_not_loaded_and_a_database_that_is_away_are_sentences(
    spark: Any, tmp_path: Path
) -> None:
    with (
        pytest.raises(NotYet, match="the worker has not loaded the driver: restart it"),
        connected(spark, {"url": "jdbc:none:x", "driver": "org.none.Driver"}),
    ):
        pass
    with (
        pytest.raises(TableError, match=r"the database says: .*not found") as caught,
        connected(
            spark, {"url": f"jdbc:derby:{tmp_path}/none", "driver": DRIVER, "password": f"{tmp_path}/none"}
        ),
    ):
        pass
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["(SELECT 1) x", "a b", "a.b.c", "orders;", 'o"', "", "1a", "orders--", "a." + "x" * 64]
)
def test_only_a_name_is_a_table(name: str) -> None:
    with pytest.raises(ConfigError, match="table must be a name"):
        check_table(name)
    with pytest.raises(ConfigError, match="column must be a name"):
        check_column(name)
    check_table("shop.orders")

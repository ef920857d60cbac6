"""`magnetar sql`'s engine over a real server, with records that real clients of both protocols wrote."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pulsar.schema import AvroSchema, Float, Integer, JsonSchema, Record, String

from magnetar.client.login import Server
from magnetar.pipelines.sql.engine import Engine
from magnetar.pipelines.sql.errors import QueryFailed, StatementError
from magnetar.pipelines.sql.server_topics import ServerTopics
from magnetar.testing.server import MagnetarProcess
from tests.spark.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


class Flight(Record):  # type: ignore[misc]
    origin = String()
    delay = Integer()


class FlightWithCarrier(Record):  # type: ignore[misc]
    origin = String()
    delay = Integer()
    carrier = String(required_default=True)


class Weather(Record):  # type: ignore[misc]
    origin = String()
    celsius = Float()


@pytest.fixture(scope="module")
def engine(spark: "SparkSession", server: MagnetarProcess) -> Iterator[Engine]:
    with ServerTopics(Server(server.http_url)) as served:
        yield Engine(spark, served, served.options)


@pytest.fixture
def rows(engine: Engine) -> Callable[[str], list[dict[str, Any]]]:
    return lambda statement: engine.run(statement).rows.to_pylist()


@pytest.fixture
def flights(writers: Writers, topic: Callable[[], str]) -> str:
    """A topic of JSON values with a schema, written by clients of both protocols: 10 flights, delays 0 to 9."""
    name = topic().replace("-", "_")
    send(
        writers,
        name,
        JsonSchema(Flight),
        [Flight(origin="JFK" if i % 2 else "EWR", delay=i) for i in range(5)],
    )
    values = [{"origin": "JFK" if i % 2 else "EWR", "delay": i} for i in range(5, 10)]
    writers.kafka(name, [(f"k{value['delay']}".encode(), json.dumps(value).encode()) for value in values])
    return name


def send(writers: Writers, topic: str, schema: Any, records: list[Any]) -> None:
    """Records of a schema by Pulsar's client."""
    producer = writers.pulsar.create_producer(topic, schema=schema)
    try:
        for record in records:
            producer.send(record)
    finally:
        producer.close()


def test_values_of_both_protocols_are_columns_of_the_schema(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    assert rows(f"select origin, sum(delay) as total from {flights} group by origin order by origin") == [
        {"origin": "EWR", "total": 20},
        {"origin": "JFK", "total": 25},
    ]
    found = rows(f"select * from {flights} where delay in (4, 5) order by delay")
    assert [row["__offset"] for row in found] == [4, 5]
    assert [row["__key"] for row in found] == [None, b"k5"]
    assert [row["__partition"] for row in found] == [0, 0]
    assert all(
        row["__error"] is None and abs(row["__timestamp"].timestamp() - time.time()) < 600 for row in found
    )
    assert list(found[0])[:2] == ["delay", "origin"] or list(found[0])[:2] == ["origin", "delay"]


def test_avro_values_are_columns_too_and_join_with_json_ones(
    rows: Callable[[str], list[dict[str, Any]]], writers: Writers, flights: str, topic: Callable[[], str]
) -> None:
    weather = topic()
    send(
        writers,
        weather,
        AvroSchema(Weather),
        [Weather(origin="JFK", celsius=3.5), Weather(origin="EWR", celsius=1.0)],
    )
    found = rows(
        f"select f.origin, max(f.delay) as worst, first(w.celsius) as celsius from {flights} f"
        f" join `{weather}` w on f.origin = w.origin group by 1 order by 1"
    )
    assert found == [
        {"origin": "EWR", "worst": 8, "celsius": 1.0},
        {"origin": "JFK", "worst": 9, "celsius": 3.5},
    ]


def test_without_a_schema_there_are_bytes(
    rows: Callable[[str], list[dict[str, Any]]], writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic(), partitions=2)
    writers.kafka(name, [(b"a", b"1"), (None, None)], headers=[("h", b"x")])
    writers.pulsar_rows(name, [("b", b"\xff")], partition=1, properties={"p": "q"})
    found = rows(f"select * from `{name}` order by __partition, __offset")
    assert [(row["__key"], row["value"], row["__partition"], row["__offset"]) for row in found] == [
        (b"a", b"1", 0, 0),
        (None, None, 0, 1),
        (b"b", b"\xff", 1, 0),
    ]
    assert found[0]["__headers"] == [{"key": "h", "value": b"x"}]
    assert found[2]["__headers"] == [{"key": "p", "value": b"q"}]
    assert "__error" not in found[0]
    assert rows(f"select cast(value as string) as text from `{name}` where __key = cast('a' as binary)") == [
        {"text": "1"}
    ]


def test_a_query_sees_what_was_acknowledged_before_it(
    rows: Callable[[str], list[dict[str, Any]]], writers: Writers, flights: str
) -> None:
    count = f"select count(*) as records from {flights}"
    assert rows(count) == [{"records": 10}]
    writers.kafka(flights, [(None, b'{"origin": "LGA", "delay": 1}')])
    assert rows(count) == [{"records": 11}]
    assert rows(f"select origin from {flights} where __offset = 10") == [{"origin": "LGA"}]


def test_a_newer_schema_brings_its_column_into_the_next_query(
    rows: Callable[[str], list[dict[str, Any]]], writers: Writers, flights: str
) -> None:
    assert len(rows(f"select * from {flights}")) == 10
    send(
        writers,
        flights,
        JsonSchema(FlightWithCarrier),
        [FlightWithCarrier(origin="SFO", delay=0, carrier="UA")],
    )
    found = rows(f"select origin, carrier from {flights} where __offset >= 9 order by __offset")
    assert found == [{"origin": "JFK", "carrier": None}, {"origin": "SFO", "carrier": "UA"}]


def test_a_value_that_is_not_what_the_schema_says_is_null_with_a_reason(
    rows: Callable[[str], list[dict[str, Any]]], writers: Writers, flights: str
) -> None:
    writers.kafka(flights, [(b"bad", b"no json")])
    (row,) = rows(f"select origin, delay, __offset, __error from {flights} where __error is not null")
    assert (row["origin"], row["delay"], row["__offset"]) == (None, None, 10)
    assert row["__error"]
    assert rows(f"select count(*) as n from {flights} where origin is not null") == [{"n": 10}]


def test_topics_of_other_namespaces_by_two_three_and_full_names(
    rows: Callable[[str], list[dict[str, Any]]], server: MagnetarProcess, writers: Writers, flights: str
) -> None:
    other = f"persistent://public/sql/{flights}"
    make_namespace(server, "public/sql")
    writers.pulsar_rows(other, [(None, b"one"), (None, b"two")])
    counts = f"select count(*) as n, count(distinct {flights}.__offset) as m from "
    for name in (f"sql.{flights}", f"public.sql.{flights}", f"`{other}`", f"SQL.{flights}"):
        assert rows(counts + name) == [{"n": 2, "m": 2}], name
    for name in (
        flights,
        f"default.{flights}",
        f"public.default.{flights}",
        f"`persistent://public/default/{flights}`",
    ):
        assert rows(counts + name) == [{"n": 10, "m": 10}], name
    # Both at once, in subqueries, with names of the other kind in strings and comments.
    assert rows(
        f"""select (select count(*) from sql.{flights}) as a, -- from sql.nothing
               (select max(length(value)) from public.sql.{flights} x where x.__offset < 1) as b,
               'from sql.nothing' as c /* from sql.nothing */
           from {flights} where delay = (select max(delay) from default.{flights})"""
    ) == [{"a": 2, "b": 3, "c": "from sql.nothing"}]


def test_what_a_statement_names_itself_hides_a_topic(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    assert rows(f"with {flights} as (select 1 as one) select * from {flights}") == [{"one": 1}]
    assert rows(
        f"with big as (select * from default.{flights} where delay > 7) select count(*) as n from big"
    ) == [{"n": 2}]
    # A CTE may be made of the topic that it hides.
    assert rows(
        f"with {flights} as (select * from {flights} where delay = 3) select delay from {flights}"
    ) == [{"delay": 3}]


def test_each_use_of_a_topic_in_a_statement_reads_what_it_asks_for(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    """Spark 4.3 shares what it has planned between all uses of one Python data source, filters included."""
    assert rows(
        f"select (select count(*) from {flights}) as all,"
        f" (select max(__offset) from {flights} where __offset < 3) as low,"
        f" (select min(__offset) from {flights} where __offset > 6) as high"
    ) == [{"all": 10, "low": 2, "high": 7}]
    assert rows(
        f"select a.delay as a, b.delay as b from {flights} a join {flights} b on a.__offset + 5 = b.__offset"
        " where a.__offset < 2 and b.__offset >= 5 order by 1"
    ) == [{"a": 0, "b": 5}, {"a": 1, "b": 6}]
    assert rows(
        f"with f as (select __offset as o from {flights})"
        " select o from f where o < 2 union all select o from f where o >= 8 order by 1"
    ) == [{"o": 0}, {"o": 1}, {"o": 8}, {"o": 9}]


def test_names_of_common_table_expressions_reach_as_far_as_sql_says(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    # The second one knows the first, a subquery both; the topic is meant inside of the first.
    statement = f"""with {flights} as (select delay from {flights} where delay > 5),
                         worst as (select max(delay) as delay from {flights.upper()})
                    select delay, (select count(*) from {flights}) as n from worst
                    where exists (select 1 from {flights} f where f.delay = worst.delay)"""
    assert rows(statement) == [{"delay": 9, "n": 4}]
    # Inside of a subquery only: outside of it the topic is the topic.
    assert rows(
        f"select count(*) as n from {flights} where delay in"
        f" (with {flights} as (select 3 as d) select d from {flights})"
    ) == [{"n": 1}]
    assert rows(
        f"with recursive {flights}(n) as (select 1 union all select n + 1 from {flights} where n < 4)"
        f" select max(n) as n from {flights}"
    ) == [{"n": 4}]


def test_views_that_would_go_stale_are_refused(engine: Engine, flights: str) -> None:
    for statement in (
        f"create temporary view v as select * from {flights}",
        f"create view v as select * from default.{flights}",
        f"cache table v as select * from {flights}",
    ):
        with pytest.raises(StatementError, match="WITH name AS"):
            engine.run(statement)


def test_a_view_of_something_else_hides_a_topic(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    rows(f"create temporary view {flights} as select 1 as one")
    assert rows(f"select * from {flights}") == [{"one": 1}]
    assert len(rows(f"select * from default.{flights}")) == 10
    rows(f"drop view {flights}")
    assert len(rows(f"select * from {flights}")) == 10


def test_conditions_on_the_position_reach_the_source(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    for condition in (
        "__offset >= 8",
        "__partition = 0 and __offset > 7",
        "__timestamp > timestamp'2020-01-01'",
    ):
        statement = f"select origin from {flights} where {condition}"
        (plan,) = rows(f"explain {statement}")
        scan, *above = plan["plan"].split("BatchScan magnetar", 1)[::-1]
        assert "Filter" not in above[0], (condition, plan["plan"])
        assert scan
    assert len(rows(f"select origin from {flights} where __offset >= 8")) == 2
    assert rows(f"select delay from {flights} where __offset >= 8 and origin = 'JFK'") == [{"delay": 9}]


def test_show_and_describe(
    rows: Callable[[str], list[dict[str, Any]]], server: MagnetarProcess, writers: Writers, flights: str
) -> None:
    make_namespace(server, "public/shown")
    writers.pulsar_rows(f"persistent://public/shown/{flights}-x", [(None, b"1")])
    found = {row["name_in_sql"]: row for row in rows("show tables")}
    assert found[flights] == {
        "namespace": "public.default",
        "topic": flights,
        "name_in_sql": flights,
        "partitions": 1,
    }
    assert f"shown.`{flights}-x`" in found
    for statement in (
        "show tables in shown",
        "show tables from public.shown",
        f"show tables in shown like '*{flights}*'",
    ):
        assert [row["topic"] for row in rows(statement)] == [f"{flights}-x"], statement
    assert rows("show tables like 'no-such-*'") == []
    with pytest.raises(StatementError, match="no namespace nowhere"):
        rows("show tables in nowhere")
    spaces = [row["namespace"] for row in rows("show schemas")]
    assert {"public.default", "public.shown"} <= set(spaces)
    assert [row["namespace"] for row in rows("show databases like '*.shown'")] == ["public.shown"]
    described = {row["col_name"]: row["data_type"] for row in rows(f"describe {flights}")}
    assert described["origin"] == "string"
    assert described["__offset"] == "bigint"
    described = {row["col_name"]: row["data_type"] for row in rows(f"describe shown.`{flights}-x`")}
    assert described["value"] == "binary"


def test_the_rows_of_a_table_can_be_limited(engine: Engine, flights: str) -> None:
    some = engine.run(f"select delay from {flights} order by delay", rows_max=3)
    assert some.cut
    assert some.rows.column("delay").to_pylist() == [0, 1, 2]
    assert not engine.run(f"select delay from {flights}", rows_max=10).cut


@pytest.mark.parametrize(
    ("select", "read"),
    [
        ("count(*)", {"offset"}),
        ("max(__offset), min(__timestamp)", {"offset", "timestamp"}),
        ("sum(delay)", {"value", "key"}),
        ("count(__error)", {"value", "key"}),
        ("*", {"value", "key", "partition", "offset", "timestamp", "headers"}),
    ],
)
def test_what_a_statement_does_not_mention_is_not_read(
    rows: Callable[[str], list[dict[str, Any]]], flights: str, select: str, read: set[str]
) -> None:
    (plan,) = rows(f"explain select {select} from {flights}")
    (columns,) = re.findall(r"BatchScan \S+\[(.*?)\]", plan["plan"])
    assert {column.partition("#")[0] for column in columns.split(", ")} == read


def test_without_mention_there_are_as_many_rows(
    rows: Callable[[str], list[dict[str, Any]]], flights: str
) -> None:
    assert rows(f"select count(*) as n, count(1) as one from {flights} where 'x' = 'x'") == [
        {"n": 10, "one": 10}
    ]
    assert rows(f"select 7 as seven from {flights} limit 2") == [{"seven": 7}, {"seven": 7}]


def test_what_is_mistaken_is_told_of_all_columns(engine: Engine, flights: str) -> None:
    with pytest.raises(StatementError, match="origin"):
        engine.run(f"select orign from {flights}")


@pytest.mark.parametrize(
    ("statement", "says", "mark"),
    [
        ("select * from TOPICX", "there is no topic TOPICX: did you mean TOPIC", "TOPICX"),
        ("select * from default.TOPICX", "there is no topic default.TOPICX: did you mean TOPIC", "default"),
        ("select *\nfrom public.default.TOPICX", "no topic public.default.TOPICX: did you mean", "public"),
        ("select * frm TOPIC", "Syntax error at or near 'TOPIC'", "TOPIC"),
        ("select * from my-topic", "`my-topic`", "-topic"),
        ("select nothing from TOPIC", "`nothing` cannot be resolved", "nothing"),
        ("select 1,\n  nothing from default.TOPIC", "`nothing` cannot be resolved", "nothing"),
        ("select * from default.TOPIC where nothing = 1", "`nothing` cannot be resolved", "nothing"),
        ("insert into TOPIC select * from TOPIC", "only read here", None),
        ("select nosuch(1)", "`nosuch`", "nosuch"),
    ],
)
def test_a_statement_that_cannot_be_run_is_explained_in_its_place(
    engine: Engine, flights: str, statement: str, says: str, mark: str | None
) -> None:
    text = statement.replace("TOPIC", flights)
    with pytest.raises(StatementError) as raised:
        engine.run(text)
    first, *excerpt = str(raised.value).split("\n")
    assert says.replace("TOPIC", flights) in first
    assert "SQLSTATE" not in first
    assert "org.apache" not in str(raised.value)
    if mark is None:
        assert excerpt == []
    else:
        line, arrow = excerpt
        assert line[arrow.index("^") :].startswith(mark.replace("TOPIC", flights))


def test_a_query_that_fails_while_it_runs_is_one_sentence(engine: Engine, flights: str) -> None:
    with pytest.raises(QueryFailed) as raised:
        engine.run(f"select cast(origin as int) from {flights}")
    assert "cannot be cast" in str(raised.value)
    assert "\tat " not in str(raised.value)


def test_a_topic_that_goes_away_is_unknown_again(engine: Engine, writers: Writers, flights: str) -> None:
    assert engine.run(f"select * from {flights}").rows.num_rows == 10
    writers.pulsar.close()
    writers._pulsar = None
    writers.delete(flights)
    with pytest.raises((StatementError, QueryFailed), match=flights):
        engine.run(f"select * from {flights}")


def make_namespace(server: MagnetarProcess, name: str) -> None:
    import urllib3

    urllib3.request("PUT", f"{server.http_url}/admin/v2/namespaces/{name}")

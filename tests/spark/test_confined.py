"""The SQL of a pipeline, as Spark's own parser sees it: what may run, and what would reach out of the query."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.table_roots import TableRoots
from magnetar.client.login import Server
from magnetar.client.pipelines import Pipeline
from magnetar.pipelines.kinds.kind import Context, Spec
from magnetar.pipelines.kinds.query.confined import check_query
from magnetar.pipelines.kinds.query.kind import QueryKind
from magnetar.pipelines.spark.databases import Databases
from magnetar.pipelines.worker.owners import Owners
from magnetar.pipelines.worker.queries import Queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

QUERIES = (
    "select key, value from source where length(value) > 10",
    "SELECT DISTINCT key, count(*) c FROM Source GROUP BY key HAVING count(*) > 1 ORDER BY c LIMIT 3 OFFSET 1",
    "with x as (select * from source) select s.key from x join `source` s on x.key = s.key",
    "with x as (select 1 a), y as (select a from x) select * from source, y",
    "with recursive r as (select 1 n union all select n + 1 from r where n < 3) select r.n, key from r, source",
    "select key from source union all select key from source",
    "select key from source except select key from source intersect select key from source",
    "select explode(split(cast(value as string), ',')) from source",
    "select v from source lateral view explode(split(cast(value as string), ',')) t as v",
    "select key, n from source, lateral (select length(value) as n)",
    "select window(timestamp, '1 minute') w, count(*) from source group by window(timestamp, '1 minute')",
    "select /*+ broadcast(s) */ key from source tablesample (10 percent) s",
    "select t.b from source join values (1, 2) t(a, b) on t.a = source.partition",
    "select * from (select topic, partition from source) pivot (count(*) for partition in (1, 2))",
    "select topic, w from source unpivot (w for b in (key, value))",
    "select row_number() over w from source window w as (partition by key order by offset)",
    "select key from source where key in (select key from source) and exists(select 1 from source)",
    "select transform(array(1, 2), x -> x + partition) from source",
    "from source |> where offset > 1 |> select key |> limit 3",
    "select key from source distribute by key sort by key",
    "select key, topic from source group by grouping sets ((key), (topic))",
    "select s.k from (select key from source) s(k)",
    "select id, key from source, range(10)",
    "select builtin.upper(topic), system.builtin.lower(topic) from source",
    "select from_xml(cast(value as string), 'a int'), from_json(cast(value as string), 'a int') from source",
    "table source",
    "select * from source watermark timestamp delay of interval 1 minute",
    "select '${env:HOME}' from source",
)

REACHING = (
    "insert overwrite directory '/tmp/x' using csv select * from source",
    "insert overwrite local directory '/tmp/x' select * from source",
    "from source insert into x select *",
    "insert into x select * from source",
    "add jar '/tmp/x.jar'",
    "add file '/tmp/x'",
    "list jar",
    "create table x using csv location '/tmp/x' as select * from source",
    "create view v as select 1",
    "create or replace temporary view source as select 1",
    "create temporary function f as 'x.Y'",
    "create function f as 'x.Y' using jar '/x.jar'",
    "drop view source",
    "cache table x as select * from source",
    "load data inpath '/x' into table y",
    "set spark.sql.warehouse.dir=/tmp",
    "set",
    "reset",
    "declare variable x int",
    "set var x = 1",
    "use x",
    "begin select 1; end",
    "execute immediate 'select 1'",
    "explain select * from source",
    "describe source",
    "show tables",
    "call x.y()",
    "merge into x using source on true when matched then delete",
    "update x set a = 1",
    "delete from x",
    "truncate table x",
    "select transform(key) using 'cat /etc/passwd' as b from source",
    "select * from text.`/etc/passwd`",
    "select * from source join parquet.`/etc` on true",
    "select * from source where key in (select value from text.`/etc/passwd`)",
    "select (select count(*) from text.`/etc/passwd`) from source",
    "select upper((select first(value) from text.`/etc/passwd`)) from source",
    "select transform(array(1), x -> (select count(*) from text.`/etc/passwd`)) from source",
    "with x as (select * from text.`/etc/passwd`) select * from source, x",
    "with x as (with y as (select * from text.`/e`) select * from y) select * from source, x",
    "with x as (select * from y), y as (select 1) select * from source, x",
    "select * from (with x as (select 1) select * from x) a, x, source",
    "select * from source, other",
    "select * from global_temp.source",
    "select * from spark_catalog.default.source",
    "select * from source timestamp as of '2020-01-01'",
    "select * from stream(source)",
    "select * from identifier('text.`/etc/passwd`')",
    "select * from identifier('so' || 'urce')",
    "select identifier('re' || 'flect')('java.lang.System', 'exit', 1) from source",
    "select reflect('java.lang.System', 'exit', 1) from source",
    """select xpath_string('<!DOCTYPE a SYSTEM "file:///etc/hosts"><a/>', 'a') from source""",
    """select xpath(concat('<!DOCTYPE a SYSTEM "http://x/', key, '"><a/>'), 'a') from source""",
    "select Java_Method('java.lang.System', 'exit', 1) from source",
    "select try_reflect('java.lang.System', 'exit', 1) from source",
    "select builtin.reflect('java.lang.System', 'exit', 1) from source",
    "select system.builtin.reflect('java.lang.System', 'exit', 1) from source",
    "select `reflect`('java.lang.System', 'exit', 1) from source",
    "select call_function('reflect', 'java.lang.System', 'exit', 1) from source",
    "select key from source where reflect('java.lang.System', 'exit', 1) = 'x'",
    "select key from source order by coalesce(null, upper(reflect('java.lang.System', 'exit', 1)))",
    "select count(*) from source group by key having max(reflect('java.lang.System', 'exit', 1)) = 'x'",
    "select sum(1) over (partition by reflect('java.lang.System', 'exit', 1)) from source",
    "select sum(1) over w from source window w as (order by (select first(value) from text.`/etc/passwd`))",
    "select * except (key) from source |> set topic = (select first(value) from text.`/etc/passwd`)",
    "select sum(1) over w from source window w as (partition by reflect('java.lang.System', 'exit', 1))",
    "select transform(array(1), x -> reflect('java.lang.System', 'exit', x)) from source",
    "select * from source join source s on reflect('java.lang.System', 'exit', 1) = 'x'",
    "select * from values (reflect('java.lang.System', 'exit', 1)) t(a), source",
    "select * from source lateral view explode(array(reflect('java.lang.System', 'exit', 1))) t as v",
    "select * from source limit length(reflect('java.lang.System', 'exit', 1))",
    "select * from range(length(reflect('java.lang.System', 'exit', 1))), source",
    "select * from source, lateral (select reflect('java.lang.System', 'exit', 1))",
    "select /*+ repartition(length(reflect('a', 'b'))) */ * from text.`/e`",
    "from source |> select reflect('java.lang.System', 'exit', 1)",
    "from source |> extend reflect('java.lang.System', 'exit', 1) as x",
    "from source |> set key = reflect('java.lang.System', 'exit', 1)",
    "from source |> aggregate max(reflect('java.lang.System', 'exit', 1)) group by key",
    "select * from (select partition from source) pivot (max(reflect('a', 'b')) for partition in (1))",
    "select case when true then reflect('java.lang.System', 'exit', 1) end from source",
    "select from_protobuf(value, 'M', '/etc/passwd') from source",
    "select from_avro(value, '{}', map('avroSchemaUrl', 'file:///etc/passwd')) from source",
    "select from_xml(cast(value as string), 'a int', map('rowValidationXSDPath', '/etc/passwd')) from source",
    "select schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd')) from source",
    "select default.f(key) from source",
    "select * from python_worker_logs(), source",
    "select * from read_files('/etc'), source",
    "select * from table(source)",
)


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_over_the_source_may_run(spark: "SparkSession", text: str) -> None:
    session = spark.newSession()
    check_query(session, text, "source")
    assert session.conf.get("spark.sql.variable.substitute") == "false"


@pytest.mark.parametrize("text", REACHING)
def test_what_reaches_out_of_the_query_is_refused_in_one_sentence(spark: "SparkSession", text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_query(spark.newSession(), text, "source")
    assert str(refused.value).startswith("sql m")
    assert "\n" not in str(refused.value)


def test_several_statements_are_no_query(spark: "SparkSession") -> None:
    from pyspark.errors import ParseException

    with pytest.raises(ParseException):
        check_query(spark.newSession(), "select 1; select 2", "source")


def test_no_function_of_spark_that_calls_java_or_reads_files_is_taken(spark: "SparkSession") -> None:
    """By the classes behind the names, so that a synonym in another version of Spark is found."""
    reaching = ("Reflect", "Avro", "Protobuf", "XPath")
    found = {
        one.name
        for one in spark.catalog.listFunctions()
        if one.className and any(word in one.className.rpartition(".")[2] for word in reaching)
    }
    assert {"reflect", "java_method", "try_reflect", "xpath", "xpath_string"} <= found
    for name in found:
        with pytest.raises(ConfigError):
            check_query(spark.newSession(), f"select {name}(key, key, key) from source", "source")


def test_a_pipeline_does_not_run_a_command(spark: "SparkSession", tmp_path: Path) -> None:
    """`spark.sql` had written the directory before anything was looked at."""
    target = tmp_path / "stolen"
    sql = f"insert overwrite local directory '{target}' using csv select 1"
    spec = Spec(
        "p", "id", "query", QueryKind().validate({"source": {}, "sql": sql, "sink": {}}), "pipeline-p"
    )
    spark.sql(sql)  # what it is worth
    assert target.exists()
    for file in target.iterdir():
        file.unlink()
    target.rmdir()

    class Source:
        """Stands in for the reader: the view is there, and no server is needed."""

        def __getattr__(self, name: str) -> object:
            return lambda *_, **__: self if name != "load" else spark.range(1)

    class Session:
        readStream = Source()

        def __getattr__(self, name: str) -> object:
            return getattr(spark, name)

    with pytest.raises(ConfigError, match="InsertIntoDir is not allowed"):
        QueryKind().start(Session(), spec, str(tmp_path / "c"), Context("", "", tmp_path))  # type: ignore[arg-type]
    assert not target.exists()


def test_a_worker_starts_no_table_outside_of_the_servers_roots(spark: "SparkSession", tmp_path: Path) -> None:
    """The server has looked when it was declared; since then a link may lead elsewhere."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "link").symlink_to(tmp_path / "elsewhere")
    roots = TableRoots.of([str(tmp_path / "tables")])
    (tmp_path / "work").mkdir()
    server = Server("http://127.0.0.1:1")
    owners = Owners(server, tmp_path / "work", lambda names: ({"p": "token"}, 600.0), is_local=True)
    queries = Queries(
        spark, tmp_path / "work", owners, server.url, "127.0.0.1:1", roots, Databases(tmp_path / "jdbc")
    )
    for path in ("link/t", "../t", str(tmp_path / "t"), "s3://lake/t"):
        config = {"topics": "t", "path": path, "storage_options": {"AWS_REGION": "x"}}
        pipeline = Pipeline("p", "id", "table", config, "RUNNING", 1, "pipeline-p")
        with pytest.raises(ConfigError, match="path: "):
            queries.start(pipeline, lambda: None)
    owners.close()
    assert not (tmp_path / "elsewhere").exists()

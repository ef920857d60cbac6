"""The kind `source`: files of a folder, a table, or another source -> a topic, exactly once where it can.

    {"format": "json", "path": "orders", "topic": "persistent://public/default/orders"}

Values are JSON, and the topic gets a schema of that type before the first record (`values.py`).  The columns are those
that `schema` names, or else those of the files that the first start finds.  The worker keeps them beside the
checkpoint, so later files and starts change neither them nor the topic's schema.

Spark's checkpoint says which files were read.  A batch that runs again has the same files, and the transactions of the
topic's writer store it once.  `rate` counts again from the same second.  `socket` cannot read a line twice: each start
forgets the checkpoint, and loses what the last batch before it did not write.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.entrance import Entrance
from magnetar.client.login import Server
from magnetar.client.rest import RestClient
from magnetar.pipelines.kinds.config_values import seconds_of
from magnetar.pipelines.kinds.database_tables import connected, is_there, quoting, told
from magnetar.pipelines.kinds.kind import Context, NotYet, Query, Spec
from magnetar.pipelines.kinds.source.config import DELTA, FILES, JDBC, SOCKET, TABLES, check_folder, checked
from magnetar.pipelines.kinds.source.numbers import WatchedQuery, Watcher
from magnetar.pipelines.kinds.source.values import definition, value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

_COLUMNS: Final = "columns.json"
_NUMBERS: Final = "numbers.json"
_IGNORED: Final = ("_", ".")  # Spark reads no file whose name begins like this
# By default Spark ignores files that are a week older than the newest one; but a file that was copied keeps its time.
_FILE_OPTIONS: Final = {"maxFileAge": "3650d"}
_SCHEMA_TYPE: Final = "JSON"
_PATIENCE_S: Final = 30.0


class SourceKind:
    name = "source"
    reads_slices = False

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return checked(config)

    def start(self, spark: "SparkSession", spec: Spec, checkpoint_dir: str, context: Context) -> Query:
        if spec.config["format"] == SOCKET:
            shutil.rmtree(checkpoint_dir, ignore_errors=True)
        watcher = None
        if spec.config["format"] == JDBC:
            writer, watcher = database_writer(spark, spec, context)
        else:
            writer = source_writer(spark, spec, context)
        started = (
            writer.option("checkpointLocation", checkpoint_dir)
            .trigger(processingTime=spec.config["trigger"])
            .start()
        )
        if watcher is None:
            return started
        watcher.start()
        return WatchedQuery(started, watcher)


def source_writer(spark: "SparkSession", spec: Spec, context: Context) -> "DataStreamWriter":
    """The query without its checkpoint and its trigger; the topic has its schema when this returns.

    Raises:
        NotYet: there is no folder, or no file or table to take the columns from.
        ConfigError: the columns cannot be fields of a schema.
        TableError: there is a table, and its files cannot be read here.
        ClientError, KafkaClientError: the topic cannot be created, or does not take the schema.
    """
    rows = _rows(spark, spec, context)
    topic = spec.config["topic"]
    _give_schema(context, topic, json.dumps(definition(rows.schema)))
    return (
        rows.select(value(rows.schema))
        .writeStream.format("magnetar")
        .queryName(spec.name)
        .outputMode("append")
        .options(**context.sink_options(spec, {"topic": topic}))
    )


def database_writer(
    spark: "SparkSession", spec: Spec, context: Context
) -> "tuple[DataStreamWriter, Watcher]":
    """As `source_writer`, of a table of a database; and the thread that looks for new rows, which has looked once.

    Raises:
        ConfigError: pipelines may not use the database, or the column does not say which rows are new.
        NotYet, TableError: the database cannot be reached, or has no such table.
        ClientError, KafkaClientError: the topic cannot be created, or does not take the schema.
    """
    from magnetar.pipelines.kinds.source import database

    config = spec.config
    table = config["table"]
    options = context.database(config["database"]).options(config["user"], config["password"])

    def read() -> "DataFrame":
        with told(options):
            return spark.read.format("jdbc").options(**options, dbtable=table).load()

    with connected(spark, options) as connection:
        if not is_there(connection, table):
            raise NotYet(
                f"the database {config['database']} has no table {table} that can be read: create it"
            )
    rows = read()
    numbers = database.column_of_numbers(rows, table, config["column"])
    kept = context.folder / _COLUMNS
    columns = _kept(kept) or _keep(kept, rows.schema)
    _give_schema(context, config["topic"], json.dumps(definition(columns)))
    file = context.folder / _NUMBERS
    quoted = quoting(spark, options["url"])(numbers)
    watcher = Watcher(spark, options, table, quoted, file, seconds_of(config["trigger"]))
    watcher.look()
    spark.dataSource.register(database.NumbersSource)
    ends = spark.readStream.format(database.NumbersSource.name()).schema(database.ENDS)
    source = database.Source(read, options, columns, numbers)
    write = database.batch_writer(
        spark, spec.name, source, context.sink_options(spec, {"topic": config["topic"]})
    )
    writer = ends.option("path", str(file)).load().writeStream.queryName(spec.name).foreachBatch(write)
    return writer, watcher


def _rows(spark: "SparkSession", spec: Spec, context: Context) -> "DataFrame":
    config = spec.config
    form = config["format"]
    if form not in FILES and form not in TABLES:
        return spark.readStream.format(form).options(**config["options"]).load()
    path = context.table_path(config["path"]).removeprefix("file://")
    check_folder(path)  # once more, as links and encoded characters are resolved now
    if not Path(path).is_dir():
        raise NotYet(f"there is no folder {path}: create it")
    kept = context.folder / _COLUMNS
    if form in TABLES:
        from magnetar.pipelines.kinds.source import tables

        source = tables.DeltaSource if form == DELTA else tables.IcebergSource
        spark.dataSource.register(source)
        columns: StructType | str = _kept(kept) or _of_table(form, path, kept)
        return spark.readStream.format(source.name()).schema(columns).option(tables.PATH, path).load()
    columns = _columns(spark, config, path, kept)
    options = {**_FILE_OPTIONS, **config["options"]}
    return spark.readStream.format(form).schema(columns).options(**options).load(path)


def _columns(spark: "SparkSession", config: Mapping[str, Any], path: str, kept: Path) -> "StructType | str":
    """The columns of the files: as declared, as an earlier start has found them, or as the files have them now."""
    if config["schema"] is not None:
        return str(config["schema"])
    found = _kept(kept)
    if found is not None:
        return found
    if not any(one.is_file() and not one.name.startswith(_IGNORED) for one in Path(path).rglob("*")):
        raise NotYet(f"no file in {path} says what the columns are: put one there, or set schema")
    options = {"inferSchema": "true", **config["options"]} if config["format"] == "csv" else config["options"]
    return _keep(kept, spark.read.format(config["format"]).options(**options).load(path).schema)


def _of_table(form: str, path: str, kept: Path) -> "StructType":
    """The columns that a table has now."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from magnetar.pipelines.targets.delta_log import DeltaLog
    from magnetar.pipelines.targets.iceberg.history import IcebergHistory

    found = (DeltaLog(path) if form == DELTA else IcebergHistory(path)).columns()
    if found is None:
        raise NotYet(f"there is no {form.capitalize()} table in {path}: create it")
    return _keep(kept, from_arrow_schema(found))


def _kept(kept: Path) -> "StructType | None":
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(kept.read_text())) if kept.exists() else None


def _keep(kept: Path, found: "StructType") -> "StructType":
    definition(found)  # before it is kept
    written = kept.with_suffix(".new")
    written.write_text(found.json())
    written.replace(kept)
    return found


def _give_schema(context: Context, topic: str, text: str) -> None:
    """Create the topic if the server does that for writers, and give it the schema as a producer does."""
    login = context.server_context
    entrance = Entrance.of(login) if login else None
    cluster = Cluster(context.bootstrap_servers, patience_s=_PATIENCE_S, entrance=entrance)
    try:
        cluster.partition_count(topic)
    finally:
        cluster.close()
    server = Server(context.admin_url, login)
    with RestClient(server.url, retry_s=_PATIENCE_S, login=server.login()) as client:
        client.add_schema(topic, _SCHEMA_TYPE, text)

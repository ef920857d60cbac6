"""The kind `table`: topics -> a Delta or Iceberg table, files, or a table of a database, each record once.

    {"topics": "flights", "path": "flights", "format": "delta"}

docs/reference/tables.md has all keys, and explains the form of values.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from magnetar.pipelines.kinds.kind import Context, Spec
from magnetar.pipelines.kinds.table.config import JDBC, TableConfig, checked
from magnetar.pipelines.kinds.table.database import STAGED, batch_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class TableKind:
    name = "table"
    reads_slices = True

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return checked(config)

    def start(
        self, spark: "SparkSession", spec: Spec, checkpoint_dir: str, context: Context
    ) -> "StreamingQuery":
        """Remove left-over files of the table first, because an earlier writer is dead or has lost its lease; then
        start.
        """
        writer = table_writer(spark, spec, context)
        return (
            writer.option("checkpointLocation", checkpoint_dir)
            .trigger(processingTime=spec.config["trigger"])
            .start()
        )


def table_writer(spark: "SparkSession", spec: Spec, context: Context) -> "DataStreamWriter":
    """The query without its checkpoint and its trigger."""
    in_files = spec.config["format"] != JDBC
    path = context.table_path(spec.config["path"]) if in_files else str(context.folder / STAGED)
    # Tasks need no login at a database, and Spark shows in its plans what they get.
    values = {name: value for name, value in spec.config.items() if name not in ("user", "password")} | {
        "path": path
    }
    config = TableConfig(
        spec.name,
        values,
        context.admin_url,
        context.bootstrap_servers,
        context.server_context,
        spec.subscription,
    )
    source = {
        "subscribe": ",".join(values["topics"]),
        "startingOffsets": values["starting"],
        "maxOffsetsPerTrigger": str(values["records_per_batch"]),
        "descriptors": "true",
        **values["source"],
    }
    slices = spark.readStream.format("magnetar").options(**context.source_options(spec, source)).load()
    writer = slices.writeStream.queryName(spec.name)
    if in_files:
        return _to_files(spark, writer, config)
    return writer.foreachBatch(batch_writer(spark, spec, context, config))


def _to_files(spark: "SparkSession", writer: "DataStreamWriter", config: TableConfig) -> "DataStreamWriter":
    from magnetar.pipelines.kinds.table.sink import CONFIG, NAME, TableSink

    config.target().sweep()
    spark.dataSource.register(TableSink)
    return writer.format(NAME).option(CONFIG, config.to_json())

"""Makes `spark.read.format("magnetar")` work without any registration.

Spark imports every package whose name begins with `pyspark_`, in each session, and takes the class `DefaultSource`.
So this one stays small: what does the work is imported when it is used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Topics of a Magnetar server; docs/reference/spark.md and spark-writing.md have the options."""

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> str:
        from magnetar.pipelines.connector.read.datasource import schema_of

        return schema_of(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from magnetar.pipelines.connector.read.datasource import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from magnetar.pipelines.connector.read.datasource import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from magnetar.pipelines.connector.write.batch import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from magnetar.pipelines.connector.write.stream import StreamWriter

        return StreamWriter(self.options, schema, overwrite)

"""`df.write.format("magnetar")`: the rows of a batch job, each task for itself.

A task is an idempotent producer: what it sends again after a lost connection is there once.  A task that fails leaves
what it had written, and Spark's next attempt writes all of it again, as with Spark's own kafka sink.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from magnetar.client.kafka.transactions import TopicPartition, idempotent_producer
from magnetar.pipelines.sink.clusters import cluster_for
from magnetar.pipelines.sink.errors import OptionError
from magnetar.pipelines.sink.options import WriteOptions, parse
from magnetar.pipelines.sink.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class Written(WriterCommitMessage):
    """What one task has written."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """See the module's text.

    Raises:
        OptionError, SchemaError: when it is made, on the driver.
    """

    def __init__(self, given: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "mode overwrite: a topic only grows; use mode append, after deleting the topic if it is to be replaced"
            )
        self._options = parse(given)
        check_schema(schema, self._options)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return Written(sum(write_rows(self._options, iterator).values()))


def write_rows(options: WriteOptions, iterator: "Iterator[pa.RecordBatch]") -> Mapping[TopicPartition, int]:
    """Write all rows, without a transaction: how many went to which partition.  Raises RowError, KafkaClientError."""
    batches = (batch for batch in iterator if batch.num_rows)
    first = next(batches, None)
    if first is None:
        return {}
    from magnetar.pipelines.sink.rows import RowWriter

    cluster = cluster_for(options)
    rows = RowWriter(cluster, options, idempotent_producer(cluster) if options.idempotent else None)
    try:
        for batch in chain([first], batches):
            rows.write(batch)
        rows.flush()
    finally:
        rows.close()
    return rows.written

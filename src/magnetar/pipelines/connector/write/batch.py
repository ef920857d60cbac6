"""`df.write.format("magnetar")`: the rows of a batch job, each task by itself.

A task is an idempotent producer: if it sends something again after a lost connection, the topic has it once.  If a
task fails, what it has written stays, and Spark's next attempt writes all of it again, as with Spark's own kafka
sink.

With `exactlyOnce=true` each task writes in a transaction, as in a stream, and the driver commits all of them when the
last task is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from magnetar.client.kafka.transactions import TopicPartition, abort_left_over, idempotent_producer
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.write.clusters import cluster_for
from magnetar.pipelines.connector.write.errors import SinkError
from magnetar.pipelines.connector.write.exactly_once import (
    TaskResult,
    abort_tasks,
    commit_job,
    write_transaction,
)
from magnetar.pipelines.connector.write.options import WriteOptions, parse
from magnetar.pipelines.connector.write.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task sends to the driver."""

    result: TaskResult


class BatchWriter(DataSourceArrowWriter):
    """See the module's text.

    Raises:
        OptionError, SchemaError: in the constructor, on the driver.
    """

    def __init__(self, given: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "mode overwrite: a topic only grows; use mode append, after deleting the topic if it is to be replaced"
            )
        self._options = parse(given, streaming=False)
        check_schema(schema, self._options)
        self._job_id = f"{self._options.name_prefix}spark-job-{uuid4()}"

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskDone:
        context = TaskContext.get()
        if context is None:
            raise SinkError("rows are written by Spark's tasks, and this is none")
        options, task = self._options, context.partitionId()
        if not options.exactly_once:
            return TaskDone(TaskResult(self._job_id, task, None, write_rows(options, iterator)))
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return TaskDone(TaskResult(self._job_id, task))
        rows = chain([first], batches)
        return TaskDone(write_transaction(cluster_for(options), options, self._job_id, task, rows))

    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        if self._options.exactly_once:
            done = [one.result for one in messages if isinstance(one, TaskDone)]
            commit_job(cluster_for(self._options), self._options, done)

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        if self._options.exactly_once:
            cluster = cluster_for(self._options)
            abort_tasks(cluster, [one.result for one in messages if isinstance(one, TaskDone)])
            abort_left_over(cluster, f"{self._job_id}-")  # of tasks that failed


def write_rows(options: WriteOptions, iterator: "Iterator[pa.RecordBatch]") -> Mapping[TopicPartition, int]:
    """Write all rows, without a transaction; returns the number of rows by partition.  Raises RowError,
    KafkaClientError.
    """
    batches = (batch for batch in iterator if batch.num_rows)
    first = next(batches, None)
    if first is None:
        return {}
    from magnetar.pipelines.connector.write.rows import RowWriter

    cluster = cluster_for(options)
    rows = RowWriter(cluster, options, idempotent_producer(cluster) if options.idempotent else None)
    try:
        for batch in chain([first], batches):
            rows.write(batch)
        rows.flush()
    finally:
        rows.close()
    return rows.written

"""`df.writeStream.format("magnetar")`: the part that Spark calls; `exactly_once.py` explains how it writes exactly
once.

With `exactlyOnce=false` tasks write as in a batch job, and the rows of a repeated micro-batch are there twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.write.batch import TaskDone, write_rows
from magnetar.pipelines.connector.write.clusters import cluster_for
from magnetar.pipelines.connector.write.errors import SinkError
from magnetar.pipelines.connector.write.exactly_once import TaskResult, abort_tasks, commit_batch, write_task
from magnetar.pipelines.connector.write.options import parse
from magnetar.pipelines.connector.write.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class StreamWriter(DataSourceStreamArrowWriter):
    """See the module's text.  Spark creates one for planning, one for each task, one for each commit.

    Raises:
        OptionError, SchemaError: in the constructor.
    """

    def __init__(self, given: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "outputMode complete: a topic only grows; use append or update, with the key in a column key"
            )
        self._options = parse(given, streaming=True)
        check_schema(schema, self._options)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskDone:
        query_id, batch_id, task = _task()
        query_id = self._options.name_prefix + query_id
        batches = (batch for batch in iterator if batch.num_rows)
        if not self._options.exactly_once:
            return TaskDone(TaskResult(query_id, task, None, write_rows(self._options, batches)))
        first = next(batches, None)
        if first is None:
            return TaskDone(TaskResult(query_id, task))
        rows = chain([first], batches)
        return TaskDone(write_task(cluster_for(self._options), self._options, query_id, batch_id, task, rows))

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one.result for one in messages if isinstance(one, TaskDone)]
        if self._options.exactly_once and done:
            commit_batch(cluster_for(self._options), self._options, done, batchId)

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one.result for one in messages if isinstance(one, TaskDone)]
        # If all messages are there, the batch may have been decided: Spark also calls this after a failed commit.
        if self._options.exactly_once and len(done) < len(messages):
            abort_tasks(cluster_for(self._options), done)


def _task() -> tuple[str, int, int]:
    """The query's id, the number of the micro-batch, the number of the task."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch_id = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or query_id is None or batch_id is None:
        raise SinkError("this is no task of a streaming query: Spark names neither the query nor its batch")
    return query_id, int(batch_id), context.partitionId()

"""The sink `magnetar-table` of a streaming query over descriptors: the part of a table pipeline that Spark calls.

Tasks get slices of topics, not records: they read, decode and write themselves (`task.py`), so no record passes
through the JVM.  The driver then adds all files to the table (`batches.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.pipelines.connector.read.slices import slices_of
from magnetar.pipelines.kinds.table import batches
from magnetar.pipelines.kinds.table.config import TableConfig
from magnetar.pipelines.targets.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "magnetar-table"
CONFIG: Final = "config"


class TableSink(DataSource):
    """Its option is `config`, a `TableConfig` as JSON."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "TableWriter":
        return TableWriter(TableConfig.of_json(self.options[CONFIG]))


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task sends to the driver."""

    written: batches.Written


class TableWriter(DataSourceStreamArrowWriter):
    """Spark creates one for planning, one for each task and one for each commit."""

    def __init__(self, config: TableConfig) -> None:
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        query, batch, number = _task()
        return TaskDone(batches.write(self._config, query, batch, number, slices_of(iterator)))

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one.written for one in messages if isinstance(one, TaskDone)]
        if done:
            batches.commit(self._config, done, batchId)

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one.written for one in messages if isinstance(one, TaskDone)]
        # If all messages are there, the batch may be committed: Spark also calls this after a failed commit.
        if len(done) < len(messages):
            batches.abort(self._config, done)


def _task() -> tuple[str, int, int]:
    """The query's id, the number of the micro-batch, the number of the task."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or query is None or batch is None:
        raise TableError("this is no task of a streaming query: Spark names neither the query nor its batch")
    return query, int(batch), context.partitionId()

"""The sink `magnetar-table` of a streaming query over descriptors: what Spark sees of a table pipeline.

Tasks get slices of topics, not records: they read, decode and write on their own (`task.py`), and no record passes
through the JVM.  The driver then makes all of it part of the table (`target.py`), after the dead letters have become
visible: those are written in transactions of the sink `magnetar`, so they too are there once, whatever is run again.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.client.kafka.cluster import Cluster
from magnetar.pipelines.sink.clusters import cluster_for
from magnetar.pipelines.sink.exactly_once import TaskResult, abort_tasks, commit_batch, write_task
from magnetar.pipelines.sink.options import WriteOptions, parse
from magnetar.pipelines.source.broker import client_of
from magnetar.pipelines.source.slices import Slice
from magnetar.pipelines.tables.config import TableConfig
from magnetar.pipelines.tables.dead_letters import sink_options
from magnetar.pipelines.tables.errors import TableError
from magnetar.pipelines.tables.evolution import merged
from magnetar.pipelines.tables.parts import Part
from magnetar.pipelines.tables.schemas import ServerSchemas
from magnetar.pipelines.tables.target import Batch
from magnetar.pipelines.tables.task import TableTask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log: Final = logging.getLogger(__name__)

NAME: Final = "magnetar-table"
CONFIG: Final = "config"
ADMIN_URL: Final = "admin.url"
_PATIENCE_S: Final = 120.0


class TableSink(DataSource):
    """Options: `config`, a `TableConfig` as JSON, and `admin.url`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "TableWriter":
        return TableWriter(TableConfig.of_json(self.options[CONFIG]), self.options[ADMIN_URL])


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task sends to the driver; `schema` is an Arrow schema, serialized."""

    query: str
    parts: list[Part]
    schema: bytes | None
    dead: TaskResult | None
    dropped: int


class TableWriter(DataSourceStreamArrowWriter):
    """Spark makes one for planning, one for each task and one for each commit."""

    def __init__(self, config: TableConfig, admin_url: str) -> None:
        self._config = config
        self._admin_url = admin_url

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        query, batch, number = _task()
        schemas = ServerSchemas(client_of(self._admin_url, _PATIENCE_S))
        task = TableTask(self._config, schemas, query, batch)
        try:
            letters = task.run(_slices(iterator))
            first = next(letters, None)  # a transaction only where there is something for it
            dead = None
            if first is not None:
                rows = chain([first], letters)
                dead = write_task(*self._dead_letters(), _dead(query), batch, number, rows)
        except BaseException:
            task.abandon()
            raise
        schema = None if task.schema is None else task.schema.serialize().to_pybytes()
        return TaskDone(query, task.parts, schema, dead, task.dropped)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one for one in messages if isinstance(one, TaskDone)]
        dead = [one.dead for one in done if one.dead is not None]
        if dead:
            commit_batch(*self._dead_letters(), dead, batchId)
        if dropped := sum(one.dropped for one in done):
            log.warning("%s: %d records that cannot be read are dropped", self._config.name, dropped)
        parts = [part for one in done for part in one.parts]
        if not parts:
            return
        schema = pa.schema([])
        for one in done:
            if one.schema is not None:
                found = pa.ipc.read_schema(pa.py_buffer(one.schema))
                schema = merged(schema, found, whose="another topic") if schema.names else found
        self._config.target().commit(Batch(done[0].query, batchId, parts, schema))

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one for one in messages if isinstance(one, TaskDone)]
        dead = [one.dead for one in done if one.dead is not None]
        # With all messages there the batch may have been decided already: a commit that failed comes here, too.
        if len(done) < len(messages):
            if dead:
                abort_tasks(self._dead_letters()[0], dead)
            self._config.target().folder.remove(part.name for one in done for part in one.parts)

    def _dead_letters(self) -> tuple[Cluster, WriteOptions]:
        options = parse(sink_options(self._config))
        return cluster_for(options), options


def _dead(query: str) -> str:
    """Dead letters are a stream of their own: its batches are decided apart from those of the table."""
    return f"{query}-dead"


def _slices(iterator: Iterator[pa.RecordBatch]) -> Iterator[Slice]:
    for batch in iterator:
        for plan in batch.column("plan").to_pylist():
            yield Slice.parse(plan)


def _task() -> tuple[str, int, int]:
    """The query's id, the number of the micro-batch, the number of the task."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or query is None or batch is None:
        raise TableError("this is no task of a streaming query: Spark names neither the query nor its batch")
    return query, int(batch), context.partitionId()

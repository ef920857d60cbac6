"""The sink `magnetar-replicator` of a streaming query over descriptors: the part of a replicator that Spark sees.

Tasks get slices of the topic, not records: they read and send by themselves (`task.py`), so no record passes through
the JVM.  The batch counts, and the subscription moves, when the target has all of its records.

A task whose target fails does not fail itself, as Spark would try it again at once, several times: it says so in its
message, and the batch fails.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.client.login import Server
from magnetar.pipelines.connector.read.client import client_of
from magnetar.pipelines.connector.read.slices import Slice
from magnetar.pipelines.connector.write.batch import write_rows
from magnetar.pipelines.connector.write.options import parse
from magnetar.pipelines.kinds.dead_letters import sink_options
from magnetar.pipelines.kinds.replicator.config import ReplicatorConfig
from magnetar.pipelines.kinds.replicator.fields import FieldReader
from magnetar.pipelines.kinds.replicator.producers import Producers
from magnetar.pipelines.kinds.replicator.task import ReplicatorTask
from magnetar.pipelines.kinds.topic_schemas import ServerSchemas
from magnetar.replicators.errors import CredentialsRefused, ReplicatorConfigError, TargetUnavailable
from magnetar.replicators.registry import find_provider

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log: Final = logging.getLogger(__name__)

NAME: Final = "magnetar-replicator"
FILE: Final = "file"
_PATIENCE_S: Final = 120.0  # for a schema
# What outlasts the others comes first: it is what a user has to know.
_KINDS: Final = (ReplicatorConfigError, CredentialsRefused, TargetUnavailable)


class ReplicatorSink(DataSource):
    """Its option `file` names what `ReplicatorConfig.write` wrote."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "ReplicatorWriter":
        return ReplicatorWriter(self.options[FILE])


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task sends to the driver: how many records the target and the dead-letter topic have, and why the task did
    not continue.  The reason is the number of a kind of error, and its text.
    """

    sent: int
    dead: int
    failure: tuple[int, str] | None


class ReplicatorWriter(DataSourceStreamArrowWriter):
    """Spark makes one for planning, one for each task and one for each commit."""

    def __init__(self, file: str) -> None:
        self._file = file

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        config = ReplicatorConfig.read(self._file)
        task = ReplicatorTask(
            config, Producers(config), lambda rows: _write_letters(config, rows), fields=_fields(config)
        )
        failure = task.run(_slices(iterator))
        for _ in iterator:
            pass  # Spark expects that all rows are consumed
        found = None
        if failure is not None:
            number = next(n for n, kind in enumerate(_KINDS) if isinstance(failure, kind))
            found = (number, str(failure))
        return TaskDone(task.sent, task.dead, found)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        done = [one for one in messages if isinstance(one, TaskDone)]
        failures = [one.failure for one in done if one.failure is not None]
        if failures:
            number, text = min(failures)
            raise _KINDS[number](text)
        if dead := sum(one.dead for one in done):
            log.warning(
                "batch %d: the target does not take %d records; they become dead letters", batchId, dead
            )

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """Do nothing: the target keeps the records that it has, and the next attempt sends them again."""


def _fields(config: ReplicatorConfig) -> FieldReader | None:
    if not getattr(find_provider(config.values["type"]), "reads_fields", False):
        return None
    return FieldReader(ServerSchemas(client_of(Server(config.admin_url, config.context), _PATIENCE_S)))


def _write_letters(config: ReplicatorConfig, rows: pa.RecordBatch) -> None:
    options = parse(sink_options(config.bootstrap, config.context, config.own_name), streaming=True)
    write_rows(options, iter([rows]))


def _slices(iterator: Iterator[pa.RecordBatch]) -> Iterator[Slice]:
    for batch in iterator:
        for plan in batch.column("plan").to_pylist():
            yield Slice.parse(plan)

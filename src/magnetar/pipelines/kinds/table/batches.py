"""One micro-batch: what each task writes, and how the driver commits it.  `sink.py` is the part that Spark calls.

Dead letters become visible first, then the rows; each step checks whether it was done before.  So a batch that runs
again after a failure is finished, at whichever step it failed.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from magnetar.client.kafka.cluster import Cluster
from magnetar.pipelines.connector.read.client import client_of
from magnetar.pipelines.connector.write.clusters import cluster_for
from magnetar.pipelines.connector.write.exactly_once import TaskResult, abort_tasks, commit_batch, write_task
from magnetar.pipelines.connector.write.options import WriteOptions, parse
from magnetar.pipelines.kinds.dead_letters import sink_options
from magnetar.pipelines.kinds.table.config import TableConfig
from magnetar.pipelines.kinds.table.task import Readable, TableTask
from magnetar.pipelines.kinds.topic_schemas import ServerSchemas
from magnetar.pipelines.targets.evolution import merged
from magnetar.pipelines.targets.parts import Part
from magnetar.pipelines.targets.target import Batch

log: Final = logging.getLogger(__name__)

_PATIENCE_S: Final = 120.0
_DEAD: Final = "-dead"  # dead letters are a stream of their own, whose batches are decided separately


@dataclass(frozen=True, slots=True)
class Written:
    """What one task returns to the driver.  It can be pickled.

    schema   of the rows, an Arrow schema as bytes; None if there are none
    dead     the result of its dead letters; None if there are none
    dropped  the number of unreadable records that were dropped
    """

    query: str
    parts: Sequence[Part]
    schema: bytes | None
    dead: TaskResult | None
    dropped: int


def write(config: TableConfig, query: str, batch: int, number: int, slices: Iterable[Readable]) -> Written:
    """Run task `number` of a batch: write its files, and leave its dead letters in an open transaction.

    Raises:
        OptionError, TableError, SourceError, KafkaClientError: the task has failed, and its files are removed.
    """
    task = TableTask(config, ServerSchemas(client_of(config.server, _PATIENCE_S)), query, batch)
    try:
        letters = task.run(slices)
        first = next(letters, None)  # a transaction only if there is something to write
        dead = None
        if first is not None:
            cluster, options = _dead_letters(config)
            stream = f"{options.name_prefix}{query}{_DEAD}"
            dead = write_task(cluster, options, stream, batch, number, chain([first], letters))
    except BaseException:
        task.abandon()
        raise
    schema = None if task.schema is None else task.schema.serialize().to_pybytes()
    return Written(query, task.parts, schema, dead, task.dropped)


def commit(config: TableConfig, done: Sequence[Written], batch: int) -> None:
    """Make the output of all tasks of a batch visible, once.

    Raises:
        OptionError, TableError, SinkError, KafkaClientError: the commit must be repeated.
    """
    commit_dead(config, done, batch)
    parts = [part for one in done for part in one.parts]
    if parts:
        config.target().commit(Batch(done[0].query, batch, parts, columns_of(done)))


def commit_dead(config: TableConfig, done: Sequence[Written], batch: int) -> None:
    """Make the dead letters of a batch visible, once.  Raises as `commit`."""
    dead = [one.dead for one in done if one.dead is not None]
    if dead:
        commit_batch(*_dead_letters(config), dead, batch)
    if dropped := sum(one.dropped for one in done):
        log.warning("%s: the pipeline drops %d records that it cannot read", config.name, dropped)


def abort(config: TableConfig, done: Sequence[Written]) -> None:
    """Remove what these tasks have written, if the batch was not committed."""
    dead = [one.dead for one in done if one.dead is not None]
    if dead:
        abort_tasks(_dead_letters(config)[0], dead)
    config.target().folder.remove(part.name for one in done for part in one.parts)


def columns_of(done: Sequence[Written]) -> pa.Schema:
    """The columns of all rows of a batch, which has some."""
    schema = None
    for one in done:
        if one.schema is not None:
            found = pa.ipc.read_schema(pa.py_buffer(one.schema))
            schema = found if schema is None else merged(schema, found, whose="another topic")
    return schema


def _dead_letters(config: TableConfig) -> tuple[Cluster, WriteOptions]:
    given = sink_options(config.bootstrap, config.context, config.subscription)
    options = parse(given, streaming=True)
    return cluster_for(options), options

"""Rows of a table of a database, and those that come later, into a topic: by a column whose numbers grow.

A batch has the rows with numbers above those of the batch before, up to the greatest one that there was when it was
planned.  Spark's log has both ends before the batch runs, so a batch that runs again has the same numbers, and the
transactions of the topic's writer store it once.

Only the JVM speaks with databases, and the part of a source that plans is a process without it.  So a thread of the
worker asks for the greatest number, and leaves it in a file (`numbers.py`), which the plan reads (`Numbers`).  The rows
are read and written when Spark calls `batch_writer` with the two ends.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource

from magnetar.base.errors import ConfigError
from magnetar.pipelines.connector.write.clusters import cluster_for
from magnetar.pipelines.connector.write.exactly_once import TaskResult, commit_batch, write_task
from magnetar.pipelines.connector.write.options import WriteOptions, parse
from magnetar.pipelines.kinds.database_tables import query_of, told
from magnetar.pipelines.kinds.source.numbers import NOTHING, read_number
from magnetar.pipelines.kinds.source.tables import PATH, TableReader
from magnetar.pipelines.kinds.source.values import value
from magnetar.pipelines.targets.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ENDS: Final = "above BIGINT, up_to BIGINT"
_WRITTEN: Final = "written BINARY"


class Span(NamedTuple):
    """The numbers of one batch: above `above`, which is NOTHING for the first batch, up to `up_to`."""

    above: int
    up_to: int


class Numbers:
    """The history of a table by its numbers, as `tables.History` wants it: a file is a span."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def newest(self) -> int:
        """Raises TableError: the watcher cannot reach the database."""
        number, trouble = read_number(self._file)
        if trouble:
            raise TableError(trouble)
        return number

    def gained(self, after: int, to: int) -> list[Span]:
        return [] if after == to else [Span(after, to)]

    def rows(self, file: Span, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([end], pa.int64()) for end in file], schema=wanted)


class NumbersSource(DataSource):
    """Its option is `path`, the file of a watcher; its rows are the ends of batches."""

    @classmethod
    def name(cls) -> str:
        return "magnetar-numbers"

    def streamReader(self, schema: "StructType") -> TableReader:
        path = self.options[PATH]
        return TableReader(Numbers(path), path, schema)


@dataclass(frozen=True, slots=True)
class Source:
    """A table with the columns that become fields, and the one with the numbers.  `read` has all its rows, and
    `options` are those of its database.
    """

    read: "Callable[[], DataFrame]"
    options: Mapping[str, str]
    columns: "StructType"
    numbers: str


def batch_writer(
    spark: "SparkSession", name: str, source: Source, sink: Mapping[str, str]
) -> "Callable[[DataFrame, int], None]":
    """What Spark calls with the ends of each batch; `sink` are the options of the topic's writer."""
    options = parse(sink, streaming=True)

    def write(ends: "DataFrame", number: int) -> None:
        query = options.name_prefix + query_of(spark, name)
        for span in ends.collect():
            with told(source.options):
                rows = between(source.read(), source.numbers, Span(span.above, span.up_to))
                values = rows.select(value(source.columns))
                found = values.mapInArrow(_task(options, query, number), _WRITTEN).collect()
            done = [pickle.loads(one.written) for one in found]  # noqa: S301  of our own tasks
            if done:
                commit_batch(cluster_for(options), options, done, number)

    return write


def between(rows: "DataFrame", column: str, span: Span) -> "DataFrame":
    """The rows of a batch."""
    from pyspark.sql import functions

    numbers = functions.col(column)
    wanted = numbers <= span.up_to
    return rows.where(wanted if span.above == NOTHING else wanted & (numbers > span.above))


def column_of_numbers(rows: "DataFrame", table: str, column: str) -> str:
    """The column's name as the table has it.

    Raises:
        ConfigError: the table has no such column, or it has other values than whole numbers.
    """
    from pyspark.sql.types import DecimalType, IntegralType

    field = next((one for one in rows.schema.fields if one.name.lower() == column.lower()), None)
    if field is None:
        raise ConfigError(
            f"table {table} has no column {column}: there are {', '.join(rows.schema.names)[:500]}"
        )
    kind = field.dataType
    if not isinstance(kind, IntegralType) and not (isinstance(kind, DecimalType) and kind.scale == 0):
        raise ConfigError(
            f"column {column} of {table} must have whole numbers, and has {kind.simpleString()}"
        )
    return str(field.name)


def _task(
    options: WriteOptions, query: str, number: int
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def run(rows: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        batches = (one for one in rows if one.num_rows)
        first = next(batches, None)
        done = TaskResult(query, task)
        if first is not None:
            done = write_task(cluster_for(options), options, query, number, task, _from(first, batches))
        yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(done)]})

    return run


def _from(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest

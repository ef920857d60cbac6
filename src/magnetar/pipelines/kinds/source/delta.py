"""The data source `magnetar-delta`: the rows of a Delta table, and those that are added to it, as a stream.

An offset is a version of the table.  The first batch has all rows of the version that is the newest then, each later
one those that the versions since have added (`targets/delta_log.py`).  A batch that runs again has the same rows, as
long as the table keeps its files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from magnetar.pipelines.targets.delta_log import NOTHING, DataFile, DeltaLog
from magnetar.pipelines.targets.errors import TableDamaged
from magnetar.pipelines.targets.evolution import conformed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "magnetar-delta"
PATH: Final = "path"
TASKS_MAX: Final = 16  # of a batch
ROWS_AT_ONCE: Final = 10_000
_VERSION: Final = "version"


class DeltaSource(DataSource):
    """Its option is `path`, the folder of the table."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: "StructType") -> "DeltaReader":
        return DeltaReader(self.options[PATH], schema)


@dataclass
class FilesTask(InputPartition):
    """The files that one task reads."""

    files: Sequence[DataFile]


class DeltaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's side of the stream; `read` runs in tasks, on a copy."""

    def __init__(self, path: str, schema: "StructType") -> None:
        self._log = DeltaLog(path)
        self._path = path
        self._schema = schema
        self._last: int | None = None  # of a run that ends (AvailableNow)

    def initialOffset(self) -> dict[str, int]:
        return {_VERSION: NOTHING}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._log.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        newest = self._log.newest() if self._last is None else self._last
        if newest < start[_VERSION]:
            raise TableDamaged(
                f"{self._path}: the table was read to version {start[_VERSION]} and has version {newest} now:"
                " it was made anew"
            )
        return {_VERSION: newest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        files = self._log.gained(start[_VERSION], end[_VERSION])
        count = min(len(files), TASKS_MAX)
        return [FilesTask(files[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FilesTask):
            return  # nothing to read: Spark makes one partition of none
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for file in partition.files:
            try:
                with pq.ParquetFile(self._log.path_of(file)) as opened:
                    for rows in opened.iter_batches(ROWS_AT_ONCE):
                        yield conformed(_with_values(rows, file, wanted), wanted)
            except FileNotFoundError:
                raise TableDamaged(f"{self._path}: the table's file {file.name} is gone") from None


def _with_values(rows: pa.RecordBatch, file: DataFile, wanted: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns that partition the table, which its files do not have."""
    for name, text in file.values.items():
        if name in wanted.names and name not in rows.schema.names:
            value = _value(text, wanted.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """What the log means by a text.  See "Partition Value Serialization" of the protocol."""
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):  # in UTC, with its zone or without
        return pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(text).cast(kind)

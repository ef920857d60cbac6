"""The data sources `magnetar-delta` and `magnetar-iceberg`: the rows of a table, and those that are added to it, as a
stream.

An offset is a version of the table.  The first batch has all rows of the version that is the newest then, each later
one those that the versions since have added.  A batch that runs again has the same rows, as long as the table keeps its
files.  What a version is, and which files it has, is the table's own (`targets/delta_log.py`,
`targets/iceberg/history.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from magnetar.pipelines.targets.delta_log import DeltaLog
from magnetar.pipelines.targets.errors import TableDamaged
from magnetar.pipelines.targets.evolution import conformed
from magnetar.pipelines.targets.iceberg.history import IcebergHistory

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PATH: Final = "path"
NOTHING: Final = -1  # the version before the first one, of every table
TASKS_MAX: Final = 16  # of a batch
_VERSION: Final = "version"


class History(Protocol):
    """What a table has gained from one version to another.  A file can be pickled."""

    def newest(self) -> int: ...

    def gained(self, after: int, to: int) -> Sequence[Any]: ...

    def rows(self, file: Any, wanted: pa.Schema) -> Iterator[pa.RecordBatch]: ...


class DeltaSource(DataSource):
    """Its option is `path`, the folder of the table."""

    @classmethod
    def name(cls) -> str:
        return "magnetar-delta"

    def streamReader(self, schema: "StructType") -> "TableReader":
        path = self.options[PATH]
        return TableReader(DeltaLog(path), path, schema)


class IcebergSource(DataSource):
    """Its option is `path`, the folder of the table."""

    @classmethod
    def name(cls) -> str:
        return "magnetar-iceberg"

    def streamReader(self, schema: "StructType") -> "TableReader":
        path = self.options[PATH]
        return TableReader(IcebergHistory(path), path, schema)


@dataclass
class FilesTask(InputPartition):
    """The files that one task reads."""

    files: Sequence[Any]


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's side of the stream; `read` runs in tasks, on a copy."""

    def __init__(self, history: History, path: str, schema: "StructType") -> None:
        self._history = history
        self._path = path
        self._schema = schema
        self._last: int | None = None  # of a run that ends (AvailableNow)

    def initialOffset(self) -> dict[str, int]:
        return {_VERSION: NOTHING}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._history.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        newest = self._history.newest() if self._last is None else self._last
        if newest < start[_VERSION]:
            raise TableDamaged(
                f"{self._path}: the table was read to version {start[_VERSION]} and has version {newest} now:"
                " it was made anew"
            )
        return {_VERSION: newest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        files = self._history.gained(start[_VERSION], end[_VERSION])
        count = min(len(files), TASKS_MAX)
        return [FilesTask(files[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FilesTask):
            return  # nothing to read: Spark makes one partition of none
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for file in partition.files:
            for rows in self._history.rows(file, wanted):
                yield conformed(rows, wanted)

"""The layout of a table: a row has the record's place and the fields of its value; and how files are divided.

Columns of the record's place have the prefix `__` (`metadata_prefix`), so that they rarely have the name of a field.
A table is partitioned by `record_date` and `record_hour`, of the record's timestamp in UTC; these have no underscore
at the beginning, because readers of folders skip such directories.  A timestamp out of range (before 1970, or from
the year 2262 on) has no date: such records are in the partition of null.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from magnetar.pipelines.connector.columns import KAFKA_TYPES, OTHER_TYPES
from magnetar.pipelines.targets.errors import SchemaConflict

# The possible columns of a record's place: the name in `metadata_columns`, and the source's column.
METADATA: Final[Mapping[str, str]] = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestampType",
    "key": "key",
    "headers": "headers",
    "message_id": "__messageId",
    "publish_time": "__publishTime",
    "event_time": "__eventTime",
    "producer_name": "__producerName",
    "sequence_id": "__sequenceId",
    "properties": "__messageProperties",
}
METADATA_DEFAULT: Final = ("topic", "partition", "offset", "timestamp", "key")
PREFIX_DEFAULT: Final = "__"

RECORD_DATE: Final = "record_date"
RECORD_HOUR: Final = "record_hour"
PARTITIONINGS: Final[Mapping[str, tuple[pa.Field, ...]]] = {
    "none": (),
    "day": (pa.field(RECORD_DATE, pa.date32()),),
    "hour": (pa.field(RECORD_DATE, pa.date32()), pa.field(RECORD_HOUR, pa.int32())),
}
_STEP_US: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}
_TIME_US_MAX: Final = 9_214_646_400_000_000  # 2262-01-01
_NO_TIME: Final = -1

_TYPES: Final = KAFKA_TYPES | OTHER_TYPES
# These are always read: for the place of dead letters, and for naming and dividing files.
_NEEDED: Final = ("key", "value", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows: checked values of a table pipeline's configuration."""

    metadata_columns: tuple[str, ...] = METADATA_DEFAULT
    metadata_prefix: str = PREFIX_DEFAULT
    partition_by: str = "day"

    @property
    def metadata(self) -> pa.Schema:
        """The columns of a record's place."""
        return pa.schema(
            [(self.metadata_prefix + name, _TYPES[METADATA[name]]) for name in self.metadata_columns]
        )

    @property
    def partitioning(self) -> tuple[pa.Field, ...]:
        """The columns by which files are divided; they come last."""
        return PARTITIONINGS[self.partition_by]

    def wanted(self, more: Sequence[str] = ()) -> tuple[str, ...]:
        """The source's columns that must be read for these columns, and `more`."""
        names = {METADATA[name] for name in self.metadata_columns} | set(_NEEDED) | set(more)
        return tuple(name for name in _TYPES if name in names)

    def schema(self, values: pa.Schema, *, whose: str) -> pa.Schema:
        """All columns of a row whose value has the columns `values`.  Raises SchemaConflict if a name occurs twice."""
        own = pa.schema([*self.metadata, *self.partitioning])
        for name in values.names:
            if name.lower() in {one.lower() for one in own.names}:
                raise SchemaConflict(
                    f'{whose} has a field "{name}", as the table itself: set metadata_prefix or partition_by'
                )
        return pa.schema([*self.metadata, *values, *self.partitioning])

    def rows(self, source: pa.RecordBatch, values: pa.RecordBatch) -> pa.RecordBatch:
        """Rows without the columns of `partitioning`, which files do not contain."""
        place = [source.column(METADATA[name]) for name in self.metadata_columns]
        schema = pa.schema([*self.metadata, *values.schema])
        return pa.RecordBatch.from_arrays([*place, *values.columns], schema=schema)

    def divided(self, timestamps: pa.Array) -> Iterator[tuple["Division", Any]]:
        """The divisions of rows with these timestamps, each with the numbers of its rows (None: all)."""
        if self.partition_by == "none":
            yield Division(), None
            return
        times = np.frombuffer(timestamps.buffers()[1], np.int64)[
            timestamps.offset : timestamps.offset + len(timestamps)
        ]
        steps = times // _STEP_US[self.partition_by]
        steps = np.where((times < 0) | (times >= _TIME_US_MAX), _NO_TIME, steps)
        if len(steps) and (steps[0] == steps).all():
            yield self._division(int(steps[0])), None
            return
        order = np.argsort(steps, kind="stable")
        cuts = np.flatnonzero(np.diff(steps[order])) + 1
        for numbers in np.split(order, cuts):
            yield self._division(int(steps[numbers[0]])), np.sort(numbers)

    def _division(self, step: int) -> "Division":
        if step == _NO_TIME:
            return Division(None, None, self.partition_by)
        begin = datetime.fromtimestamp(step * _STEP_US[self.partition_by] // 1_000_000, UTC)
        return Division(begin.date(), begin.hour if self.partition_by == "hour" else None, self.partition_by)


_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Division:
    """The records of one day or hour; `day` is None for records without a date."""

    day: date | None = None
    hour: int | None = None
    partition_by: str = "none"

    @property
    def values(self) -> dict[str, str | None]:
        """The values of the partition columns, in the form of Delta's log."""
        texts = {
            RECORD_DATE: None if self.day is None else self.day.isoformat(),
            RECORD_HOUR: None if self.hour is None else str(self.hour),
        }
        return {field.name: texts[field.name] for field in PARTITIONINGS[self.partition_by]}

    @property
    def directory(self) -> str:
        """The directory, with Hive's naming; empty, or with a slash at the end."""
        return "".join(f"{name}={_NULL if text is None else text}/" for name, text in self.values.items())

"""What the files of a table are written as: Parquet, lines of JSON, or CSV with a header.

JSON and CSV have fewer types than a table.  In both, bytes are base64, decimals are texts, and dates and times are
texts of ISO 8601.  In JSON, a float that is no number is the text `NaN`, `Infinity` or `-Infinity`.  In CSV, a text is
always in quotes, so that an empty one is not null, and structs, lists and maps are their JSON.  Null is null in JSON,
and nothing in CSV.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

PARQUET: Final = "parquet"
JSON: Final = "json"
CSV: Final = "csv"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


class RowWriter(Protocol):
    """Writes one file; it is complete when `close` has returned."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Parquet:
    """Each table becomes one row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer: Any = pq.ParquetWriter(
            path, schema, compression="zstd", compression_level=1, write_page_index=True
        )

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        self._writer.close()


class _Json:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._names = schema.names
        self._file = path.open("w", encoding="utf-8")

    def write_table(self, table: pa.Table) -> None:
        for batch in table.to_batches():
            for row in zip(*(_plain(column) for column in batch.columns), strict=True):
                self._file.write(_json(dict(zip(self._names, row, strict=True))) + "\n")

    def close(self) -> None:
        self._file.close()


class _Csv:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = pa.schema([(field.name, _csv_type(field.type)) for field in schema])
        self._writer: Any = pyarrow.csv.CSVWriter(path, self._schema)

    def write_table(self, table: pa.Table) -> None:
        columns = [
            column if column.type.equals(field.type) else _texts(column)
            for column, field in zip(table.columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


_WRITERS: Final[Mapping[str, Callable[[Path, pa.Schema], RowWriter]]] = {
    PARQUET: _Parquet,
    JSON: _Json,
    CSV: _Csv,
}


def open_rows(form: str, path: Path, schema: pa.Schema) -> RowWriter:
    """A new file at `path` for rows of this schema.  Raises OSError."""
    return _WRITERS[form](path, schema)


def _plain(column: pa.Array) -> list[Any]:
    """What JSON can say of each value.

    Times do not become Python's, whose years end at 9999: any client can give a record another time.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*(_plain(part) for part in column.flatten()), strict=True)
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for row, is_valid in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_list(kind):
        return _divided(column, _plain(column.values))
    if pa.types.is_map(kind):
        pairs = list(zip(column.keys.to_pylist(), _plain(column.items), strict=True))
        return [None if one is None else dict(one) for one in _divided(column, pairs)]
    if pa.types.is_timestamp(kind):
        numbers = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        return [_time(one, "Z" if kind.tz else "") for one in numbers]
    if pa.types.is_date(kind):
        return [_date(one) for one in column.cast(pa.date32()).cast(pa.int32()).to_pylist()]
    return [_scalar(one) for one in column.to_pylist()]


def _divided(column: pa.Array, items: list[Any]) -> list[Any]:
    """The items of each list; None for null."""
    ends = column.offsets.to_pylist()
    return [
        items[begin:end] if is_valid else None
        for (begin, end), is_valid in zip(pairwise(ends), column.is_valid().to_pylist(), strict=True)
    ]


def _time(us: int | None, zone: str) -> str | None:
    """The time in ISO 8601; its microseconds since 1970 if no year of four digits has it."""
    if us is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat() + zone
    except OverflowError:
        return str(us)


def _date(days: int | None) -> str | None:
    """As `_time`, with days."""
    if days is None:
        return None
    try:
        return (_EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return str(days)


def _scalar(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _csv_type(kind: pa.DataType) -> pa.DataType:
    """Numbers and booleans stay; all else becomes a text."""
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return kind if is_plain else pa.string()


def _texts(column: pa.ChunkedArray) -> pa.Array:
    values = [one for chunk in column.chunks for one in _plain(chunk)]
    return pa.array([_json(one) if isinstance(one, dict | list) else one for one in values], pa.string())

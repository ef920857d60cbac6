"""Rows for a user or another program: a table, CSV, JSON lines or Parquet.

    table     for reading
    csv       a header, then RFC 4180; NULL is an empty field, an empty text is `""`; nested values are JSON
    json      one object a line, in UTF-8; times are ISO 8601, decimals and numbers that JSON lacks are text
    parquet   columns with their types

Bytes are shown as text if they are UTF-8.  Otherwise they are `\\x` and hexadecimal digits in table and csv, and
`{"base64": "..."}` in json.
"""

import base64
import contextlib
import datetime
import decimal
import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from magnetar.pipelines.sql.errors import StatementError

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_ROWS: Final = 8_192
_LINE_CHARACTERS: Final = 1_000_000  # of a table that is not for a terminal, where each row has one line
_CELL_CHARACTERS_MAX: Final = 2_000
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@contextlib.contextmanager
def sink(file: Path | None) -> Iterator[IO[bytes]]:
    """The stream for a result: standard output, or `file`, which appears only when it is complete."""
    if file is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)  # mkstemp makes files private; this is an ordinary file
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write(table: "pa.Table", style: Format, stream: IO[bytes], *, width: int | None = None) -> None:
    """Write `table`; `width` is the terminal's width in characters, None if lines may have any length.

    Raises:
        StatementError: the format is JSON or Parquet, and two columns have the same name.
    """
    match style:
        case Format.TABLE:
            _write_table(table, stream, width)
        case Format.CSV:
            _write_csv(table, stream)
        case Format.JSON:
            _refuse_twins(table)
            _write_json(table, stream)
        case Format.PARQUET:
            _refuse_twins(table)
            _write_parquet(table, stream)


def _write_table(table: "pa.Table", stream: IO[bytes], width: int | None) -> None:
    import pyarrow as pa
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    names = [Text(_cell(name)) for name in table.column_names]
    for name, field in zip(names, table.schema, strict=True):
        number = (
            pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type)
        )
        shown.add_column(name, justify="right" if number else "left", overflow="fold")
    null = Text("NULL", style="dim")
    columns = [
        [null if text is None else Text(_cell(text)) for text in _texts(column)] for column in table.columns
    ]
    rows = list(zip(*columns, strict=True))
    for row in rows:
        shown.add_row(*row)
    out = io.StringIO()
    console = Console(file=out, width=_LINE_CHARACTERS, force_terminal=width is not None, highlight=False)
    if width is not None and Measurement.get(console, console.options, shown).maximum > width:
        # Too wide for a table: each row as a list of its columns, as in psql.
        console.width = width
        for number, row in enumerate(rows, start=1):
            console.rule(f"row {number}", align="left")
            record = Table.grid(padding=(0, 2))
            for name, value in zip(names, row, strict=True):
                record.add_row(Text(name.plain, style="bold"), value)
            console.print(record)
    else:
        console.print(shown)
    stream.write("".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()).encode())


def _write_csv(table: "pa.Table", stream: IO[bytes]) -> None:
    import pyarrow as pa
    from pyarrow import csv

    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        strange = (
            pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_null(field.type)
        )
        columns.append(pa.chunked_array([pa.array(_texts(column), pa.string())]) if strange else column)
    csv.write_csv(pa.table(columns, names=table.column_names), stream)


def _write_json(table: "pa.Table", stream: IO[bytes]) -> None:
    names = table.column_names
    converters = [_plain(field.type) for field in table.schema]
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
    for batch in table.to_batches(max_chunksize=_CHUNK_ROWS):
        columns = [
            values if convert is None else [None if value is None else convert(value) for value in values]
            for convert, values in zip(
                converters, (column.to_pylist() for column in batch.columns), strict=True
            )
        ]
        rows = zip(*columns, strict=True) if columns else ((),) * batch.num_rows
        stream.write("".join(f"{encode(dict(zip(names, row, strict=True)))}\n" for row in rows).encode())


def _write_parquet(table: "pa.Table", stream: IO[bytes]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    whole = pa.BufferOutputStream()  # Parquet's footer needs positions, which a pipe does not have
    parquet.write_table(table, whole, compression="zstd")
    stream.write(whole.getvalue())


def _texts(column: "pa.ChunkedArray") -> list[str | None]:
    """A column as texts; None for NULL."""
    import pyarrow as pa

    values = column.to_pylist()
    if pa.types.is_nested(column.type):
        convert = _plain(column.type) or _same
        return [None if value is None else json.dumps(convert(value), ensure_ascii=False) for value in values]
    return [None if value is None else _text(value) for value in values]


def _cell(text: str) -> str:
    """`text` without control characters for the terminal, and at most `_CELL_CHARACTERS_MAX` characters of it."""
    text = text[: _CELL_CHARACTERS_MAX + 1].translate(_CONTROL)
    return text if len(text) <= _CELL_CHARACTERS_MAX else f"{text[:_CELL_CHARACTERS_MAX]}..."


def _text(value: Any) -> str:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return f"\\x{value.hex()}"
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ", timespec="auto")
        case _:
            return str(value)


def _plain(kind: "pa.DataType") -> Callable[[Any], Any] | None:
    """A function that converts a value of this type to one of JSON; None if that is not needed."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        key, item = _plain(kind.key_type) or _same, _plain(kind.item_type) or _same
        return lambda pairs: {_json_key(key(k)): None if v is None else item(v) for k, v in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _plain(kind.value_type)
        return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(field.type) or _same for field in kind}
        return lambda row: {
            name: None if row[name] is None else convert(row[name]) for name, convert in fields.items()
        }
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return None
    return _plain_scalar


def _plain_scalar(value: Any) -> Any:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case datetime.timedelta():
            return value.total_seconds()
        case _:
            return value


def _json_key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False)


def _same(value: Any) -> Any:
    return value


def _refuse_twins(table: "pa.Table") -> None:
    names = table.column_names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise StatementError(
            f"two columns of the result are named {twice!r}: give one of them another name with AS"
        )

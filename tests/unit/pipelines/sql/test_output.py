"""Rows in every format."""

import csv
import datetime
import decimal
import io
import json
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipelines.sql.errors import StatementError
from magnetar.pipelines.sql.output import Format, sink, write

UTC = datetime.UTC
ROWS = pa.table(
    {
        "i": pa.array([1, None], pa.int32()),
        "s": ['a\x1b[31m,"b"', ""],
        "b": pa.array([b"hi", b"\xff\x00"]),
        "t": pa.array([datetime.datetime(2020, 1, 1, 5, 6, 7, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "l": pa.array([[1, None], None]),
        "r": pa.array([{"x": b"q", "y": 1.5}, {"x": b"\xff", "y": None}]),
        "m": pa.array([[("a", b"\x01")], []], pa.map_(pa.string(), pa.binary())),
        "f": [float("nan"), None],
        "d": pa.array([decimal.Decimal("1.50"), None]),
        "n": pa.nulls(2),
        "o": [True, None],
        "day": pa.array([datetime.date(2020, 1, 2), None]),
    }
)


def written(table: pa.Table, style: Format, width: int | None = None) -> bytes:
    stream = io.BytesIO()
    write(table, style, stream, width=width)
    return stream.getvalue()


def test_json_has_one_object_a_line_with_every_type() -> None:
    first, second = map(json.loads, written(ROWS, Format.JSON).splitlines())
    assert first == {
        "i": 1,
        "s": 'a\x1b[31m,"b"',
        "b": "hi",
        "t": "2020-01-01T05:06:07+00:00",
        "l": [1, None],
        "r": {"x": "q", "y": 1.5},
        "m": {"a": "\x01"},
        "f": "nan",
        "d": "1.50",
        "n": None,
        "o": True,
        "day": "2020-01-02",
    }
    assert second["b"] == {"base64": "/wA="}
    assert second["r"] == {"x": {"base64": "/w=="}, "y": None}
    assert second["s"] == ""
    assert second["m"] == {}


def test_csv_reads_back_and_tells_null_from_empty() -> None:
    text = written(ROWS, Format.CSV).decode()
    header, first, second = csv.reader(io.StringIO(text))
    assert header == ROWS.column_names
    assert first[:3] == ["1", 'a\x1b[31m,"b"', "hi"]
    assert json.loads(first[5]) == {"x": "q", "y": 1.5}
    assert second[2] == "\\xff00"
    assert text.splitlines()[2].startswith(',"",')


def test_csv_keeps_long_values_whole() -> None:
    long = b"x" * 10_000
    assert long in written(pa.table({"v": pa.array([long])}), Format.CSV)


def test_a_table_shows_what_cannot_drive_the_terminal() -> None:
    text = written(ROWS, Format.TABLE).decode()
    assert "\x1b" not in text
    assert "a\\x1b[31m" in text
    assert "2020-01-01 05:06:07" in text
    assert text.count("NULL") == 9
    assert len(text.splitlines()) == 4


def test_a_table_that_is_too_wide_for_the_terminal_shows_rows_below_each_other() -> None:
    text = written(ROWS, Format.TABLE, width=60).decode()
    assert "row" in text
    assert len(text.splitlines()) == 2 * (1 + ROWS.num_columns)


def test_a_table_that_fits_the_terminal_stays_one() -> None:
    assert len(written(pa.table({"a": [1, 2]}), Format.TABLE, width=40).splitlines()) == 4


def test_parquet_keeps_types() -> None:
    table = ROWS.drop_columns(["f"])
    assert pq.read_table(io.BytesIO(written(table, Format.PARQUET))).equals(table)


@pytest.mark.parametrize("style", list(Format))
def test_no_rows_are_written_too(style: Format) -> None:
    data = written(ROWS.slice(0, 0), style)
    assert (data == b"") == (style is Format.JSON)


@pytest.mark.parametrize("style", [Format.JSON, Format.PARQUET])
def test_two_columns_of_one_name_are_refused_where_one_would_be_lost(style: Format) -> None:
    twins = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(StatementError, match="two columns of the result are named 'a'"):
        written(twins, style)


@pytest.mark.parametrize("style", [Format.CSV, Format.TABLE])
def test_two_columns_of_one_name_are_shown_where_both_have_a_place(style: Format) -> None:
    twins = pa.table([pa.array([11]), pa.array([22])], names=["a", "a"])
    data = written(twins, style)
    assert b"11" in data
    assert b"22" in data


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"

    def fail_on_the_way() -> None:
        with sink(file) as stream:
            stream.write(b"half")
            raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        fail_on_the_way()
    assert list(tmp_path.iterdir()) == []
    with sink(file) as stream:
        stream.write(b"whole")
    assert file.read_bytes() == b"whole"
    assert stat.S_IMODE(file.stat().st_mode) & stat.S_IRUSR
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]

"""Rows as lines of JSON and as CSV, of every type that a table's columns have."""

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipelines.targets.errors import TableDamaged
from magnetar.pipelines.targets.files import FilesTarget
from magnetar.pipelines.targets.folder import open_folder
from magnetar.pipelines.targets.formats import CSV, JSON, PARQUET, open_rows
from magnetar.pipelines.targets.layout import Division, Layout
from magnetar.pipelines.targets.parts import Naming, PartWriter
from magnetar.pipelines.targets.target import Batch

FAR_US = 1 << 60  # no year of Python's
ROWS = pa.table(
    {
        "n": pa.array([1, None, 3], pa.int64()),
        "half": pa.array([0.5, float("nan"), float("-inf")]),
        "yes": pa.array([True, False, None]),
        "text": pa.array(['a "b", c\nd', "", None]),
        "raw": pa.array([b"\xff\x00", b"", None], pa.binary()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
        "day": pa.array([0, -1, None], pa.date32()),
        "at": pa.array([0, 1_500_000, FAR_US], pa.timestamp("us", "UTC")),
        "there": pa.array([0, None, FAR_US], pa.timestamp("us")),
        "who": pa.array(
            [{"name": "x", "born": 0}, None, {"name": None, "born": FAR_US}],
            pa.struct([("name", pa.string()), ("born", pa.timestamp("us"))]),
        ),
        "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
        "counts": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "lists": pa.array(
            [[[{"d": 0}], []], None, [None]], pa.list_(pa.list_(pa.struct([("d", pa.date32())])))
        ),
    }
)
SHOWN: list[dict[str, Any]] = [
    {
        "n": 1,
        "half": 0.5,
        "yes": True,
        "text": 'a "b", c\nd',
        "raw": "/wA=",
        "price": "1.50",
        "day": "1970-01-01",
        "at": "1970-01-01T00:00:00Z",
        "there": "1970-01-01T00:00:00",
        "who": {"name": "x", "born": "1970-01-01T00:00:00"},
        "tags": ["a", None],
        "counts": {"k": 1},
        "lists": [[{"d": "1970-01-01"}], []],
    },
    {
        "n": None,
        "half": "NaN",
        "yes": False,
        "text": "",
        "raw": "",
        "price": None,
        "day": "1969-12-31",
        "at": "1970-01-01T00:00:01.500000Z",
        "there": None,
        "who": None,
        "tags": [],
        "counts": {},
        "lists": None,
    },
    {
        "n": 3,
        "half": "-Infinity",
        "yes": None,
        "text": None,
        "raw": None,
        "price": "-0.01",
        "day": None,
        "at": str(FAR_US),
        "there": str(FAR_US),
        "who": {"name": None, "born": str(FAR_US)},
        "tags": None,
        "counts": None,
        "lists": [None],
    },
]


def written(form: str, path: Path, *tables: pa.Table) -> Path:
    writer = open_rows(form, path, tables[0].schema)
    for one in tables:
        writer.write_table(one)
    writer.close()
    return path


def test_a_line_of_json_says_every_value(tmp_path: Path) -> None:
    lines = written(JSON, tmp_path / "x", ROWS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == SHOWN


def test_a_part_of_rows_is_written_as_such(tmp_path: Path) -> None:
    """Lists of a slice begin in the middle of their values."""
    lines = written(JSON, tmp_path / "x", ROWS.slice(2, 1), ROWS.slice(0, 2)).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [SHOWN[2], SHOWN[0], SHOWN[1]]


def test_csv_has_texts_in_quotes_and_the_rest_as_json(tmp_path: Path) -> None:
    path = written(CSV, tmp_path / "x", ROWS)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ROWS.schema.names
    for row, shown in zip(rows, SHOWN, strict=True):
        for name, text in zip(header, row, strict=True):
            value = shown[name]
            if name == "half":
                assert text.lower().removesuffix("inity") == str(value).lower().removesuffix("inity")
            elif value is None:
                assert text == ""
            elif isinstance(value, str):
                assert text == value
            else:
                assert json.loads(text) == value
    second = path.read_text().splitlines()[3]
    assert ',"",' in second, "an empty text is not null"


def test_parquet_is_what_it_was(tmp_path: Path) -> None:
    rows = ROWS.drop_columns(["who"])
    assert pq.read_table(written(PARQUET, tmp_path / "x", rows)).num_rows == rows.num_rows


@pytest.mark.parametrize(("form", "suffix"), [(JSON, ".json"), (CSV, ".csv"), (PARQUET, ".parquet")])
def test_a_folder_has_each_batch_once_in_files_of_its_format(tmp_path: Path, form: str, suffix: str) -> None:
    folder, layout = open_folder(str(tmp_path / "table")), Layout(("offset",), "__", "none")
    target = FilesTarget(folder)
    values = pa.record_batch({"a": pa.array([1, 2, 3])})
    source = pa.record_batch({"offset": pa.array([0, 1, 2], pa.int64())})
    for _ in range(2):
        naming = Naming("0f2e3d4c-a", "t", 0, 0, 3, target.staging("0f2e3d4c-a", 0), form)
        writer = PartWriter(folder, layout, naming)
        times = pa.array([0, 0, 0], pa.timestamp("us", "UTC"))
        writer.write(layout.rows(source, values), source.column("offset"), times)
        target.commit(Batch("0f2e3d4c-a", 0, writer.close(), layout.schema(values.schema, whose="t")))
    seen = [one for one in (tmp_path / "table").rglob("*") if one.is_file() and "_magnetar" not in one.parts]
    assert [one.suffix for one in seen] == [suffix]
    seen[0].unlink()
    naming = Naming("0f2e3d4c-a", "t", 0, 0, 3, target.staging("0f2e3d4c-a", 0), form)
    with pytest.raises(TableDamaged):
        target.commit(Batch("0f2e3d4c-a", 0, [], layout.schema(values.schema, whose="t")))


@pytest.mark.parametrize("form", [JSON, CSV, PARQUET])
def test_a_full_disk_leaves_no_file(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/dev/full` takes no byte; the name that it has in the folder goes."""
    folder, layout = open_folder(str(tmp_path / "table")), Layout((), "", "none")
    (tmp_path / "table" / "staged").mkdir(parents=True)
    naming = Naming("0f2e3d4c-a", "t", 0, 0, 3, "staged/", form)
    name, _ = naming.names(Division(), 0)
    (tmp_path / "table" / name).symlink_to("/dev/full")
    writer = PartWriter(folder, layout, naming)
    values = pa.record_batch({"a": pa.array(["x" * 100_000])})

    def write() -> None:
        writer.write(values, pa.array([0], pa.int64()), pa.array([0], pa.timestamp("us", "UTC")))
        writer.close()

    with pytest.raises(OSError, match="No space left"):
        write()
    writer.abandon()
    assert not list((tmp_path / "table" / "staged").iterdir())

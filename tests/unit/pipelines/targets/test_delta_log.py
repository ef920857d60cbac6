"""What a Delta table has gained between two versions, as another library writes them."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.pandas.types import from_arrow_schema

from magnetar.pipelines.kinds.source.tables import FilesTask, TableReader
from magnetar.pipelines.targets.delta_log import NOTHING, DeltaLog
from magnetar.pipelines.targets.errors import TableDamaged, TableError

Append = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "table"
    made.mkdir()
    return made


@pytest.fixture
def log(folder: Path) -> DeltaLog:
    return DeltaLog(str(folder))


@pytest.fixture
def append(folder: Path) -> Append:
    def _append(*numbers: int, **more: Any) -> None:
        rows = [
            {"n": number, **{name: value for name, value in more.items() if name != "by"}}
            for number in numbers
        ]
        write_deltalake(folder, pa.Table.from_pylist(rows), mode="append", partition_by=more.get("by"))

    return _append


def rows_of(folder: Path, log: DeltaLog, after: int, to: int) -> list[dict[str, Any]]:
    """As Spark reads them: by planning, and then by one task after the other."""
    columns = log.columns()
    assert columns is not None
    reader = TableReader(log, str(folder), from_arrow_schema(columns))
    found: list[dict[str, Any]] = []
    for task in reader.partitions({"version": after}, {"version": to}):
        assert isinstance(task, FilesTask)
        for batch in reader.read(task):
            found += batch.to_pylist()
    return found


def numbers(folder: Path, log: DeltaLog, after: int, to: int) -> list[int]:
    return sorted(row["n"] for row in rows_of(folder, log, after, to))


def commit(folder: Path, version: int, *actions: Mapping[str, Any]) -> None:
    """A version as any writer may write it."""
    text = "".join(json.dumps(one) + "\n" for one in actions)
    (folder / "_delta_log" / f"{version:020d}.json").write_text(text)


def test_there_is_nothing_without_a_table(log: DeltaLog) -> None:
    assert log.newest() == NOTHING
    assert log.columns() is None
    assert log.gained(NOTHING, NOTHING) == []


def test_each_version_brings_its_own_rows(folder: Path, log: DeltaLog, append: Append) -> None:
    for first in (0, 10, 20):
        append(first, first + 1)
    assert log.newest() == 2
    assert numbers(folder, log, NOTHING, 1) == [0, 1, 10, 11]
    assert numbers(folder, log, 0, 2) == [10, 11, 20, 21]
    assert numbers(folder, log, 2, 2) == []


def test_files_that_were_put_together_bring_nothing(folder: Path, log: DeltaLog, append: Append) -> None:
    for number in range(5):
        append(number)
    DeltaTable(folder).optimize.compact()
    append(5)
    assert numbers(folder, log, 4, 6) == [5]
    assert numbers(folder, log, NOTHING, 6) == [*range(6)]
    assert len(log.gained(NOTHING, 6)) == 2


def test_rows_that_are_taken_away_are_a_sentence_and_a_beginning_behind_it_is_none(
    folder: Path, log: DeltaLog, append: Append
) -> None:
    append(0, 1, 2)
    DeltaTable(folder).delete("n = 1")
    with pytest.raises(TableError, match="version 1 of the table takes rows away"):
        log.gained(0, 1)
    assert numbers(folder, log, NOTHING, 1) == [0, 2]


def test_a_checkpoint_stands_for_the_versions_before_it(folder: Path, log: DeltaLog, append: Append) -> None:
    append(0, by=["day"], day="a")
    append(1, by=["day"], day="b")
    DeltaTable(folder).create_checkpoint()
    append(2, by=["day"], day="c")
    wanted = rows_of(folder, log, NOTHING, 2)
    for version in range(2):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    assert rows_of(folder, log, NOTHING, 2) == wanted
    assert {row["day"] for row in wanted} == {"a", "b", "c"}
    assert numbers(folder, log, 1, 2) == [2]
    with pytest.raises(TableDamaged, match="does not have version 1 any more"):
        log.gained(0, 2)


@pytest.mark.parametrize(
    "value",
    [
        date(2026, 11, 27),
        datetime(2026, 11, 27, 4, 5, 6, 7, tzinfo=UTC),
        datetime(2026, 11, 27, 4, 5, 6),  # noqa: DTZ001 - a time without a zone is a type of its own
        "a b/c%20=\u00e4",
        True,
        1 << 60,
        0.5,
        None,
    ],
)
def test_columns_that_partition_the_table_are_there(
    folder: Path, log: DeltaLog, append: Append, value: object
) -> None:
    if value is None:
        append(0, by=["part"], part="x")
    append(1, by=["part"], part=value)
    (row,) = [one for one in rows_of(folder, log, NOTHING, log.newest()) if one["n"] == 1]
    assert row["part"] == value


def test_a_column_that_came_later_is_none_in_older_rows(folder: Path, log: DeltaLog, append: Append) -> None:
    append(0)
    write_deltalake(folder, pa.table({"n": [1], "m": ["x"]}), mode="append", schema_mode="merge")
    found = sorted(rows_of(folder, log, NOTHING, 1), key=lambda one: one["n"])
    assert found == [{"n": 0, "m": None}, {"n": 1, "m": "x"}]


@pytest.mark.parametrize(
    "name", ["../other/a.parquet", "/etc/passwd", "file:///etc/passwd", "x/%2e%2e/%2e%2e/y"]
)
def test_a_table_names_no_file_outside_of_its_folder(
    folder: Path, log: DeltaLog, append: Append, name: str
) -> None:
    append(0)
    commit(folder, 1, {"add": {"path": name, "partitionValues": {}, "size": 1, "dataChange": True}})
    for after in (NOTHING, 0):
        with pytest.raises(TableError, match="names a file outside of its folder"):
            log.gained(after, 1)


@pytest.mark.parametrize(
    ("protocol", "what"),
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, "version 2 of Delta's readers"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": [],
            },
            "the table needs deletionVectors",
        ),
    ],
)
def test_what_readers_would_have_to_know_is_refused(
    folder: Path, log: DeltaLog, append: Append, protocol: Mapping[str, Any], what: str
) -> None:
    append(0)
    commit(folder, 1, {"protocol": protocol})
    for after in (NOTHING, 0):
        with pytest.raises(TableError, match=what):
            log.gained(after, 1)


def test_a_file_that_is_gone_and_a_table_that_was_made_anew_are_sentences(
    folder: Path, log: DeltaLog, append: Append
) -> None:
    append(0)
    for one in folder.glob("*.parquet"):
        one.unlink()
    with pytest.raises(TableDamaged, match="is gone"):
        rows_of(folder, log, NOTHING, 0)
    columns = log.columns()
    assert columns is not None
    reader = TableReader(log, str(folder), from_arrow_schema(columns))
    with pytest.raises(TableDamaged, match="was read to version 7 and has version 0 now: it was made anew"):
        reader.latestOffset({"version": 7}, reader.getDefaultReadLimit())

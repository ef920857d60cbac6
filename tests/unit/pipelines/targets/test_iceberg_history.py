"""What a source reads of an Iceberg table, which any tool may have written."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipelines.targets.errors import TableDamaged, TableError
from magnetar.pipelines.targets.folder import open_folder
from magnetar.pipelines.targets.iceberg.columns import FIELD_ID
from magnetar.pipelines.targets.iceberg.history import NOTHING, IcebergHistory
from magnetar.pipelines.targets.iceberg.target import IcebergTarget
from tests.unit.pipelines.targets.iceberg_kit import (
    PLAIN,
    ROW,
    TYPES,
    Change,
    commit,
    edit,
    numbers,
    read,
    written,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def target(folder: Path) -> IcebergTarget:
    return IcebergTarget(open_folder(str(folder)), PLAIN)


def operation(word: str) -> Change:
    """Say that the last commit did something else."""

    def change(found: dict[str, Any]) -> None:
        found["snapshots"][-1]["summary"]["operation"] = word

    return change


def test_there_is_nothing_without_a_table(folder: Path) -> None:
    history = IcebergHistory(str(folder))
    assert history.newest() == NOTHING
    assert history.columns() is None


def test_each_version_brings_its_own_rows(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0, 1, 2)
    assert numbers(folder, NOTHING, 2) == [0, 1]
    assert numbers(folder, 1, 3) == [1, 2]
    assert numbers(folder, 3, 3) == []


def test_files_that_were_put_together_bring_nothing(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0, 1)
    edit(folder, operation("replace"))
    assert numbers(folder, 1, 2) == []


@pytest.mark.parametrize("word", ["delete", "overwrite", ""])
def test_rows_that_may_be_taken_away_are_a_sentence_and_a_beginning_behind_it_is_none(
    target: IcebergTarget, folder: Path, word: str
) -> None:
    commit(target, 0, 1)
    edit(folder, operation(word))
    with pytest.raises(TableError, match="version 2 of the table may take rows away"):
        numbers(folder, 1, 2)
    assert numbers(folder, NOTHING, 2) == [0, 1]


def test_a_version_that_was_rolled_back_is_lost(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0, 1)

    def back(found: dict[str, Any]) -> None:
        found["current-snapshot-id"] = found["snapshots"][0]["snapshot-id"]

    edit(folder, back)
    commit(target, 2)
    for after, to in ((2, 3), (1, 2)):
        with pytest.raises(TableDamaged, match="does not have its version 2 any more"):
            numbers(folder, after, to)


def in_manifests(folder: Path, change: Callable[[dict[str, Any]], None], pattern: str) -> None:
    """Change what the table's files of Avro say."""
    for path in (folder / "metadata").glob(pattern):
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema: Any = reader.writer_schema
            rows: list[Any] = list(reader)
        for row in rows:
            change(row)
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows)


def test_files_that_take_rows_away_are_refused(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    in_manifests(folder, lambda row: row.update(content=1), "snap-*")
    with pytest.raises(TableError, match="files that say which rows were taken away"):
        numbers(folder)


def test_files_of_another_form_are_refused(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    in_manifests(folder, lambda row: row["data_file"].update(file_format="orc"), "magnetar-m*")
    with pytest.raises(TableError, match="the table has files of ORC"):
        numbers(folder)


def test_an_entry_that_is_deleted_is_no_file_of_the_table(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    in_manifests(folder, lambda row: row.update(status=2), "magnetar-m*")
    assert numbers(folder) == []


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "file:/etc/passwd", "s3://x/y", "{}/../x.parquet", "{}x/y", "//host{}/a"]
)
@pytest.mark.parametrize("where", ["data", "manifest", "list"])
def test_a_table_names_no_file_outside_of_its_folder(
    target: IcebergTarget, folder: Path, path: str, where: str
) -> None:
    commit(target, 0)
    named = path.format(folder)
    if where == "data":
        in_manifests(folder, lambda row: row["data_file"].update(file_path=named), "magnetar-m*")
    elif where == "manifest":
        in_manifests(folder, lambda row: row.update(manifest_path=named), "snap-*")
    else:
        edit(folder, lambda found: found["snapshots"][0].update({"manifest-list": named}))
    with pytest.raises(TableError, match="names a file outside of its folder"):
        numbers(folder)


def test_a_link_to_a_file_outside_is_outside(target: IcebergTarget, folder: Path, tmp_path: Path) -> None:
    commit(target, 0)
    (data,) = folder.glob("*.parquet")
    data.rename(tmp_path / "x.parquet")
    data.symlink_to(tmp_path / "x.parquet")
    with pytest.raises(TableError, match="names a file outside of its folder"):
        numbers(folder)


def test_a_table_behind_a_link_is_inside(target: IcebergTarget, folder: Path, tmp_path: Path) -> None:
    commit(target, 0)
    edit(folder, lambda found: found["snapshots"][0].update(
        {"manifest-list": "file:" + found["snapshots"][0]["manifest-list"]}))  # fmt: skip
    os.symlink(folder, tmp_path / "link")
    assert numbers(tmp_path / "link") == [0]


def with_file(folder: Path, table: pa.Table) -> None:
    """Put other rows into the table's only file."""
    (data,) = folder.glob("*.parquet")
    pq.write_table(table, data)


def named(name: str, number: int, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number)})


def test_columns_are_found_by_their_ids(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    schema = pa.schema([named("old", 2, pa.int32()), named("a", 99, pa.int32())])
    with_file(folder, pa.table([[7], [8]], schema=schema))
    assert read(folder, NOTHING, 1) == [{"__offset": None, "a": 7}]


def test_a_column_that_was_renamed_keeps_its_rows_and_ends_a_source_that_has_its_old_name(
    target: IcebergTarget, folder: Path
) -> None:
    commit(target, 0)

    def rename(found: dict[str, Any]) -> None:
        found["schemas"][0]["fields"][1]["name"] = "b"

    edit(folder, rename)
    assert [row["b"] for row in read(folder, NOTHING, 1)] == [0]
    history = IcebergHistory(str(folder))
    (file,) = history.gained(NOTHING, 1)
    with pytest.raises(TableError, match='column "a" is gone or has another name'):
        next(history.rows(file, pa.schema([("a", pa.int32())])))


def test_a_field_inside_that_was_renamed_is_a_sentence(target: IcebergTarget, folder: Path) -> None:
    values = pa.RecordBatch.from_pydict({"s": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))})
    target.commit(written(target, 0, values))
    for name, number in (("x", 9), ("y", 3)):
        kind = pa.struct([named(name, number, pa.int32())])
        with_file(folder, pa.table([[{name: 1}]], schema=pa.schema([named("s", 2, kind)])))
        with pytest.raises(TableError, match=rf'field "s\.{name}" got another name'):
            read(folder, NOTHING, 1)
    kind = pa.struct([named("x", 3, pa.int32()), named("gone", 9, pa.int32())])
    with_file(folder, pa.table([[{"x": 5, "gone": 6}]], schema=pa.schema([named("s", 2, kind)])))
    assert read(folder, NOTHING, 1) == [{"__offset": None, "s": {"x": 5}}]


def test_a_file_without_ids_is_read_by_the_names_that_the_table_maps(
    target: IcebergTarget, folder: Path
) -> None:
    commit(target, 0)
    with_file(folder, pa.table({"before": pa.array([7], pa.int32()), "none": ["x"]}))
    mapping = json.dumps([{"field-id": 2, "names": ["a", "before"]}, {"names": ["none"]}])
    edit(folder, lambda found: found["properties"].update({"schema.name-mapping.default": mapping}))
    assert numbers(folder) == [7]
    edit(folder, lambda found: found["properties"].pop("schema.name-mapping.default"))
    with pytest.raises(TableError, match="does not say which columns it has"):
        numbers(folder)


def test_a_column_that_came_later_is_none_in_older_rows(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    target.commit(written(target, 1, pa.RecordBatch.from_pydict({"b": pa.array(["x"])})))
    found = sorted(read(folder, NOTHING, 2), key=lambda row: str(row["a"]))
    assert [(row["a"], row["b"]) for row in found] == [(0, None), (None, "x")]


def test_a_file_that_is_gone_is_a_sentence(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    for path in folder.glob("*.parquet"):
        path.unlink()
    with pytest.raises(TableDamaged, match="is gone"):
        numbers(folder)


def test_every_type_is_read_again(target: IcebergTarget, folder: Path) -> None:
    values = pa.RecordBatch.from_pylist([dict(ROW), dict.fromkeys(ROW)], TYPES)
    target.commit(written(target, 0, values))
    first, second = read(folder, NOTHING, 1)
    assert {**first, "__offset": 0} == {**ROW, "__offset": 0}
    assert {name for name, value in second.items() if value is not None} == {"__offset"}


@pytest.mark.parametrize("kind", ["uuid", "time", "fixed[4]", "timestamptz_ns"])
def test_a_type_that_pipelines_do_not_have_is_named(target: IcebergTarget, folder: Path, kind: str) -> None:
    commit(target, 0)

    def retype(found: dict[str, Any]) -> None:
        found["schemas"][0]["fields"][1]["type"] = kind

    edit(folder, retype)
    with pytest.raises(TableError, match=rf'column "a" has the type {kind[:4]}'):
        IcebergHistory(str(folder)).columns()

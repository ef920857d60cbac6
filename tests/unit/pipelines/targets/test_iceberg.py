"""Iceberg tables as they are written, beyond what all targets have in common."""

import gzip
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipelines.targets.errors import TableDamaged, TableError
from magnetar.pipelines.targets.folder import open_folder
from magnetar.pipelines.targets.iceberg import metadata
from magnetar.pipelines.targets.iceberg import target as target_module
from magnetar.pipelines.targets.iceberg.columns import FIELD_ID, evolved, ids_by_path, to_arrow
from magnetar.pipelines.targets.iceberg.target import IcebergTarget
from tests.unit.pipelines.targets.iceberg_kit import (
    PLAIN,
    QUERY,
    Change,
    commit,
    document,
    edit,
    numbers,
    written,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def target(folder: Path) -> IcebergTarget:
    return IcebergTarget(open_folder(str(folder)), PLAIN)


def test_a_table_has_what_every_reader_needs(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0, 1)
    found = document(folder)
    assert (found["format-version"], found["location"], found["last-sequence-number"]) == (2, str(folder), 2)
    first, second = found["snapshots"]
    assert second["parent-snapshot-id"] == first["snapshot-id"]
    assert found["current-snapshot-id"] == second["snapshot-id"] == found["refs"]["main"]["snapshot-id"]
    assert (second["summary"]["operation"], second["summary"]["total-records"]) == ("append", "2")
    assert found["properties"][f"magnetar.batch.{QUERY}"] == "1"
    assert (folder / "metadata/version-hint.text").read_text() == "3"
    before = [f"{folder}/metadata/v{number}.metadata.json" for number in (1, 2)]
    assert [one["metadata-file"] for one in found["metadata-log"]] == before
    with Path(second["manifest-list"]).open("rb") as file:
        rows = [row for row in fastavro.reader(file) if isinstance(row, dict)]
    assert [(row["sequence_number"], row["added_files_count"]) for row in rows] == [(2, 1), (1, 1)]


def test_columns_keep_their_ids_and_new_ones_get_new_ids() -> None:
    inner = pa.struct([("x", pa.int8())])
    first, last = evolved((), pa.schema([("s", inner), ("l", pa.list_(inner))]), 0)
    wider = pa.struct([("x", pa.int8()), ("y", pa.map_(pa.string(), pa.decimal128(9, 2)))])
    wanted = pa.schema([("s", wider), ("l", pa.list_(wider)), ("t", pa.timestamp("us", "UTC"))])
    second, end = evolved(first, wanted, last)
    before, after = ids_by_path(first), ids_by_path(second)
    assert before.items() <= after.items()
    assert sorted(after.values()) == [*range(1, end + 1)]
    assert str(to_arrow(second)) == str(wanted).replace("int8", "int32")
    assert evolved(second, to_arrow(second), end) == (second, end)


def test_many_small_manifests_become_one_and_no_row_changes(
    target: IcebergTarget, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "MANIFESTS_MAX", 3)
    commit(target, *range(8))
    table = metadata.newest(target.folder)
    assert table is not None
    assert table.current is not None
    with Path(table.current.manifests).open("rb") as file:
        rows = [row for row in fastavro.reader(file) if isinstance(row, dict)]
    assert len(rows) <= 3
    assert [row["existing_files_count"] for row in rows if row["existing_files_count"]] != []
    assert numbers(folder) == [*range(8)]
    assert numbers(folder, 5) == [5, 6, 7], "what was put together is new in no version"


def test_old_snapshots_go_with_their_files_and_those_of_a_tag_stay(
    target: IcebergTarget, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "MANIFESTS_MAX", 3)
    monkeypatch.setattr(metadata, "SNAPSHOTS_MAX", 6)
    monkeypatch.setattr(metadata, "SNAPSHOTS_KEPT", 2)
    monkeypatch.setattr(metadata, "VERSIONS_KEPT", 4)
    commit(target, 0, 1)

    def tag(found: dict[str, Any]) -> None:
        found["refs"]["first"] = {"snapshot-id": found["snapshots"][0]["snapshot-id"], "type": "tag"}

    edit(folder, tag)
    commit(target, *range(2, 14))
    found = document(folder)
    assert len(found["snapshots"]) < 7
    assert found["snapshots"][0]["sequence-number"] == 1
    assert {one["snapshot-id"] for one in found["snapshot-log"]} == {
        one["snapshot-id"] for one in found["snapshots"]
    }
    lists = {one["manifest-list"] for one in found["snapshots"]}
    assert lists == {str(path) for path in (folder / "metadata").glob("snap-*")}
    assert numbers(folder) == [*range(14)]
    assert len([*folder.glob("metadata/v*.json")]) == 5
    manifests = {*folder.glob("metadata/magnetar-m*")}
    assert target.sweep(0) == 0, "nothing was left for a sweep"
    assert {*folder.glob("metadata/magnetar-m*")} == manifests
    with pytest.raises(TableDamaged, match="does not have its version 3 any more"):
        numbers(folder, 3)


def test_a_commit_that_loses_leaves_nothing_and_is_tried_again(
    target: IcebergTarget, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(target, 0)
    original, others = metadata.commit, [True]

    def late(*arguments: Any) -> bool:
        if others.pop() if others else False:
            edit(folder, lambda found: found["properties"].update(other="x"))
        return original(*arguments)

    monkeypatch.setattr(metadata, "commit", late)
    commit(target, 1)
    assert document(folder)["properties"]["other"] == "x"
    assert numbers(folder) == [0, 1]
    assert len([*folder.glob("metadata/*.avro")]) == 4
    monkeypatch.setattr(metadata, "commit", lambda *_: False)
    with pytest.raises(TableError, match="other writers do not let a commit through"):
        target.commit(written(target, 2))


def test_a_version_that_another_writer_has_compressed_is_not_made_again(
    target: IcebergTarget, folder: Path
) -> None:
    commit(target, 0)
    table = metadata.newest(target.folder)
    assert table is not None
    packed = gzip.compress(json.dumps(table.document).encode())
    (folder / f"metadata/v{table.version + 1}.gz.metadata.json").write_bytes(packed)
    assert not metadata.commit(target.folder, table, 0)


def test_time_does_not_go_back_as_readers_refuse_that(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    later = document(folder)["last-updated-ms"] + 3_600_000
    edit(folder, lambda found: found.update({"last-updated-ms": later}))
    commit(target, 1)
    found = document(folder)
    assert found["last-updated-ms"] == found["snapshots"][-1]["timestamp-ms"] == later


@pytest.mark.parametrize("hint", [None, "1", "-5", "no number", "7"])
def test_the_newest_version_is_found_whatever_the_hint_says(
    target: IcebergTarget, folder: Path, hint: str | None
) -> None:
    commit(target, 0, 1, 2)
    path = folder / "metadata/version-hint.text"
    path.unlink()
    if hint is not None:
        path.write_text(hint)
    table = metadata.newest(target.folder)
    assert table is not None
    assert table.version == 4
    commit(target, 3)
    assert numbers(folder) == [0, 1, 2, 3]


def test_metadata_that_another_writer_has_compressed_are_read(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    for form in ("v3.gz.metadata.json", "v4.metadata.json.gz"):
        (folder / "metadata" / form).write_bytes(gzip.compress(json.dumps(document(folder)).encode()))
    commit(target, 1)
    assert (folder / "metadata/v5.metadata.json").exists()
    assert numbers(folder) == [0, 1]


def _change(**values: Any) -> Change:
    return lambda found: found.update(values)


def _require(found: dict[str, Any]) -> None:
    found["schemas"][0]["fields"][1]["required"] = True


def _bucket(found: dict[str, Any]) -> None:
    found["partition-specs"][0]["fields"] = [
        {"name": "a_bucket", "transform": "bucket[4]", "source-id": 2, "field-id": 1000}
    ]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_change(**{"format-version": 1}), "has version 1 of Iceberg's format, and pipelines know version 2"),
        (_change(**{"format-version": 3}), "has version 3 of Iceberg's format"),
        (_change(location="/elsewhere"), "says that it is in another folder"),
        (_require, 'column "a" may not be null there'),
        (_bucket, "partitioned by a_bucket, not by nothing"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused(
    target: IcebergTarget, folder: Path, change: Change, error: str
) -> None:
    commit(target, 0)
    edit(folder, change)
    with pytest.raises(TableError, match=error):
        target.commit(written(target, 1))


def test_a_table_of_another_catalogue_is_refused(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    (folder / "metadata/v1.metadata.json").unlink()
    (folder / "metadata/v2.metadata.json").rename(folder / "metadata/00000-a.metadata.json")
    with pytest.raises(TableError, match="is one of another catalogue"):
        target.schema()


def test_metadata_that_are_damaged_are_a_sentence(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    (folder / "metadata/v2.metadata.json").write_text("[]")
    with pytest.raises(TableDamaged, match=r"v2\.metadata\.json is no metadata of an Iceberg table"):
        target.schema()


def test_a_table_in_an_object_store_is_named_by_its_url() -> None:
    from obstore.store import MemoryStore

    from magnetar.pipelines.targets.folder import ObjectFolder

    target = IcebergTarget(ObjectFolder("memory://lake/table", MemoryStore()), PLAIN)
    commit(target, 0, 1)
    assert not target.commit(written(target, 1))
    table = metadata.newest(target.folder)
    assert table is not None
    assert table.document["location"] == "memory://lake/table"
    assert target.sweep(0) == 1, "the file of the batch that was there"
    assert target.committed(QUERY, 1)


def test_a_task_that_brings_columns_adds_them_before_it_writes(target: IcebergTarget, folder: Path) -> None:
    commit(target, 0)
    batch = written(target, 1, pa.RecordBatch.from_pydict({"b": pa.array(["x"])}))
    schema = target.schema()
    assert schema is not None
    assert schema.names == ["__offset", "a", "b"]
    assert numbers(folder) == [0]
    (part,) = batch.parts
    fields = pq.read_schema(folder / part.name)
    assert [field.metadata[FIELD_ID] for field in fields] == [b"1", b"3"]
    assert target.commit(batch)


def test_files_for_a_table_that_is_gone_are_no_part_of_another_one(
    target: IcebergTarget, folder: Path
) -> None:
    batch = written(target, 0)
    (folder / "metadata/v1.metadata.json").unlink()
    (folder / "metadata/version-hint.text").unlink()
    with pytest.raises(TableDamaged, match="the table for which these files were written is gone"):
        target.commit(batch)
    target.file_schema(pa.schema([("__offset", pa.int64())]))
    with pytest.raises(TableDamaged, match="the table for which these files were written is gone"):
        target.commit(batch)

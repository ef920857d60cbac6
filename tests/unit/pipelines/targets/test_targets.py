"""Batches become part of a table once, whatever is tried twice, dies in between or is done by two at a time."""

import datetime as dt
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from magnetar.pipelines.targets.delta import DeltaTarget
from magnetar.pipelines.targets.errors import SchemaConflict, TableDamaged, TableError
from magnetar.pipelines.targets.evolution import conformed, merged
from magnetar.pipelines.targets.files import FilesTarget
from magnetar.pipelines.targets.folder import Folder, ObjectFolder, open_folder
from magnetar.pipelines.targets.iceberg.history import NOTHING, IcebergHistory
from magnetar.pipelines.targets.iceberg.target import IcebergTarget
from magnetar.pipelines.targets.layout import Layout
from magnetar.pipelines.targets.parts import Naming, Part, PartWriter
from magnetar.pipelines.targets.target import Batch, Target

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
QUERY = "0f2e3d4c-aaaa-bbbb-cccc-000000000000"


class Table:
    """A table of one format in a folder, and what a reader who knows nothing of us sees of it."""

    def __init__(self, kind: str, root: Path, layout: Layout | None = None, **options: Any) -> None:
        self.kind = kind
        self.root = root
        self.layout = layout or Layout()
        self.folder: Folder = open_folder(str(root))
        self.target: Target = FilesTarget(self.folder)
        if kind == "delta":
            self.target = DeltaTarget(self.folder, self.layout, {}, **options)
        elif kind == "iceberg":
            self.target = IcebergTarget(self.folder, self.layout)

    def rows(self) -> list[dict[str, Any]]:
        if self.kind == "delta":
            found = DeltaTable(str(self.root)).to_pyarrow_table()
        elif self.kind == "iceberg":
            found = rows_of(IcebergHistory(str(self.root)))
        elif not self.root.exists():
            return []
        else:
            files = [
                str(path) for path in self.root.rglob("*") if path.is_file() and path.suffix == ".parquet"
            ]
            found = pa.concat_tables(
                [pyarrow.dataset.dataset(file).to_table() for file in files], promote_options="default"
            )
        rows: list[dict[str, Any]] = found.drop_columns(
            ["__timestamp"]
        ).to_pylist()  # Python's years end at 9999
        return sorted(rows, key=lambda row: (row["__partition"], row["__offset"]))

    def offsets(self) -> list[int]:
        return [row["__offset"] for row in self.rows()]

    def written(
        self,
        batch: int,
        begin: int,
        end: int,
        *,
        values: pa.RecordBatch | None = None,
        query: str = QUERY,
        step_us: int = 1,
        partition: int = 0,
        file_bytes: int = 1 << 20,
    ) -> Batch:
        """The files of a batch with the offsets from `begin` to before `end`, which are not committed."""
        source = records(begin, end, step_us, partition)
        values = values or pa.RecordBatch.from_pydict({"a": pa.array(range(begin, end), pa.int32())})
        staging = self.target.staging(query, batch)
        naming = Naming(query, "flights", partition, begin, end, staging)
        rows = self.layout.rows(source, values)
        writer = PartWriter(
            self.folder, self.layout, naming, file_bytes, self.target.file_schema(rows.schema)
        )
        writer.write(rows, source.column("offset"), source.column("timestamp"))
        parts = writer.close()
        return Batch(query, batch, parts, self.layout.schema(values.schema, whose="the topic"))


def rows_of(history: IcebergHistory) -> pa.Table:
    """All rows of an Iceberg table."""
    columns = history.columns()
    assert columns is not None
    batches = [
        conformed(batch, columns)
        for file in history.gained(NOTHING, history.newest())
        for batch in history.rows(file, columns)
    ]
    return pa.Table.from_batches(batches, columns)


def records(begin: int, end: int, step_us: int = 1, partition: int = 0) -> pa.RecordBatch:
    count = end - begin
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.nulls(count, pa.binary()),
            "topic": pa.repeat("flights", count),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "offset": pa.array(range(begin, end), pa.int64()),
            "timestamp": pa.array([n * step_us for n in range(begin, end)], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(request.param, tmp_path / "table")


def files(root: Path, pattern: str = "*.parquet") -> list[Path]:
    return sorted(path for path in root.rglob(pattern) if path.is_file())


def test_batches_add_up(table: Table) -> None:
    assert table.target.schema() is None
    assert table.target.commit(table.written(0, 0, 10))
    assert table.target.commit(table.written(1, 10, 25))
    assert table.offsets() == list(range(25))
    assert table.rows()[3]["a"] == 3
    assert table.target.committed(QUERY, 1)
    assert not table.target.committed(QUERY, 2)
    schema = table.target.schema()
    assert schema is not None
    names = ["__topic", "__partition", "__offset", "__timestamp", "__key", "a", "record_date"]
    assert schema.names == names


def test_a_batch_that_is_run_again_counts_once_however_it_was_cut(table: Table) -> None:
    first = table.written(0, 0, 10)
    again = table.written(0, 0, 5)
    more = table.written(0, 5, 10)
    assert table.target.commit(first)
    assert not table.target.commit(Batch(QUERY, 0, [*again.parts, *more.parts], first.schema))
    assert table.offsets() == list(range(10))


def test_uncommitted_files_are_no_part_of_the_table_and_are_swept(table: Table) -> None:
    lost = table.written(0, 0, 10)
    assert table.target.commit(table.written(0, 0, 10))
    table.target.sweep(0)
    assert table.offsets() == list(range(10))
    assert not any(table.folder.exists(part.name) for part in lost.parts)
    assert table.target.commit(table.written(1, 10, 20))
    assert table.offsets() == list(range(20))


def test_what_is_young_is_not_swept(table: Table) -> None:
    table.target.commit(table.written(0, 0, 10))
    coming = table.written(1, 10, 20)
    table.target.sweep()
    assert table.target.commit(coming)
    assert table.offsets() == list(range(20))


def test_a_commit_that_dies_anywhere_is_finished_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of a Parquet commit, each followed by death; then the batch is run again, cut otherwise."""
    steps = 0
    while True:
        table = Table("parquet", tmp_path / str(steps), Layout(partition_by="hour"))
        table.target.commit(table.written(0, 0, 8, step_us=HOUR_US))
        batch = table.written(1, 8, 16, step_us=HOUR_US)
        left = steps

        def dying(original: Any) -> Any:
            def step(*arguments: Any) -> Any:
                nonlocal left
                if left == 0:
                    raise KeyboardInterrupt
                left -= 1
                return original(*arguments)

            return step

        with monkeypatch.context() as patched:
            for name in ("put_new", "move", "remove", "remove_directory"):
                patched.setattr(type(table.folder), name, dying(getattr(type(table.folder), name)))
            try:
                table.target.commit(batch)
                finished = True
            except KeyboardInterrupt:
                finished = False
        seen = table.offsets()
        assert len(seen) == len(set(seen))
        assert set(range(8)) <= set(seen) <= set(range(16))
        one = table.written(1, 8, 9, step_us=HOUR_US)
        other = table.written(1, 9, 16, step_us=HOUR_US)
        again = Batch(QUERY, 1, [*one.parts, *other.parts], one.schema)
        table.target.commit(again)
        assert table.offsets() == list(range(16))
        assert files(table.root, "*.staged") == []
        if finished:
            break
        steps += 1
    assert steps > 10


def test_two_drivers_commit_a_batch_once(table: Table) -> None:
    table.target.commit(table.written(0, 0, 10))
    batches = [table.written(1, 10, 20) for _ in range(4)]
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda batch=batch: answers.append(table.target.commit(batch)))
        for batch in batches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, False, False, True]
    assert table.offsets() == list(range(20))


def test_a_file_that_is_gone_is_no_silent_loss(table: Table) -> None:
    batch = table.written(0, 0, 10)
    table.folder.remove([batch.parts[0].name])
    with pytest.raises(TableDamaged, match="is gone"):
        table.target.commit(batch)


def test_two_queries_write_to_one_table(table: Table) -> None:
    other = "ffffffff-0000-0000-0000-000000000000"
    assert table.target.commit(table.written(0, 0, 10))
    assert table.target.commit(table.written(0, 10, 20, query=other))
    assert table.offsets() == list(range(20))


# --- files ---


@pytest.mark.parametrize(
    ("partition_by", "directories"),
    [
        ("none", {"."}),
        ("day", {"record_date=1970-01-01", "record_date=1970-01-02"}),
        ("hour", {f"record_date=1970-01-0{1 + n // 24}/record_hour={n % 24}" for n in range(0, 48, 12)}),
    ],
)
@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_files_are_divided_by_the_time_of_records(
    kind: str, partition_by: str, directories: set[str], tmp_path: Path
) -> None:
    table = Table(kind, tmp_path / "table", Layout(partition_by=partition_by))
    table.target.commit(table.written(0, 0, 4, step_us=DAY_US // 2))
    found = {str(path.parent.relative_to(table.root)) for path in files(table.root)}
    assert found == directories
    assert table.offsets() == [0, 1, 2, 3]
    if kind != "parquet" and partition_by == "hour":
        assert [(row["record_date"], row["record_hour"]) for row in table.rows()] == [
            (dt.date(1970, 1, 1), 0),
            (dt.date(1970, 1, 1), 12),
            (dt.date(1970, 1, 2), 0),
            (dt.date(1970, 1, 2), 12),
        ]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_records_without_a_sensible_time_are_in_the_partition_of_null(kind: str, tmp_path: Path) -> None:
    table = Table(kind, tmp_path / "table")
    table.target.commit(table.written(0, 1, 4, step_us=-1))
    table.target.commit(table.written(1, 4, 5, step_us=1 << 60))
    assert {path.parent.name for path in files(table.root)} == {"record_date=__HIVE_DEFAULT_PARTITION__"}
    assert table.offsets() == [1, 2, 3, 4]


def test_large_files_are_cut(tmp_path: Path) -> None:
    table = Table("delta", tmp_path / "table")
    folder, layout = table.folder, table.layout
    writer = PartWriter(folder, layout, Naming(QUERY, "t", 0, 0, 40_000, None), file_bytes=64 << 10)
    values = pa.RecordBatch.from_pydict({"a": pa.array(range(1_000), pa.int64())})
    for begin in range(0, 40_000, 1_000):
        source = records(begin, begin + 1_000)
        writer.write(layout.rows(source, values), source.column("offset"), source.column("timestamp"))
    parts = writer.close()
    assert len(parts) > 5
    assert sum(part.rows for part in parts) == 40_000
    spans = sorted((part.first_offset, part.last_offset) for part in parts)
    assert [first for first, _ in spans[1:]] == [last + 1 for _, last in spans[:-1]]


def test_abandoned_files_are_gone(table: Table) -> None:
    layout = Layout(partition_by="hour")
    naming = Naming(QUERY, "t", 0, 0, 100, table.target.staging(QUERY, 0))
    writer = PartWriter(table.folder, layout, naming)
    source = records(0, 100, HOUR_US)  # more hours than files are open at a time
    values = pa.RecordBatch.from_pydict({"a": pa.array(range(100))})
    writer.write(layout.rows(source, values), source.column("offset"), source.column("timestamp"))
    assert len(list(table.folder.list(""))) == 100
    writer.abandon()
    assert list(table.folder.list("")) == []


def test_delta_knows_what_is_in_a_file_and_compacts_small_ones(tmp_path: Path) -> None:
    table = Table("delta", tmp_path / "table", compact_every=4)
    for batch in range(4):
        table.target.commit(table.written(batch, batch * 10, batch * 10 + 10))
    found = DeltaTable(str(table.root))
    assert len(found.file_uris()) == 1
    assert table.offsets() == list(range(40))
    table.target.commit(table.written(4, 40, 50))
    stats = pa.table(DeltaTable(str(table.root)).get_add_actions(flatten=True)).to_pylist()
    assert {(row["num_records"], row["min.__offset"], row["max.__offset"]) for row in stats} == {
        (40, 0, 39),
        (10, 40, 49),
    }
    table.target.sweep(0)  # the small files are still part of older versions
    old = DeltaTable(str(table.root), version=4)
    assert old.to_pyarrow_table().num_rows == 40


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_other_partitions_is_refused(kind: str, tmp_path: Path) -> None:
    table = Table(kind, tmp_path / "table")
    table.target.commit(table.written(0, 0, 10))
    other = Table(kind, tmp_path / "table", Layout(partition_by="hour"))
    with pytest.raises(TableError, match="partitioned by record_date, not by record_date, record_hour"):
        other.target.commit(other.written(1, 10, 20))


# --- columns ---


def values(**columns: tuple[Sequence[Any], pa.DataType]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(*column) for name, column in columns.items()})


def test_new_columns_and_new_fields_of_structs_are_added(table: Table) -> None:
    inner = pa.struct([("x", pa.int32())])
    wider = pa.struct([("x", pa.int32()), ("y", pa.string())])
    table.target.commit(table.written(0, 0, 1, values=values(n=([{"x": 1}], inner))))
    new = values(n=([{"x": 2, "y": "z"}], wider), at=([dt.datetime(2026, 1, 1)], pa.timestamp("us")))  # noqa: DTZ001
    table.target.commit(table.written(1, 1, 2, values=new))
    schema = table.target.schema()
    assert schema is not None
    assert schema.field("n").type == wider
    assert schema.field("at").type == pa.timestamp("us")
    if table.kind != "parquet":  # of a plain folder, each reader unites the columns of files in its own way
        old, added = table.rows()
        assert (old["n"], old["at"]) == ({"x": 1, "y": None}, None)
        assert (added["n"], added["at"]) == ({"x": 2, "y": "z"}, dt.datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_column_of_another_type_is_refused_and_nothing_changes(table: Table) -> None:
    table.target.commit(table.written(0, 0, 1))
    for kind in (pa.string(), pa.int64()):
        with pytest.raises(SchemaConflict, match=f'column "a" is int32 in the table and {kind}'):
            table.target.commit(table.written(1, 1, 2, values=values(a=([None], kind))))
    assert table.offsets() == [0]


def test_merging_says_which_column_and_where() -> None:
    nested = pa.schema([("s", pa.struct([("l", pa.list_(pa.int32()))]))])
    other = pa.schema([("s", pa.struct([("l", pa.list_(pa.string()))]))])
    with pytest.raises(SchemaConflict, match=r'column "s.l\[\]" is int32 in the table and string in topic t'):
        merged(nested, other, whose="topic t")
    with pytest.raises(SchemaConflict, match="upper and lower case"):
        merged(pa.schema([("Id", pa.int32())]), pa.schema([("id", pa.int32())]), whose="topic t")


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 3)),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ],
)
def test_what_loses_nothing_is_brought_to_the_wider_type(narrow: pa.DataType, wide: pa.DataType) -> None:
    old, new = pa.schema([("c", wide)]), pa.schema([("c", narrow)])
    assert merged(old, new, whose="t") == old
    if not pa.types.is_struct(wide):
        with pytest.raises(SchemaConflict):
            merged(new, old, whose="t")
    assert merged(new, old, whose="t", is_fixed=False) == old
    shaped: dict[str, list[Any]] = {
        "list": [[1, None], None, [], [3]],
        "map": [[("k", 1)], None, [], [("l", None)]],
        "struct": [{"x": 1}, None, {"x": None}],
    }
    samples = shaped.get(str(narrow).partition("<")[0], [1, None, 3])
    rows = pa.RecordBatch.from_arrays([pa.array(samples, narrow)], schema=new).slice(1)
    found = conformed(rows, old)
    found.validate(full=True)
    assert found.schema == old
    wanted = [{**row, "y": None} if isinstance(row, dict) else row for row in rows.column("c").to_pylist()]
    assert found.column("c").to_pylist() == wanted


def test_the_tables_own_columns_cannot_be_fields_too() -> None:
    with pytest.raises(SchemaConflict, match='a field "record_date"'):
        Layout().schema(pa.schema([("record_date", pa.string())]), whose="topic t")
    with pytest.raises(SchemaConflict, match='a field "__Offset"'):
        Layout().schema(pa.schema([("__Offset", pa.string())]), whose="topic t")


# --- folders ---


@pytest.fixture(params=["local", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "local":
        return open_folder(f"file://{tmp_path}/some%20where")
    from obstore.store import MemoryStore

    return ObjectFolder("memory://", MemoryStore())


def test_a_folder_keeps_what_it_promises(folder: Folder) -> None:
    assert folder.put_new("a/b", b"first")
    assert not folder.put_new("a/b", b"second")
    assert folder.read("a/b") == b"first"
    assert folder.read("a/c") is None
    with folder.new_file("d/e/f") as path:
        path.write_bytes(b"file")
        assert not any(found.name == "d/e/f" and found.size == 4 for found in folder.list("x"))
    assert folder.read("d/e/f") == b"file"
    assert {found.name: found.size for found in folder.list("")} == {"a/b": 5, "d/e/f": 4}
    assert [found.name for found in folder.list("d/e/")] == ["d/e/f"]
    assert abs(next(folder.list("d/")).modified_s - time.time()) < 60
    assert folder.move("d/e/f", "g/h=1/i")
    assert not folder.move("d/e/f", "g/h=1/i")
    assert folder.exists("g/h=1/i")
    assert not folder.exists("d/e/f")
    folder.sync(["g/h=1/i"])
    folder.remove(["g/h=1/i", "never"])
    folder.put_new("tree/1/2", b"")
    folder.remove_directory("tree/")
    assert [found.name for found in folder.list("")] == ["a/b"]


def test_a_file_that_fails_is_not_there(folder: Folder) -> None:
    def fails() -> None:
        with folder.new_file("a/b") as path:
            path.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not folder.exists("a/b")


def test_parquet_tables_in_object_stores(tmp_path: Path) -> None:
    from obstore.store import MemoryStore

    table = Table("parquet", tmp_path)
    table.folder = ObjectFolder("memory://", MemoryStore())
    table.target = FilesTarget(table.folder)
    table.target.commit(table.written(0, 0, 10))
    lost = table.written(1, 10, 20)
    table.target.commit(table.written(1, 10, 20))
    table.target.commit(lost)
    data = [found.name for found in table.folder.list("") if found.name.endswith(".parquet")]
    offsets = [
        row["__offset"]
        for name in data
        for row in pa.parquet.read_table(pa.BufferReader(table.folder.read(name) or b"")).to_pylist()
    ]
    assert sorted(offsets) == list(range(20))
    assert not any("staged" in found.name for found in table.folder.list(""))


def test_part_is_what_it_says(table: Table) -> None:
    (part,) = table.written(3, 5, 9, step_us=7).parts
    assert isinstance(part, Part)
    assert (part.rows, part.first_offset, part.last_offset) == (4, 5, 8)
    assert (part.first_time_us, part.last_time_us) == (35, 56)
    assert part.size == next(found.size for found in table.folder.list("") if found.name == part.name)

"""What an Iceberg table on this machine has gained from one commit to another, by its snapshots.

A version here is a snapshot's sequence number.  A snapshot says what its commit did: `append` brings rows, `replace`
keeps them (small files were put together), and all else may take rows away.  A table keeps its snapshots for some time
only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.pipelines.targets.errors import TableDamaged, TableError
from magnetar.pipelines.targets.folder import open_folder
from magnetar.pipelines.targets.iceberg import manifests, metadata
from magnetar.pipelines.targets.iceberg.columns import FIELD_ID, NAME_MAPPING, ids_by_name, ids_by_path
from magnetar.pipelines.targets.iceberg.manifests import Entry, Manifest
from magnetar.pipelines.targets.iceberg.metadata import Metadata, Snapshot

NOTHING: Final = -1  # the version before the first one
_ROWS_AT_ONCE: Final = 10_000


class TableFile(NamedTuple):
    """A data file: `name` below the table's folder, and the values of partitioning columns by the ids of these."""

    name: str
    values: Mapping[int, Any]


class IcebergHistory:
    """The history of the table in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = open_folder(folder)
        self._root = folder

    def columns(self) -> pa.Schema | None:
        """The columns that the table has now; None if there is no table.

        Raises:
            TableError: its files cannot be read here.
        """
        table = metadata.newest(self._folder)
        return None if table is None else metadata.columns_of(table, self._folder)

    def newest(self) -> int:
        """The newest version; NOTHING if there is no table, or nothing was written to it."""
        table = metadata.newest(self._folder)
        current = None if table is None else table.current
        return NOTHING if current is None else current.sequence

    def gained(self, after: int, to: int) -> list[TableFile]:
        """The files with the rows that version `to` has, and version `after` had not; all of its files for NOTHING.

        Raises:
            TableDamaged: the table does not have all snapshots between them any more.
            TableError: one of them takes rows away, or cannot be read here.
        """
        if after == to:
            return []
        table = self._table()
        chain = list(_until(table, after, to))
        if not chain or chain[0].sequence != to:
            raise self._lost(to)
        if after == NOTHING:
            return [self._file(table, *found) for found in self._all(chain[0])]
        if chain[-1].sequence != after:
            raise self._lost(after)
        return [
            self._file(table, *found) for snapshot in reversed(chain[:-1]) for found in self._added(snapshot)
        ]

    def rows(self, file: TableFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a file with those columns of `wanted` that it has.

        Raises:
            TableError: a column is gone or has another name now, or the file was written with other names.
            TableDamaged: the file is gone.
        """
        table = self._table()
        ids = {one["name"]: one["id"] for one in table.columns}
        for name in wanted.names:
            if name not in ids:
                raise TableError(
                    f'{self._root}: column "{name}" is gone or has another name: delete the source, and create it again'
                )
        try:
            with pq.ParquetFile(f"{self._root}/{file.name}") as opened:
                places = self._places(table, opened.schema_arrow, file)
                for batch in opened.iter_batches(_ROWS_AT_ONCE):
                    yield _chosen(batch, wanted, ids, places, file.values)
        except FileNotFoundError:
            raise TableDamaged(f"{self._root}: the table's file {file.name} is gone") from None

    # --- inside

    def _table(self) -> Metadata:
        table = metadata.newest(self._folder)
        if table is None:
            raise TableDamaged(f"{self._root}: the Iceberg table is gone")
        return table

    def _lost(self, version: int) -> TableDamaged:
        return TableDamaged(
            f"{self._root}: the table does not have its version {version} any more, so what it has gained cannot be"
            " found"
        )

    def _all(self, snapshot: Snapshot) -> Iterator[tuple[Manifest, Entry]]:
        """All data files of a snapshot."""
        for manifest in self._manifests(snapshot):
            if manifest["content"] != manifests.DATA:
                raise TableError(
                    f"{self._root}: the table has files that say which rows were taken away, and a source cannot read"
                    " these: rewrite its data files"
                )
            for entry in self._entries(manifest):
                if entry.status != manifests.DELETED:
                    yield manifest, entry

    def _added(self, snapshot: Snapshot) -> Iterator[tuple[Manifest, Entry]]:
        """The data files that a snapshot's commit has brought."""
        if snapshot.operation == "replace":
            return
        if snapshot.operation != "append":
            raise TableError(
                f"{self._root}: version {snapshot.sequence} of the table may take rows away ({snapshot.operation}), and"
                " a source can only follow a table to which rows are added"
            )
        for manifest in self._manifests(snapshot):
            if manifest["added_snapshot_id"] == snapshot.id and manifest["content"] == manifests.DATA:
                for entry in self._entries(manifest):
                    if entry.status == manifests.ADDED and entry.snapshot == snapshot.id:
                        yield manifest, entry

    def _manifests(self, snapshot: Snapshot) -> list[Manifest]:
        return manifests.read_list(self._read(snapshot.manifests))

    def _entries(self, manifest: Manifest) -> list[Entry]:
        return manifests.read(self._read(manifest["manifest_path"]), manifest)

    def _read(self, path: str) -> bytes:
        data = self._folder.read(metadata.name_of(self._folder, path))
        if data is None:
            raise TableDamaged(f"{self._root}: {path} is gone")
        return data

    def _file(self, table: Metadata, manifest: Manifest, entry: Entry) -> TableFile:
        if entry.form != manifests.PARQUET:
            raise TableError(
                f"{self._root}: the table has files of {entry.form}, and a source reads those of Parquet"
            )
        spec = table.spec_of(manifest["partition_spec_id"])
        values = {
            one["source-id"]: entry.values.get(one["field-id"])
            for one in spec["fields"]
            if one["transform"] == "identity"
        }
        return TableFile(metadata.name_of(self._folder, entry.path), values)

    def _places(self, table: Metadata, schema: pa.Schema, file: TableFile) -> Mapping[int, int]:
        """Where the file has the columns, by their ids.  Raises TableError."""
        mapped = ids_by_name(table.properties.get(NAME_MAPPING))
        known = ids_by_path(table.columns)
        names = {number: path for path, number in known.items()}
        places, fields = {}, []
        for place, field in enumerate(schema):
            number = _id_of(field)
            number = mapped.get(field.name) if number is None else number
            if number is None and not mapped:
                raise TableError(
                    f"{self._root}: {file.name} does not say which columns it has, and neither does the table"
                )
            if number is not None:
                places[number] = place
                fields.append(field.with_name(names.get(number, field.name)))
        for path, number in _nested(fields):
            if known.get(path, number) != number or names.get(number, path) != path:
                raise TableError(
                    f'{self._root}: field "{path}" got another name after {file.name} was written, which a source does'
                    " not follow"
                )
        return places


def _until(table: Metadata, after: int, to: int) -> Iterator[Snapshot]:
    """The snapshots from version `to` back to version `after`, as far as the table has them."""
    snapshots = table.snapshots
    found = table.current
    while found is not None and found.sequence >= after:
        if found.sequence <= to:
            yield found
        found = None if found.parent is None else snapshots.get(found.parent)


def _chosen(
    batch: pa.RecordBatch,
    wanted: pa.Schema,
    ids: Mapping[str, int],
    places: Mapping[int, int],
    values: Mapping[int, Any],
) -> pa.RecordBatch:
    """The wanted columns that the file has, or that have one value in all of it."""
    columns: dict[str, Any] = {}
    for field in wanted:
        number = ids[field.name]
        if number in places:
            columns[field.name] = batch.column(places[number])
        elif number in values:
            columns[field.name] = pa.repeat(pa.scalar(values[number], field.type), batch.num_rows)
    if not columns:
        columns[wanted.names[0]] = pa.nulls(batch.num_rows, wanted.field(0).type)
    return pa.RecordBatch.from_pydict(columns)


def _id_of(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(FIELD_ID)
    return None if found is None else int(found)


def _nested(fields: Sequence[pa.Field], above: str = "") -> Iterator[tuple[str, int]]:
    """The paths and ids of the fields of structs at any depth, for those that have ids."""
    for field in fields:
        path = f"{above}{field.name}"
        kind = field.type
        if pa.types.is_struct(kind):
            inside = [(one.name, one) for one in kind]
        elif pa.types.is_list(kind):
            inside = [("element", kind.value_field)]
        elif pa.types.is_map(kind):
            inside = [("key", kind.key_field), ("value", kind.item_field)]
        else:
            continue
        for name, one in inside:
            number = _id_of(one)
            if number is not None:
                yield f"{path}.{name}", number
        yield from _nested([one.with_name(name) for name, one in inside], f"{path}.")

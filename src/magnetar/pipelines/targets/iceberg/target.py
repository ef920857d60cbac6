"""Iceberg tables: data files stay where they were written, and a snapshot of the table says which of them count.

A batch is one commit: a manifest of its files, a list of manifests, and the next version of the table's metadata, which
one writer can create (`metadata.py`).  The same version has a property with the number of the query's last batch.  The
code looks this number up first, so a batch that the table has is not committed again.  If two drivers commit the same
batch at the same time, the loser finds the batch when it looks again.

Files name their columns by ids, which are the table's.  So a task makes the table, or adds new columns to it, before it
writes: a table with an additional column of nulls is correct at every moment.
"""

import logging
import re
import secrets
import struct
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pyarrow as pa

from magnetar.pipelines.targets.errors import TableDamaged, TableError
from magnetar.pipelines.targets.evolution import merged
from magnetar.pipelines.targets.folder import Folder
from magnetar.pipelines.targets.iceberg import manifests, metadata
from magnetar.pipelines.targets.iceberg.columns import with_ids
from magnetar.pipelines.targets.iceberg.manifests import Entry, Manifest
from magnetar.pipelines.targets.iceberg.metadata import Metadata, Snapshot
from magnetar.pipelines.targets.layout import Layout
from magnetar.pipelines.targets.parts import Part
from magnetar.pipelines.targets.target import SWEEP_AGE_S, Batch

log: Final = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 8
MANIFESTS_MAX: Final = 100  # small ones of ours, which then become one
_SMALL_BYTES: Final = 4 << 20
_DATA: Final = re.compile(r"-[0-9a-f]{12}\.parquet$")  # `parts.Naming`
_MANIFEST: Final = f"{metadata.DIRECTORY}magnetar-m"
_LIST: Final = f"{metadata.DIRECTORY}snap-magnetar-"
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    folder: Folder
    layout: Layout

    def schema(self) -> pa.Schema | None:
        table = self._open()
        return None if table is None else metadata.columns_of(table, self.folder)

    def staging(self, query: str, batch: int) -> str | None:
        return None

    def committed(self, query: str, batch: int) -> bool:
        table = self._open()
        return table is not None and table.has_batch(query, batch)

    def file_schema(self, rows: pa.Schema) -> pa.Schema:
        wanted = pa.schema([*rows, *self.layout.partitioning])
        for _ in range(ATTEMPTS_MAX):
            before = self._open()
            if before is None:
                names = [field.name for field in self.layout.partitioning]
                table = metadata.created(self.folder.url, wanted, names)
            else:
                known = metadata.columns_of(before, self.folder)
                table = before.with_columns(merged(known, wanted, whose="this batch"))
            if table is before or metadata.commit(self.folder, table, metadata.now_ms(table)):
                return with_ids(rows, table.columns)
        raise self._held_up()

    def commit(self, batch: Batch) -> bool:
        for _ in range(ATTEMPTS_MAX):
            table = self._open()
            if table is not None and table.has_batch(batch.query, batch.number):
                return False
            self._check_files(batch)
            if table is None or not {*batch.schema.names} <= {one["name"] for one in table.columns}:
                raise TableDamaged(f"{self.folder.url}: the table for which these files were written is gone")
            if self._append(table, batch):
                return True
        raise self._held_up()

    def sweep(self, older_than_s: float = SWEEP_AGE_S) -> int:
        before = time.time() - older_than_s
        old = {
            one.name
            for one in self.folder.list("")
            if one.modified_s < before and (_DATA.search(one.name) or one.name.startswith((_MANIFEST, _LIST)))
        }
        table = self._open() if old else None
        kept = set() if table is None else self._used(table, with_files=True)
        self.folder.remove(old - kept)
        return len(old - kept)

    # -- the table

    def _open(self) -> Metadata | None:
        table = metadata.newest(self.folder)
        if table is None:
            return None
        url = self.folder.url
        if metadata.is_moved(table, self.folder):
            raise TableError(f"{url}: the Iceberg table says that it is in another folder")
        columns = {one["id"]: one for one in table.columns}
        found = [
            columns[one["source-id"]]["name"] if one["transform"] == "identity" else one["name"]
            for one in table.spec["fields"]
        ]
        wanted = [field.name for field in self.layout.partitioning]
        if found != wanted:
            raise TableError(
                f"{url} is an Iceberg table partitioned by {', '.join(found) or 'nothing'}, not by"
                f" {', '.join(wanted) or 'nothing'}: change partition_by, or write to another path"
            )
        for one in table.columns:
            if one.get("required"):
                raise TableError(
                    f'{url}: column "{one["name"]}" may not be null there, and values of a topic may be'
                )
        return table

    def _held_up(self) -> TableError:
        return TableError(f"{self.folder.url}: other writers do not let a commit through")

    def _check_files(self, batch: Batch) -> None:
        for part in batch.parts:
            if not self.folder.exists(part.name):
                raise TableDamaged(
                    f"{self.folder.url}: {part.name} is gone before it was committed; is it being swept?"
                )

    # -- one commit

    def _append(self, table: Metadata, batch: Batch) -> bool:
        """Commit the files; false if another writer was faster, and nothing has changed."""
        number = secrets.randbits(62) + 1
        sequence = table.document["last-sequence-number"] + 1
        current = table.current
        entries = [self._entry(table, part, number) for part in batch.parts]
        new = [self._manifest(table, entries, number, sequence)]
        before = [] if current is None else self._list(current)
        all_of_them = [*new, *self._put_together(table, before, number, sequence)]
        parent = None if current is None else current.id
        name = f"{_LIST}{number}-{uuid.uuid4().hex}.avro"
        self.folder.put_new(name, manifests.written_list(all_of_them, number, parent, sequence))
        now_ms = metadata.now_ms(table)
        snapshot = {
            "snapshot-id": number,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            "sequence-number": sequence,
            "timestamp-ms": now_ms,
            "manifest-list": metadata.path_of(self.folder, name),
            "schema-id": table.schema["schema-id"],
            "summary": _summary(table, batch),
        }
        after, gone = table.with_snapshot(snapshot, batch.query, batch.number)
        if metadata.commit(self.folder, after, now_ms):
            if gone:
                self._tidy(after, gone)
            return True
        made = [one["manifest_path"] for one in all_of_them if one["added_snapshot_id"] == number]
        self.folder.remove([name, *(metadata.name_of(self.folder, path) for path in made)])
        return False

    def _entry(self, table: Metadata, part: Part, snapshot: int) -> Entry:
        texts = part.division.values
        columns = {one["id"]: one["name"] for one in table.columns}
        values = {
            one["field-id"]: _value(texts[columns[one["source-id"]]])
            for one in table.spec["fields"]
        }  # fmt: skip
        path = metadata.path_of(self.folder, part.name)
        bounds = self._bounds(table, part)
        return Entry(
            manifests.ADDED,
            snapshot,
            None,
            None,
            path,
            manifests.PARQUET,
            part.rows,
            part.size,
            values,
            bounds,
        )

    def _bounds(self, table: Metadata, part: Part) -> list[tuple[int, bytes, bytes]]:
        """The least and greatest values of columns by which readers skip files."""
        ids = {one["name"]: one["id"] for one in table.columns}
        found = []
        for name, form, low, high in (
            ("partition", "<i", part.partition, part.partition),
            ("offset", "<q", part.first_offset, part.last_offset),
        ):
            if name in self.layout.metadata_columns:
                number = ids[self.layout.metadata_prefix + name]
                found.append((number, struct.pack(form, low), struct.pack(form, high)))
        return found

    def _manifest(self, table: Metadata, entries: Sequence[Entry], snapshot: int, sequence: int) -> Manifest:
        """Write a manifest; returns its row in a list."""
        spec = table.spec
        types = {one["id"]: one["type"] for one in table.columns}
        data = manifests.written(entries, spec, table.schema, types)
        name = f"{_MANIFEST}{uuid.uuid4().hex}.avro"
        self.folder.put_new(name, data)
        added = [one for one in entries if one.status == manifests.ADDED]
        existing = [one for one in entries if one.status == manifests.EXISTING]
        return {
            "manifest_path": metadata.path_of(self.folder, name),
            "manifest_length": len(data),
            "partition_spec_id": spec["spec-id"],
            "content": manifests.DATA,
            "sequence_number": sequence,
            "min_sequence_number": min(
                (sequence if one.sequence is None else one.sequence for one in entries), default=sequence
            ),
            "added_snapshot_id": snapshot,
            "added_files_count": len(added),
            "existing_files_count": len(existing),
            "deleted_files_count": 0,
            "added_rows_count": sum(one.rows for one in added),
            "existing_rows_count": sum(one.rows for one in existing),
            "deleted_rows_count": 0,
            "partitions": [
                _span([one.values[part["field-id"]] for one in entries]) for part in spec["fields"]
            ],
            "key_metadata": None,
        }

    def _put_together(
        self, table: Metadata, before: Sequence[Manifest], snapshot: int, sequence: int
    ) -> list[Manifest]:
        """The manifests of the last snapshot; once many of ours are small, one for all of these."""
        small = [one for one in before if self._is_small(table, one)]
        if len(small) < MANIFESTS_MAX:
            return list(before)
        entries = [
            Entry(
                manifests.EXISTING,
                one.snapshot,
                one.sequence,
                one.file_sequence,
                one.path,
                one.form,
                one.rows,
                one.size,
                one.values,
                one.bounds,
            )
            for manifest in small
            for one in self._entries(manifest)
        ]
        paths = {one["manifest_path"] for one in small}
        left = [one for one in before if one["manifest_path"] not in paths]
        return [*left, self._manifest(table, entries, snapshot, sequence)]

    def _is_small(self, table: Metadata, manifest: Manifest) -> bool:
        """Whether it is small and was written here: manifests of other writers say more of a file."""
        return bool(
            manifest["content"] == manifests.DATA
            and manifest["partition_spec_id"] == table.spec["spec-id"]
            and manifest["manifest_length"] < _SMALL_BYTES
            and metadata.name_of(self.folder, manifest["manifest_path"]).startswith(_MANIFEST)
        )

    # -- what is there

    def _list(self, snapshot: Snapshot) -> list[Manifest]:
        return manifests.read_list(self._read(snapshot.manifests))

    def _entries(self, manifest: Manifest) -> list[Entry]:
        return manifests.read(self._read(manifest["manifest_path"]), manifest)

    def _read(self, path: str) -> bytes:
        data = self.folder.read(metadata.name_of(self.folder, path))
        if data is None:
            raise TableDamaged(f"{self.folder.url}: {path} is gone")
        return data

    def _used(self, table: Metadata, *, with_files: bool) -> set[str]:
        """The names of all lists and manifests of the table's snapshots, and of all their data files."""
        paths: set[str] = set()
        seen: dict[str, Manifest] = {}
        for snapshot in table.snapshots.values():
            paths.add(snapshot.manifests)
            seen |= {one["manifest_path"]: one for one in self._list(snapshot)}
        paths |= seen.keys()
        if with_files:
            paths.update(one.path for manifest in seen.values() for one in self._entries(manifest))
        return {metadata.name_of(self.folder, path) for path in paths}

    def _tidy(self, table: Metadata, gone: Iterable[Snapshot]) -> None:
        """Remove the lists of snapshots that are gone, and manifests that only they had."""
        mine = {
            metadata.name_of(self.folder, path)
            for snapshot in gone
            for path in (snapshot.manifests, *(one["manifest_path"] for one in self._list(snapshot)))
        }
        unused = mine - self._used(table, with_files=False)
        self.folder.remove(name for name in unused if name.startswith((_MANIFEST, _LIST)))


def _summary(table: Metadata, batch: Batch) -> dict[str, str]:
    """What people and tools read of a snapshot."""
    current = table.document.get("current-snapshot-id")
    before: Mapping[str, Any] = next(
        (one["summary"] for one in table.document["snapshots"] if one["snapshot-id"] == current), {}
    )
    added = {
        "data-files": len(batch.parts),
        "files-size": sum(part.size for part in batch.parts),
        "records": sum(part.rows for part in batch.parts),
    }
    return {
        "operation": "append",
        **{f"added-{name}": str(value) for name, value in added.items()},
        **{
            f"total-{name}": str(int(before.get(f"total-{name}", 0)) + value) for name, value in added.items()
        },
        "magnetar.query": batch.query,
        "magnetar.batch": str(batch.number),
    }


def _value(text: str | None) -> int | None:
    """The value of a partition's column, a day or an hour, as Avro has it."""
    if text is None:
        return None
    return int(text) if text.isdecimal() else (date.fromisoformat(text) - _EPOCH).days


def _span(values: Sequence[Any]) -> dict[str, Any]:
    """What a list says of one column of the partitions in a manifest, so that readers skip it."""
    days = [(one - _EPOCH).days if isinstance(one, date) else one for one in values if one is not None]
    return {
        "contains_null": len(days) < len(values),
        "contains_nan": None,
        "lower_bound": struct.pack("<i", min(days)) if days else None,
        "upper_bound": struct.pack("<i", max(days)) if days else None,
    }

"""The metadata of an Iceberg table in its own folder: a JSON document for each version, of which the newest counts.

    metadata/v7.metadata.json    version 7 of the table: columns, partitions, snapshots
    metadata/version-hint.text   a number from which on to look for the newest version
    metadata/snap-...avro        a snapshot's list of manifests
    metadata/magnetar-m....avro  a manifest: data files

The writer that creates the file of the next version has committed it.  Iceberg's own Hadoop catalogue reads and writes
the same files; see "Table Metadata" and "File System Tables" in its specification, version 2.
"""

import gzip
import json
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from magnetar.pipelines.targets.errors import TableDamaged, TableError
from magnetar.pipelines.targets.folder import Folder, LocalFolder
from magnetar.pipelines.targets.iceberg.columns import Column, evolved, to_arrow

DIRECTORY: Final = "metadata/"
VERSIONS_KEPT: Final = 100
SNAPSHOTS_MAX: Final = 1000
SNAPSHOTS_KEPT: Final = 500
_HINT: Final = f"{DIRECTORY}version-hint.text"
_NEW_HINT: Final = f"{DIRECTORY}_version-hint.new"
_FORMAT: Final = 2
_NAME: Final = re.compile(r"metadata/v(\d+)(?:\.gz\.metadata\.json|\.metadata\.json(?:\.gz)?)")
_FORMS: Final = ("v{}.metadata.json", "v{}.gz.metadata.json", "v{}.metadata.json.gz")
_BATCH: Final = "magnetar.batch."  # and the id of a query: a property with the number of its last batch
_DELETES_OLD: Final = "write.metadata.delete-after-commit.enabled"
_PARTITION_IDS: Final = 1000  # the first one
_ROOT: Final = "main"  # the branch whose snapshot is the table
_UNSORTED: Final = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of the table.  `sequence` grows with each commit; `manifests` is the path of its list."""

    id: int
    parent: int | None
    sequence: int
    operation: str
    manifests: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            document["snapshot-id"],
            document.get("parent-snapshot-id"),
            document.get("sequence-number", 0),
            document.get("summary", {}).get("operation", ""),
            document.get("manifest-list", ""),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """One version of a table, and the name of its file.  It does not change: methods that change something return
    another one.
    """

    version: int
    name: str
    document: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.document.get("properties") or {}
        return found

    @property
    def schema(self) -> Mapping[str, Any]:
        return _of_id(self.document["schemas"], "schema-id", self.document["current-schema-id"])

    @property
    def columns(self) -> Sequence[Column]:
        found: Sequence[Column] = self.schema["fields"]
        return found

    @property
    def spec(self) -> Mapping[str, Any]:
        """How new files are partitioned."""
        return self.spec_of(self.document["default-spec-id"])

    def spec_of(self, number: int) -> Mapping[str, Any]:
        return _of_id(self.document["partition-specs"], "spec-id", number)

    @property
    def snapshots(self) -> Mapping[int, Snapshot]:
        return {one["snapshot-id"]: Snapshot.of(one) for one in self.document.get("snapshots") or ()}

    @property
    def current(self) -> Snapshot | None:
        """The snapshot that readers see; None while there has been no commit of files."""
        number = self.document.get("current-snapshot-id")
        if number is None or number < 0:
            return None
        found = self.snapshots.get(number)
        if found is None:
            raise TableDamaged(f"{self.document['location']}: the table's snapshot {number} is gone")
        return found

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether the table has this batch, or a later one, of the query."""
        return int(self.properties.get(_BATCH + query, "-1")) >= batch

    def with_columns(self, wanted: pa.Schema) -> "Metadata":
        """The table with the columns of `wanted`, which `merged` has made of its own."""
        columns, last_id = evolved(self.columns, wanted, self.document["last-column-id"])
        if columns == list(self.columns):
            return self
        number = max(one["schema-id"] for one in self.document["schemas"]) + 1
        schema = {**self.schema, "schema-id": number, "fields": columns}
        document = {
            **self.document,
            "schemas": [*self.document["schemas"], schema],
            "current-schema-id": number,
            "last-column-id": last_id,
        }
        return replace(self, document=document)

    def with_snapshot(
        self, snapshot: Mapping[str, Any], query: str, batch: int
    ) -> tuple["Metadata", list[Snapshot]]:
        """The table with one more snapshot, the new state of the table, and with the batch noted; also the snapshots
        that it does not have any more.
        """
        number = snapshot["snapshot-id"]
        refs = self.document.get("refs") or {}
        held = {one["snapshot-id"] for name, one in refs.items() if name != _ROOT}
        kept, gone = _expired([*(self.document.get("snapshots") or ()), snapshot], held)
        ids = {one["snapshot-id"] for one in kept}
        moment = {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": number}
        times = [*(self.document.get("snapshot-log") or ()), moment]
        document = {
            **self.document,
            "current-snapshot-id": number,
            "last-sequence-number": snapshot["sequence-number"],
            "refs": {**refs, _ROOT: {**refs.get(_ROOT, {"type": "branch"}), "snapshot-id": number}},
            "snapshots": kept,
            "snapshot-log": [one for one in times if one["snapshot-id"] in ids],
            "properties": {**self.properties, _BATCH + query: str(batch)},
        }
        return replace(self, document=document), gone


def created(location: str, columns: pa.Schema, partitioning: Sequence[str]) -> Metadata:
    """A table that is not there yet, as version 0."""
    fields, last_id = evolved((), columns, 0)
    ids = {one["name"]: one["id"] for one in fields}
    parts = [
        {"name": name, "transform": "identity", "source-id": ids[name], "field-id": _PARTITION_IDS + place}
        for place, name in enumerate(partitioning)
    ]
    return Metadata(
        0,
        "",
        {
            "format-version": _FORMAT,
            "table-uuid": str(uuid.uuid4()),
            "location": location,
            "last-sequence-number": 0,
            "last-updated-ms": 0,
            "last-column-id": last_id,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": parts}],
            "last-partition-id": _PARTITION_IDS - 1 + len(parts),
            "default-sort-order-id": _UNSORTED,
            "sort-orders": [{"order-id": _UNSORTED, "fields": []}],
            "properties": {
                _DELETES_OLD: "true",
                "write.metadata.previous-versions-max": str(VERSIONS_KEPT),
            },
            "current-snapshot-id": -1,
            "refs": {},
            "snapshots": [],
            "snapshot-log": [],
            "metadata-log": [],
        },
    )


def newest(folder: Folder) -> Metadata | None:
    """The table as it is now; None if there is none.

    Raises:
        TableError: it cannot be read or written here.
        TableDamaged: its newest version cannot be read.
    """
    version, name = _from_hint(folder) or _from_list(folder)
    if name is None:
        return None
    data = folder.read(name)
    try:
        if data is None:
            raise TableDamaged(f"{folder.url}: {name} is gone")
        document: Any = json.loads(gzip.decompress(data) if ".gz" in name else data)
        form = document["format-version"]
    except (ValueError, KeyError, TypeError, OSError, EOFError):
        raise TableDamaged(f"{folder.url}: {name} is no metadata of an Iceberg table") from None
    if form != _FORMAT:
        raise TableError(
            f"{folder.url}: the table has version {form} of Iceberg's format, and pipelines know version {_FORMAT}"
        )
    return Metadata(version, name, document)


def commit(folder: Folder, table: Metadata, now_ms: int) -> bool:
    """Make `table` the next version; false if another writer has made that version."""
    before = table.document
    log = list(before.get("metadata-log") or ())
    if table.version:
        at_ms = before["last-updated-ms"]
        log.append({"timestamp-ms": at_ms, "metadata-file": path_of(folder, table.name)})
    document = {**before, "last-updated-ms": now_ms, "metadata-log": log[-VERSIONS_KEPT:]}
    number = table.version + 1
    if _exists(folder, number) or not folder.put_new(
        f"{DIRECTORY}{_FORMS[0].format(number)}", json.dumps(document).encode()
    ):
        return False
    folder.put_new(
        _NEW_HINT, str(number).encode()
    )  # if another writer is here as well, one of both is enough
    folder.move(_NEW_HINT, _HINT)
    if table.properties.get(_DELETES_OLD) == "true":
        folder.remove([f"{DIRECTORY}{_FORMS[0].format(number - VERSIONS_KEPT - 1)}"])
    return True


def now_ms(table: Metadata) -> int:
    """The time of a commit: it never goes back, as readers refuse that."""
    return int(max(time.time_ns() // 1_000_000, table.document["last-updated-ms"]))


def is_moved(table: Metadata, folder: Folder) -> bool:
    """Whether the table says that it is in another folder: then its metadata name files that are not there."""
    try:
        return name_of(folder, f"{table.document['location']}/x") != "x"
    except TableError:
        return True


def columns_of(table: Metadata, folder: Folder) -> pa.Schema:
    """Raises TableError."""
    try:
        return to_arrow(table.columns)
    except TableError as error:
        raise TableError(f"{folder.url}: {error}") from None


# --- paths -------------------------------------------------------------------------------------------------------


def path_of(folder: Folder, name: str) -> str:
    """The path by which the table's metadata name a file in its folder."""
    return f"{folder.url}/{name}"


def name_of(folder: Folder, path: str) -> str:
    """The name in the table's folder of a file that its metadata name.

    A table's metadata may name any file, also such that only the worker's account can read.

    Raises:
        TableError: it lies elsewhere.
    """
    url = folder.url
    if isinstance(folder, LocalFolder):
        url, path = os.path.realpath(url), _local(path)
    inside = path.startswith(f"{url}/") and ".." not in path.split("/")
    if not inside:
        raise TableError(f"{folder.url}: the table names a file outside of its folder, {path[:200]!r}")
    return path.removeprefix(f"{url}/")


def _local(path: str) -> str:
    """The path without links; as Hadoop does, nothing in it is decoded."""
    plain = path.removeprefix("file:")
    if plain.startswith("///"):
        plain = plain[2:]
    if not plain.startswith("/") or plain.startswith("//") or "\0" in plain:
        return path
    return os.path.realpath(Path(plain))


# --- inside ------------------------------------------------------------------------------------------------------


def _of_id(rows: Sequence[Mapping[str, Any]], key: str, number: int) -> Mapping[str, Any]:
    found = next((one for one in rows if one[key] == number), None)
    if found is None:
        raise TableDamaged(f"the table's {key} {number} is not in its metadata")
    return found


def _exists(folder: Folder, version: int) -> str | None:
    """The name of a version's metadata."""
    names = (f"{DIRECTORY}{form.format(version)}" for form in _FORMS)
    return next((name for name in names if folder.exists(name)), None)


def _from_hint(folder: Folder) -> tuple[int, str] | None:
    """The newest version and its name, by the hint, behind which writers may have been killed."""
    found = None
    with suppress(ValueError):
        number = int(folder.read(_HINT) or b"")
        while (name := _exists(folder, number)) is not None:
            found = number, name
            number += 1
    return found


def _from_list(folder: Folder) -> tuple[int, str | None]:
    names = [one.name for one in folder.list(DIRECTORY)]
    versions = {int(found[1]): found[0] for name in names if (found := _NAME.fullmatch(name)) is not None}
    if versions:
        return max(versions), versions[max(versions)]
    if any(name.endswith(".metadata.json") for name in names):
        raise TableError(
            f"{folder.url}: the Iceberg table is one of another catalogue, and pipelines know tables whose catalogue"
            " is their own folder (Hadoop's)"
        )
    return 0, None


def _expired(
    snapshots: Sequence[Mapping[str, Any]], held: set[int]
) -> tuple[list[Mapping[str, Any]], list[Snapshot]]:
    """The newest snapshots with those that branches and tags hold, once there are too many; and the others."""
    if len(snapshots) <= SNAPSHOTS_MAX:
        return list(snapshots), []
    old, new = snapshots[:-SNAPSHOTS_KEPT], snapshots[-SNAPSHOTS_KEPT:]
    kept = [one for one in old if one["snapshot-id"] in held]
    return [*kept, *new], [Snapshot.of(one) for one in old if one["snapshot-id"] not in held]

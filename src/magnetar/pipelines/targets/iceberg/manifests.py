"""Manifests, which name data files, and lists of manifests, which a snapshot has: files of Avro.

See "Manifests" and "Manifest Lists" in Iceberg's specification, version 2.  Its readers find fields by their ids, and
so do we: writers have given some of them different names.  Of what is optional, we write what readers use to skip
files.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from magnetar.pipelines.targets.errors import TableDamaged

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2
DATA: Final = 0  # the content of a manifest; all else are deletes
PARQUET: Final = "PARQUET"
_VERSION: Final = "2"


def _field(name: str, number: int, kind: Any, *, optional: bool = False) -> dict[str, Any]:
    if not optional:
        return {"name": name, "type": kind, "field-id": number}
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


_SUMMARY: Final = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field("contains_null", 509, "boolean"),
        _field("contains_nan", 518, "boolean", optional=True),
        _field("lower_bound", 510, "bytes", optional=True),
        _field("upper_bound", 511, "bytes", optional=True),
    ],
}
_LIST: Final = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
        _field("content", 517, "int"),
        _field("sequence_number", 515, "long"),
        _field("min_sequence_number", 516, "long"),
        _field("added_snapshot_id", 503, "long"),
        _field("added_files_count", 504, "int"),
        _field("existing_files_count", 505, "int"),
        _field("deleted_files_count", 506, "int"),
        _field("added_rows_count", 512, "long"),
        _field("existing_rows_count", 513, "long"),
        _field("deleted_rows_count", 514, "long"),
        _field("partitions", 507, {"type": "array", "items": _SUMMARY, "element-id": 508}, optional=True),
        _field("key_metadata", 519, "bytes", optional=True),
    ],
}
_LIST_NAMES: Final = {one["field-id"]: one["name"] for one in _LIST["fields"] if isinstance(one, dict)}

Manifest = Mapping[str, Any]
"""A row of a list, by the names above."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A data file in a manifest.

    values  of the columns that partition the table, by the ids of the partition's fields
    bounds  (id of a column, bytes of its least value, of its greatest)
    """

    status: int
    snapshot: int
    sequence: int | None
    file_sequence: int | None
    path: str
    form: str
    rows: int
    size: int
    values: Mapping[int, Any]
    bounds: Sequence[tuple[int, bytes, bytes]] = ()


def written_list(manifests: Iterable[Manifest], snapshot: int, parent: int | None, sequence: int) -> bytes:
    metadata = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(sequence),
        "format-version": _VERSION,
    }
    return _avro(_LIST, manifests, metadata)


def read_list(data: bytes) -> list[Manifest]:
    reader = fastavro.reader(io.BytesIO(data))
    names = {one["name"]: _LIST_NAMES.get(one.get("field-id", -1), "") for one in _schema(reader)["fields"]}
    empty: dict[str, Any] = dict.fromkeys(_LIST_NAMES.values())
    return [
        {**empty, **{names[name]: value for name, value in row.items() if names[name]}}
        for row in reader
        if isinstance(row, dict)
    ]


def written(
    entries: Sequence[Entry], spec: Mapping[str, Any], schema: Mapping[str, Any], types: Mapping[int, str]
) -> bytes:
    """A manifest of data files that are partitioned by `spec`; `types` has the types of its columns."""
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [
            _field(one["name"], one["field-id"], _avro_type(types[one["source-id"]]), optional=True)
            for one in spec["fields"]
        ],
    }
    metadata = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": _VERSION,
        "content": "data",
    }
    names = {one["field-id"]: one["name"] for one in spec["fields"]}
    return _avro(_entry_schema(partition), (_row(one, names) for one in entries), metadata)


def read(data: bytes, manifest: Manifest) -> list[Entry]:
    """The entries of a manifest; what they inherit of it is written out."""
    reader = fastavro.reader(io.BytesIO(data))
    names = _partition_names(_schema(reader))
    found = []
    for row in reader:
        if not isinstance(row, dict):
            continue
        file = row["data_file"]
        snapshot = row.get("snapshot_id")
        inherited = manifest["sequence_number"]
        found.append(
            Entry(
                row["status"],
                manifest["added_snapshot_id"] if snapshot is None else snapshot,
                inherited if row.get("sequence_number") is None else row["sequence_number"],
                inherited if row.get("file_sequence_number") is None else row["file_sequence_number"],
                file["file_path"],
                file["file_format"].upper(),
                file["record_count"],
                file["file_size_in_bytes"],
                {number: file["partition"][name] for name, number in names.items()},
                _bounds(file),
            )
        )
    return found


def _entry_schema(partition: Mapping[str, Any]) -> dict[str, Any]:
    file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", 134, "int"),
            _field("file_path", 100, "string"),
            _field("file_format", 101, "string"),
            _field("partition", 102, partition),
            _field("record_count", 103, "long"),
            _field("file_size_in_bytes", 104, "long"),
            _field("lower_bounds", 125, _map(126, 127), optional=True),
            _field("upper_bounds", 128, _map(129, 130), optional=True),
        ],
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", 0, "int"),
            _field("snapshot_id", 1, "long", optional=True),
            _field("sequence_number", 3, "long", optional=True),
            _field("file_sequence_number", 4, "long", optional=True),
            _field("data_file", 2, file),
        ],
    }


def _map(key: int, value: int) -> dict[str, Any]:
    """A map whose keys are no texts, as Iceberg has it in Avro."""
    fields = [_field("key", key, "int"), _field("value", value, "bytes")]
    item = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "items": item, "logicalType": "map"}


def _row(entry: Entry, names: Mapping[int, str]) -> dict[str, Any]:
    file = {
        "content": DATA,
        "file_path": entry.path,
        "file_format": entry.form,
        "partition": {name: entry.values[number] for number, name in names.items()},
        "record_count": entry.rows,
        "file_size_in_bytes": entry.size,
        "lower_bounds": [{"key": number, "value": low} for number, low, _ in entry.bounds] or None,
        "upper_bounds": [{"key": number, "value": high} for number, _, high in entry.bounds] or None,
    }
    return {
        "status": entry.status,
        "snapshot_id": entry.snapshot,
        "sequence_number": entry.sequence,
        "file_sequence_number": entry.file_sequence,
        "data_file": file,
    }


def _bounds(file: Mapping[str, Any]) -> list[tuple[int, bytes, bytes]]:
    low, high = (
        {one["key"]: one["value"] for one in file.get(name) or ()}
        for name in ("lower_bounds", "upper_bounds")
    )
    return [(number, low[number], high[number]) for number in low.keys() & high.keys()]


def _partition_names(schema: Mapping[str, Any]) -> dict[str, int]:
    """The fields of the partition by their names, and their ids."""
    file = next(one for one in schema["fields"] if one["name"] == "data_file")["type"]
    partition = next(one for one in file["fields"] if one["name"] == "partition")["type"]
    return {one["name"]: one["field-id"] for one in partition["fields"]}


def _schema(reader: Any) -> Mapping[str, Any]:
    found: Any = reader.writer_schema
    if not isinstance(found, dict) or found.get("type") != "record":
        raise TableDamaged("a manifest of the table is no list of records")
    return found


def _avro_type(kind: str) -> Any:
    return {"type": "int", "logicalType": "date"} if kind == "date" else kind


def _avro(schema: Mapping[str, Any], rows: Iterable[Any], metadata: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, dict(schema), rows, codec="deflate", metadata=dict(metadata))
    return out.getvalue()

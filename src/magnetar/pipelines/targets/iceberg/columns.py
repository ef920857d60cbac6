"""The columns of an Iceberg table: their types, and the ids of fields.

Readers find a column in a file by the id of its field.  In files without ids, which other tools have made, they find a
column by its name, if the table has the property `schema.name-mapping.default`.  This says which name has which id
("Column Projection" in Iceberg's specification).

A column here is a field of the specification's JSON: {"id": 1, "name": "a", "required": false, "type": "int"}.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa

from magnetar.pipelines.targets.errors import TableError

FIELD_ID: Final = b"PARQUET:field_id"
NAME_MAPPING: Final = "schema.name-mapping.default"
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_NAMES: Final[Mapping[pa.DataType, str]] = {
    **{kind: name for name, kind in _TYPES.items()},
    pa.int8(): "int",
    pa.int16(): "int",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")

Column = Mapping[str, Any]


def to_arrow(columns: Sequence[Column]) -> pa.Schema:
    """Raises TableError: a column has a type that is neither read nor written here."""
    return pa.schema([(one["name"], _arrow(one["type"], one["name"])) for one in columns])


def _arrow(kind: Any, path: str) -> pa.DataType:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        found = _TYPES.get(kind)
        if found is None:
            raise TableError(f'column "{path}" has the type {kind[:100]}, which pipelines do not have')
        return found
    match kind["type"]:
        case "struct":
            return pa.struct(
                [(one["name"], _arrow(one["type"], f"{path}.{one['name']}")) for one in kind["fields"]]
            )
        case "list":
            return pa.list_(_arrow(kind["element"], f"{path}[]"))
        case _:
            return pa.map_(_arrow(kind["key"], f"{path}[]"), _arrow(kind["value"], f"{path}[]"))


def evolved(known: Sequence[Column], wanted: pa.Schema, last_id: int) -> tuple[list[Column], int]:
    """The columns of `wanted`, which `merged` has made of `known`, and the last id that they have.

    What is in `known` keeps its id; all else gets the next one.
    """
    ids = count(last_id + 1)
    columns = _fields(known, list(wanted), ids)
    return columns, next(ids) - 1


def _fields(known: Sequence[Column], wanted: Sequence[pa.Field], ids: Iterator[int]) -> list[Column]:
    before = {one["name"]: one for one in known}
    columns: list[Column] = []
    for field in wanted:
        old = before.get(field.name)
        number = next(ids) if old is None else old["id"]
        kind = _type(None if old is None else old["type"], field.type, ids)
        columns.append({**(old or {"required": False}), "id": number, "name": field.name, "type": kind})
    return columns


def _type(old: Any, kind: pa.DataType, ids: Iterator[int]) -> Any:
    if pa.types.is_struct(kind):
        known = [] if old is None else old["fields"]
        return {"type": "struct", "fields": _fields(known, list(kind), ids)}
    if pa.types.is_list(kind):
        before = old or {"type": "list", "element-id": next(ids), "element-required": False, "element": None}
        return {**before, "element": _type(before["element"], kind.value_type, ids)}
    if pa.types.is_map(kind):
        before = old or {
            "type": "map",
            "key-id": next(ids),
            "key": None,
            "value-id": next(ids),
            "value-required": False,
            "value": None,
        }
        key, value = (
            _type(before["key"], kind.key_type, ids),
            _type(before["value"], kind.item_type, ids),
        )
        return {**before, "key": key, "value": value}
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return _NAMES[kind]


def with_ids(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """`schema`, whose fields all are among `columns`, with their ids, as Parquet takes them."""
    return pa.schema(_identified(list(schema), columns))


def _identified(fields: Sequence[pa.Field], columns: Sequence[Column]) -> list[pa.Field]:
    known = {one["name"]: one for one in columns}
    return [_with_id(field, known[field.name]["id"], known[field.name]["type"]) for field in fields]


def _with_id(field: pa.Field, number: int, kind: Any) -> pa.Field:
    found = field.type
    if pa.types.is_struct(found):
        found = pa.struct(_identified(list(found), kind["fields"]))
    elif pa.types.is_list(found):
        found = pa.list_(_with_id(found.value_field, kind["element-id"], kind["element"]))
    elif pa.types.is_map(found):
        key = _with_id(found.key_field, kind["key-id"], kind["key"])
        found = pa.map_(key, _with_id(found.item_field, kind["value-id"], kind["value"]))
    return field.with_type(found).with_metadata({FIELD_ID: str(number)})


def _inside(kind: Any) -> Sequence[Column]:
    """The fields of a type, with the names that they have in Parquet."""
    if isinstance(kind, str):
        return ()
    match kind["type"]:
        case "struct":
            fields: Sequence[Column] = kind["fields"]
            return fields
        case "list":
            return ({"id": kind["element-id"], "name": "element", "type": kind["element"]},)
        case _:
            return (
                {"id": kind["key-id"], "name": "key", "type": kind["key"]},
                {"id": kind["value-id"], "name": "value", "type": kind["value"]},
            )


def ids_by_path(columns: Sequence[Column], above: str = "") -> dict[str, int]:
    """The ids of all fields by their paths; those in lists and maps have the names that Parquet gives them."""
    found: dict[str, int] = {}
    for one in columns:
        path = f"{above}{one['name']}"
        found[path] = one["id"]
        found |= ids_by_path(_inside(one["type"]), f"{path}.")
    return found


def ids_by_name(mapping: str | None) -> dict[str, int]:
    """The ids of columns by all their names, of the table's property `NAME_MAPPING`."""
    rows = [] if mapping is None else json.loads(mapping)
    return {name: one["field-id"] for one in rows if "field-id" in one for name in one["names"]}

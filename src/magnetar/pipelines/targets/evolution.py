"""The columns of a table when a topic's schema changes: columns are added, and never removed or changed.

Existing files do not change, so a column keeps its type.  A topic's values are converted to it if that loses nothing
(int32 to int64, float to double, fewer decimals to more).  A struct gets new fields as a table gets new columns.  Any
other change is a `SchemaConflict`, which names the column and both types.
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from magnetar.pipelines.targets.errors import SchemaConflict

_INTEGER_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def merged(table: pa.Schema, incoming: pa.Schema, *, whose: str, is_fixed: bool = True) -> pa.Schema:
    """`table` with the columns of `incoming` that it lacks, at the end.

    is_fixed  the table has files already; otherwise a column gets the wider of both types
    whose     the source of `incoming`, for errors

    Raises:
        SchemaConflict
    """
    fields = _merged_fields(list(table), list(incoming), "", whose, is_fixed)
    lower: dict[str, str] = {}
    for field in fields:
        other = lower.setdefault(field.name.lower(), field.name)
        if other != field.name:  # Spark and Delta would treat them as one
            raise SchemaConflict(
                f'columns "{other}" and "{field.name}" ({whose}) differ in upper and lower case only: set schema to raw'
            )
    return pa.schema(fields)


def _merged_fields(
    old: list[pa.Field], new: list[pa.Field], path: str, whose: str, is_fixed: bool
) -> list[pa.Field]:
    known = {field.name: place for place, field in enumerate(old)}
    fields = list(old)
    for field in new:
        place = known.get(field.name)
        if place is None:
            fields.append(pa.field(field.name, field.type))
            continue
        name = f"{path}{field.name}"
        fields[place] = pa.field(field.name, _merged_type(old[place].type, field.type, name, whose, is_fixed))
    return fields


def _merged_type(old: pa.DataType, new: pa.DataType, name: str, whose: str, is_fixed: bool) -> pa.DataType:
    if old.equals(new):
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merged_fields(list(old), list(new), f"{name}.", whose, is_fixed))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(_merged_type(old.value_type, new.value_type, f"{name}[]", whose, is_fixed))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type.equals(new.key_type):
        return pa.map_(old.key_type, _merged_type(old.item_type, new.item_type, f"{name}[]", whose, is_fixed))
    if _is_within(new, old):
        return old
    if not is_fixed and _is_within(old, new):
        return new
    raise SchemaConflict(
        f'column "{name}" is {old} in the table and {new} in {whose}: write to another path, or set schema to raw'
    )


def _is_within(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether every value of `narrow` is also a value of `wide`."""
    if narrow in _INTEGER_BITS and wide in _INTEGER_BITS:
        return _INTEGER_BITS[narrow] <= _INTEGER_BITS[wide]
    if pa.types.is_float64(wide):
        return bool(pa.types.is_float32(narrow)) or _INTEGER_BITS.get(narrow, 64) <= 32
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(
            narrow.scale <= wide.scale and narrow.precision - narrow.scale <= wide.precision - wide.scale
        )
    return False


def conformed(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of `schema`, in its order; missing columns are null.  Their own schema was merged into
    `schema`.
    """
    names = set(columns.schema.names)
    arrays = [
        _conformed(columns.column(field.name), field.type)
        if field.name in names
        else pa.nulls(columns.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _conformed(array: Any, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    nothing = array.is_null()
    if pa.types.is_struct(kind):
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        children = [
            _conformed(parts[field.name], field.type)
            if field.name in parts
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nothing)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        array = pa.concat_arrays([array, array.slice(0, 0)])  # a copy: offsets of a slice need not begin at 0
        offsets = pa.Array.from_buffers(
            pa.int32(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset
        )
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(
                offsets, _conformed(array.values, kind.value_type), kind, mask=nothing
            )
        items = _conformed(array.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, array.keys, items, kind, mask=nothing)
    return array.cast(kind)


def without(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The columns of `schema` except `names`."""
    left_out = set(names)
    return pa.schema([field for field in schema if field.name not in left_out])

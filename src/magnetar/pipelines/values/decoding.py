"""Values of a topic as columns, decoded with the schema with which they were written.

`decode` takes a column of bytes.  It returns columns of the schema's types, and the rows that it could not decode, with
the reason for each.  It never raises because of a value.  Null values, and undecodable ones, are null in every column.
docs/reference/tables.md has the column type of each type.

Values are decoded in blocks.  If a value is wrong, the decoder refuses the whole block.  Then the values are checked
one by one, and the good ones are decoded as a block.  If that is refused again, because a fault only shows in a
column, the block is halved until the rows are found.  So good data does not become slower.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipelines.values.avro import AvroValues
from magnetar.pipelines.values.faults import UNDECODABLE, reason
from magnetar.pipelines.values.json import JsonValues
from magnetar.pipelines.values.primitive import PRIMITIVES, TextValues
from magnetar.pipelines.values.protobuf import ProtobufValues
from magnetar.pipelines.values.shapes import SchemaUnusable, load
from magnetar.pipelines.values.topic_schema import TopicSchema

BLOCK_ROWS: Final = 4_096
_SIZE: Final = struct.Struct(">i")


RAW: Final = TopicSchema("BYTES")


class ValueDecoder(Protocol):
    """Decodes bytes of one type, without nulls; `block` and `one` raise one of UNDECODABLE."""

    type: pa.DataType

    def block(self, values: pa.Array) -> pa.Array: ...

    def one(self, values: pa.Array) -> pa.Array:
        """`block` for one value, which may be slow, but gives a better reason."""
        ...

    def faults(self, values: pa.Array) -> dict[int, str]:
        """The wrong rows, with reasons, as far as they are found without making a column."""
        ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """`columns` has a row for each value; `undecodable` has the reasons of rows that could not be decoded."""

    columns: pa.RecordBatch
    undecodable: dict[int, str]


class Decoder:
    """Decodes the values of one schema.

    fields    the columns: a record's fields; otherwise one column `value`; for a key-value schema `key` and `value`
    by_key    whether it needs the message keys
    Raises:
        SchemaUnusable: the schema has no columns; the text says why.
    """

    def __init__(self, schema: TopicSchema) -> None:
        self._pair = _parts(schema) if schema.type == "KEY_VALUE" else None
        self._inline = schema.properties.get("kv.encoding.type", "INLINE") != "SEPARATED"
        self.by_key = self._pair is not None and not self._inline
        if self._pair is not None:
            self.fields = pa.schema([("key", self._pair[0].type), ("value", self._pair[1].type)])
            return
        self._value = _decoder(schema)
        is_record = pa.types.is_struct(self._value.type)
        self.fields = pa.schema(list(self._value.type) if is_record else [("value", self._value.type)])

    def decode(self, values: pa.Array, keys: pa.Array | None = None) -> Decoded:
        """Decode `values`.  `values` and `keys` are binary columns of equal length; keys count only if `by_key`."""
        bad: dict[int, str] = {}
        if self._pair is None:
            column = _column(self._value, values, bad)
            columns = _flat(column) if pa.types.is_struct(column.type) else [column]
            return Decoded(pa.RecordBatch.from_arrays(columns, schema=self.fields), bad)
        if self._inline:
            keys, values = _split(values, bad)
        elif keys is None:
            raise TypeError("a key-value schema with separate keys needs the message keys")
        columns = [
            _column(part, column, bad) for part, column in zip(self._pair, (keys, values), strict=True)
        ]
        if bad:  # a part of a record does not count
            whole = pa.array([row not in bad for row in range(len(values))])
            columns = [pc.if_else(whole, column, pa.scalar(None, column.type)) for column in columns]
        return Decoded(pa.RecordBatch.from_arrays(columns, schema=self.fields), bad)


def decoder(schema: TopicSchema) -> Decoder:
    """The decoder of a schema, created once.  Raises SchemaUnusable."""
    return _made(schema.type, schema.definition, json.dumps(dict(schema.properties), sort_keys=True))


@lru_cache(maxsize=256)
def _made(kind: str, definition: str, properties: str) -> Decoder:
    return Decoder(TopicSchema(kind, definition, json.loads(properties)))


def decode(schema: TopicSchema, values: pa.Array, keys: pa.Array | None = None) -> Decoded:
    """See `Decoder.decode`.  Raises SchemaUnusable."""
    return decoder(schema).decode(values, keys)


def _decoder(schema: TopicSchema) -> ValueDecoder:
    if schema.type in PRIMITIVES:
        return PRIMITIVES[schema.type]
    match schema.type:
        case "AVRO":
            return AvroValues(schema.definition)
        case "JSON":
            content = load(schema.definition)
            if isinstance(content, dict) and content.get("type") == "object":
                return TextValues()  # json-schema.org, from clients before 2.0, without Avro's types
            return JsonValues(schema.definition)
        case "PROTOBUF_NATIVE":
            return ProtobufValues(schema.definition)
        case "PROTOBUF":
            raise SchemaUnusable(
                "a schema of the type PROTOBUF has no descriptors: use PROTOBUF_NATIVE, or set schema to raw"
            )
        case _:
            raise SchemaUnusable(f"schemas of the type {schema.type[:50]} have no columns: set schema to raw")


def _parts(schema: TopicSchema) -> tuple[ValueDecoder, ValueDecoder]:
    content = load(schema.definition)
    if not isinstance(content, dict):
        raise SchemaUnusable("a key-value schema is a JSON object of key and value")
    parts = []
    for name in ("key", "value"):
        kind = schema.properties.get(f"{name}.schema.type", "BYTES")
        if kind == "KEY_VALUE":
            raise SchemaUnusable("a key-value schema inside a key-value schema has no columns")
        part = content.get(name) or ""
        parts.append(_decoder(TopicSchema(kind, part if isinstance(part, str) else json.dumps(part))))
    return parts[0], parts[1]


def _split(values: pa.Array, bad: dict[int, str]) -> tuple[pa.Array, pa.Array]:
    """Split `[i32 size][key][i32 size][value]` (size -1 for null) into keys and values."""
    keys: list[bytes | None] = []
    rest: list[bytes | None] = []
    for row, value in enumerate(values.to_pylist()):
        key = part = None
        if value is not None:
            try:
                key, at = _part(value, 0)
                part, at = _part(value, at)
                if at != len(value):
                    raise ValueError(f"{len(value) - at} bytes are left behind the value")
            except (ValueError, struct.error) as error:
                key = part = None
                bad[row] = f"no key-value pair: {error}"
        keys.append(key)
        rest.append(part)
    return pa.array(keys, pa.binary()), pa.array(rest, pa.binary())


def _part(value: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(value, at)
    at += _SIZE.size
    if size < -1 or size > len(value) - at:
        raise ValueError(f"a size of {size} where {len(value) - at} bytes are left")
    return (None, at) if size < 0 else (value[at : at + size], at + size)


def _column(part: ValueDecoder, values: pa.Array, bad: dict[int, str]) -> pa.Array:
    """All rows of `values`; a row is null if it was null, or is undecodable, which is noted in `bad`."""
    rows = pc.indices_nonzero(values.is_valid())
    found: list[pa.Array] = []
    kept: list[pa.Array] = []
    for begin in range(0, len(rows), BLOCK_ROWS):
        some = rows.slice(begin, BLOCK_ROWS)
        _block(part, values.take(some), some, found, kept, bad)
    if sum(map(len, kept)) == len(values):
        return _joined(found, part.type)
    places = pa.array([None] * len(values), pa.int64()).to_pylist()
    for place, row in enumerate(pa.chunked_array(kept, pa.uint64()).to_pylist()):
        places[row] = place
    return _joined(found, part.type).take(pa.array(places, pa.int64()))


def _joined(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _block(
    part: ValueDecoder,
    values: pa.Array,
    rows: pa.Array,
    found: list[pa.Array],
    kept: list[pa.Array],
    bad: dict[int, str],
) -> None:
    try:
        found.append(part.block(values))
        kept.append(rows)
        return
    except UNDECODABLE:
        faults = part.faults(values)
    for place, why in faults.items():
        bad[rows[place].as_py()] = why
    if faults:
        good = pa.array([place for place in range(len(values)) if place not in faults], pa.int64())
        values, rows = values.take(good), rows.take(good)
    if len(values):
        _halves(part, values, rows, found, kept, bad)


def _halves(
    part: ValueDecoder,
    values: pa.Array,
    rows: pa.Array,
    found: list[pa.Array],
    kept: list[pa.Array],
    bad: dict[int, str],
) -> None:
    read: Callable[[pa.Array], pa.Array] = part.one if len(values) == 1 else part.block
    try:
        found.append(read(values))
        kept.append(rows)
    except UNDECODABLE as error:
        if len(values) == 1:
            bad[rows[0].as_py()] = reason(error)
            return
        half = len(values) // 2
        for begin, end in ((0, half), (half, len(values))):
            _halves(part, values.slice(begin, end - begin), rows.slice(begin, end - begin), found, kept, bad)


def _flat(column: Any) -> list[pa.Array]:
    """A record's fields as columns; the fields of a null record are null."""
    return list(column.flatten())

"""Values of Pulsar's PROTOBUF_NATIVE schemas, whose definition contains the descriptors of their message.

The definition is JSON: `fileDescriptorSet` (base64 of a FileDescriptorSet), `rootMessageTypeName`.  Protobuf's own
runtime parses messages, and then each field becomes a column.  The types of columns:

    int32, sint32, sfixed32 -> int32            uint32, fixed32 -> int64
    int64, sint64, sfixed64 -> int64            uint64, fixed64 -> decimal(20,0)
    float, double, bool, string, bytes -> the same
    enum -> string, a number where it has no name
    message -> struct    repeated -> list       map -> map
    google.protobuf.Timestamp -> timestamp, UTC
    google.protobuf.*Value -> the value, null where it is not set

A field with presence (optional, a message, one of a oneof) is null when it is not set; others have their default.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from magnetar.pipelines.values.faults import ByValue
from magnetar.pipelines.values.shapes import DEPTH_MAX, NODES_MAX, UTC_MICROS, SchemaUnusable, load

_F = FieldDescriptor
_SCALARS: Final = {
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
# Files that a schema may import without containing them.
_KNOWN: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SECONDS_MAX: Final = 253_402_300_800  # the year 10000: the end of the type's range

# From the values of a field in all messages (None if it is not set) to a column.
Build: TypeAlias = Callable[[Sequence[Any]], pa.Array]


class ProtobufValues(ByValue):
    """Decodes values of one definition; `type` is the Arrow type of the result.

    Raises:
        SchemaUnusable: the definition has no columns.
    """

    def __init__(self, definition: str) -> None:
        root = _root(load(definition))
        self._message = message_factory.GetMessageClass(root)
        self._columns = _Columns()
        self.type, self._build = self._columns.message(root)

    def block(self, values: pa.Array) -> pa.Array:
        """Decode all values, or raise an error of `faults.UNDECODABLE`."""
        parse = self._message.FromString
        return self._build([parse(value) for value in values.to_pylist()])

    one = block

    def check(self, value: bytes) -> None:
        self._message.FromString(value)


def _root(content: Any) -> Descriptor:
    try:
        data = base64.b64decode(content["fileDescriptorSet"], validate=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(data)
        pool = descriptor_pool.DescriptorPool()
        waiting = {one.name: one for one in files.file}
        for name in list(waiting):
            _add(pool, name, waiting)
        return pool.FindMessageTypeByName(content["rootMessageTypeName"])
    except (KeyError, TypeError, ValueError, binascii.Error, DecodeError, RecursionError) as error:
        raise SchemaUnusable(f"the schema's descriptors cannot be used: {str(error)[:200]}") from None


def _add(pool: Any, name: str, waiting: dict[str, Any]) -> None:
    """Add a file after those that it imports, each once; a file that is not in the set may be one of protobuf's own."""
    file = waiting.pop(name, None)
    if file is None:
        return
    for dependency in file.dependency:
        if dependency not in waiting and dependency in _KNOWN:
            _add_known(pool, dependency)
        _add(pool, dependency, waiting)
    pool.Add(file)


def _add_known(pool: Any, name: str) -> None:
    try:
        pool.FindFileByName(name)
    except KeyError:
        known = descriptor_pb2.FileDescriptorProto()
        _KNOWN[name].CopyToProto(known)
        pool.Add(known)


class _Columns:
    """Creates the builders of one definition; `_open` has the nested messages that are being read."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._count = 0

    def message(self, descriptor: Descriptor) -> tuple[pa.DataType, Build]:
        name = descriptor.full_name
        if name in self._open:
            raise SchemaUnusable(f"the message {name} contains itself: set schema to raw")
        if len(self._open) >= DEPTH_MAX:
            raise SchemaUnusable("the schema is too deep for columns: set schema to raw")
        if not descriptor.fields:
            raise SchemaUnusable(f"the message {name} has no fields: set schema to raw")
        self._open.append(name)
        fields = [(field.name, *self._field(field)) for field in descriptor.fields]
        self._open.pop()
        final = pa.struct([(field, kind) for field, kind, _ in fields])
        builders = [build for _, _, build in fields]

        def build(messages: Sequence[Any]) -> pa.Array:
            missing = pa.array([message is None for message in messages], pa.bool_())
            children = [one(messages) for one in builders]
            return pa.StructArray.from_arrays(children, fields=list(final), mask=missing)

        return final, build

    def _field(self, field: FieldDescriptor) -> tuple[pa.DataType, Build]:
        """The type and builder of a field's column; the builder takes messages, some of which may be None."""
        self._count += 1
        if self._count > NODES_MAX:
            raise SchemaUnusable("the schema has too many fields for columns: set schema to raw")
        name = field.name
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            return self._map(name, nested)
        kind, build = self._element(field)
        if field.is_repeated:

            def repeated(messages: Sequence[Any]) -> pa.Array:
                lists = [() if message is None else getattr(message, name) for message in messages]
                ends = np.cumsum([0, *map(len, lists)], dtype=np.int32)
                return pa.ListArray.from_arrays(ends, build(list(chain.from_iterable(lists))))

            return pa.list_(kind), repeated
        if field.has_presence:

            def optional(messages: Sequence[Any]) -> pa.Array:
                return build(
                    [
                        getattr(message, name) if message is not None and message.HasField(name) else None
                        for message in messages
                    ]
                )

            return kind, optional

        def always(messages: Sequence[Any]) -> pa.Array:
            return build([None if message is None else getattr(message, name) for message in messages])

        return kind, always

    def _map(self, name: str, entries: Descriptor) -> tuple[pa.DataType, Build]:
        entry = entries.fields_by_name
        key_kind, build_keys = self._element(entry["key"])
        kind, build = self._element(entry["value"])

        def build_map(messages: Sequence[Any]) -> pa.Array:
            maps = [{} if message is None else getattr(message, name) for message in messages]
            ends = np.cumsum([0, *map(len, maps)], dtype=np.int32)
            keys = build_keys(list(chain.from_iterable(maps)))
            values = build(list(chain.from_iterable([one[key] for key in one] for one in maps)))
            return pa.MapArray.from_arrays(ends, keys, values)

        return pa.map_(key_kind, kind), build_map

    def _element(self, field: FieldDescriptor) -> tuple[pa.DataType, Build]:
        """The type and builder of a column of a field's values."""
        if field.message_type is not None:
            return self._nested(field.message_type)
        kind = _SCALARS[field.type]
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}

            def enum(values: Sequence[Any]) -> pa.Array:
                return pa.array([None if one is None else names.get(one, str(one)) for one in values], kind)

            return kind, enum
        return kind, lambda values: pa.array(values, kind)

    def _nested(self, descriptor: Descriptor) -> tuple[pa.DataType, Build]:
        if descriptor.full_name == _TIMESTAMP:
            return UTC_MICROS, _timestamps
        if descriptor.full_name in _WRAPPERS:
            kind, build = self._element(descriptor.fields_by_name["value"])
            return kind, lambda values: build([None if one is None else one.value for one in values])
        return self.message(descriptor)


def _timestamps(values: Sequence[Any]) -> pa.Array:
    micros = []
    for value in values:
        if value is not None and not (
            -_SECONDS_MAX < value.seconds < _SECONDS_MAX and 0 <= value.nanos < 10**9
        ):
            raise ValueError("a timestamp is out of range")
        micros.append(None if value is None else value.seconds * 1_000_000 + value.nanos // 1_000)
    return pa.array(micros, UTC_MICROS)

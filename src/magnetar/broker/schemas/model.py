"""Schemas as values: type and definition; and the errors about them."""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final

from magnetar.base.errors import BrokerError

DEFINITION_BYTES_MAX: Final = 512 << 10  # in base64 it still fits a metadata value
VERSIONS_MAX: Final = 10_000  # of one topic: more come only from a faulty program
TOPIC_BYTES_MAX: Final = 16 << 20  # of all definitions of a topic, as they are stored
TENANT_BYTES_MAX: Final = 256 << 20  # of all that the topics of a tenant had first
VERSION_BYTES: Final = 8


class IncompatibleSchema(BrokerError):
    """The topic does not accept this schema."""

    code: ClassVar[str] = "INCOMPATIBLE_SCHEMA"


class InvalidSchema(BrokerError):
    """The definition is not valid for its type."""

    code: ClassVar[str] = "INVALID_SCHEMA"


class SchemaNotFound(BrokerError):
    """The topic has no such schema."""

    code: ClassVar[str] = "SCHEMA_NOT_FOUND"


class SchemaType(IntEnum):
    """The values are the numbers of `Schema.Type` in Pulsar's protocol."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22

    @property
    def is_avro_style(self) -> bool:
        """Whether its definition is Avro's JSON."""
        return self in _AVRO_STYLE

    @property
    def is_primitive(self) -> bool:
        """Whether it has no definition."""
        return self not in _DEFINED


_AVRO_STYLE: Final = frozenset({SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO})
_DEFINED: Final = _AVRO_STYLE | {
    SchemaType.KEY_VALUE,
    SchemaType.PROTOBUF_NATIVE,
    SchemaType.EXTERNAL,
    SchemaType.AUTO_CONSUME,
}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a client sends it."""

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def digest(self) -> bytes:
        """A digest of type, definition and properties: schemas with the same digest are stored once."""
        properties = json.dumps(dict(self.properties), sort_keys=True).encode()
        parts = [str(int(self.type)).encode(), self.data, properties]
        return hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version in a topic's history; `schema` is None for a deletion of all schemas before it."""

    version: int
    schema_id: int
    created_ms: int
    schema: Schema | None

    @property
    def encoded(self) -> bytes:
        return encode_version(self.version)


def encode_version(version: int) -> bytes:
    """The form of a version in commands and message metadata: 8 bytes, big-endian."""
    return version.to_bytes(VERSION_BYTES, "big")


def decode_version(encoded: bytes) -> int | None:
    """The inverse of `encode_version`; None (the latest version) if there are no bytes.  Raises SchemaNotFound for
    other lengths.
    """
    if not encoded:
        return None
    if len(encoded) != VERSION_BYTES:
        raise SchemaNotFound("a schema version has 8 bytes")
    return int.from_bytes(encoded, "big", signed=True)


_I32: Final = struct.Struct(">i")
PARTS: Final = ("key", "value")


def key_value(schema: Schema) -> tuple[Schema, Schema]:
    """The two parts of a key-value schema: `[size][key's definition][size][value's]`, their types in the properties.

    Raises:
        InvalidSchema
    """
    parts = []
    at = 0
    for name in PARTS:
        if len(schema.data) < at + 4:
            raise InvalidSchema("a key-value schema ends early")
        size = max(0, _I32.unpack_from(schema.data, at)[0])  # -1 also means no definition
        data = schema.data[at + 4 : at + 4 + size]
        if len(data) < size:
            raise InvalidSchema("a key-value schema ends early")
        at += 4 + size
        kind = schema.properties.get(f"{name}.schema.type", "BYTES")
        if kind not in SchemaType.__members__ and kind != "BYTES":
            raise InvalidSchema(f"there is no schema type {kind[:100]}")
        if kind in ("KEY_VALUE", "AUTO_CONSUME"):
            raise InvalidSchema(f"the {name} cannot be {kind}")
        parts.append(Schema(SchemaType[kind] if kind != "BYTES" else SchemaType.NONE, data))
    return parts[0], parts[1]


def text_of(schema: Schema) -> str:
    """The definition in the form of the admin API: JSON for a key-value schema, the text for all others."""
    if schema.type is not SchemaType.KEY_VALUE:
        return schema.data.decode(errors="replace")
    key, value = (
        json.loads(part.data) if part.data and not part.type.is_primitive else ""
        for part in key_value(schema)
    )
    return json.dumps({"key": key, "value": value}, separators=(",", ":"))

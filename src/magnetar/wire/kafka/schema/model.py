"""The vocabulary of the schema tables: what a Kafka message is made of, as data.

A table says, field by field, which versions of a message carry the field, where null is allowed, and which value stands
in where a version lacks it.  It also says which fields travel in the tagged section (KIP-482).
`tools/generate_kafka.py` turns the tables into the modules of `magnetar.wire.kafka.messages`; nothing reads the tables
at run time.

Versions are written as in the protocol guide: `"3+"`, `"0-12"`, `"10"`.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

VERSION_MAX: Final = 32767  # an INT16 on the wire: what "3+" ends with


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts; `code` is its `struct` format and `size` its bytes, unless its length varies."""

    name: str
    code: str = ""
    size: int = 0


BOOLEAN: Final = Primitive("BOOLEAN", "?", 1)
INT8: Final = Primitive("INT8", "b", 1)
INT16: Final = Primitive("INT16", "h", 2)
UINT16: Final = Primitive("UINT16", "H", 2)
INT32: Final = Primitive("INT32", "i", 4)
INT64: Final = Primitive("INT64", "q", 8)
FLOAT64: Final = Primitive("FLOAT64", "d", 8)
UUID: Final = Primitive("UUID", "16s", 16)
STRING: Final = Primitive("STRING")
BYTES: Final = Primitive("BYTES")
RECORDS: Final = Primitive("RECORDS")
"""Record batches: read as a slice of the buffer, written from one buffer."""
RECORD_PARTS: Final = Primitive("RECORD_PARTS")
"""The same bytes on the wire, written from one buffer or a list of them."""


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `low > high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if not text:
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


class _Unset:
    """The default of a `default` that was not given: None is a value of its own there."""


UNSET: Final = _Unset()
Default: TypeAlias = bool | int | float | str | bytes | _Unset | None


class Struct:
    """A named group of fields; the same object may be used in several places and becomes one class."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, *fields: "Field") -> None:
        self.name = name
        self.fields = fields


FieldType: TypeAlias = Primitive | Struct | list[Primitive] | list[Struct]


class Field:
    """One field: `[T]` is an array of T.

    `nullable` and `tagged` are version ranges; `tag` is the number in the tagged section.
    """

    __slots__ = ("default", "name", "nullable", "tag", "tagged", "type", "versions")

    def __init__(
        self,
        name: str,
        type: FieldType,
        versions: str = "0+",
        *,
        nullable: str = "",
        default: Default = UNSET,
        tag: int = -1,
        tagged: str = "",
    ) -> None:
        self.name = name
        self.type = type
        self.versions = Versions.parse(versions)
        self.nullable = Versions.parse(nullable)
        self.default = default
        self.tag = tag
        self.tagged = Versions.parse(tagged)


@dataclass(frozen=True, slots=True)
class Api:
    """A request and its response under one key; `flexible` is empty for an API that never became flexible."""

    name: str
    key: int
    versions: str
    flexible: str
    request: tuple[Field, ...]
    response: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Data:
    """A message that travels inside another one's bytes, with its version in front.

    Readers of these take a newer version for the newest they know, so bytes behind the last field are legal.
    """

    name: str
    versions: str
    flexible: str
    fields: tuple[Field, ...]


F = Field
S = Struct

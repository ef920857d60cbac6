"""Random but well-formed Kafka messages, made from the schema tables.

A `Case` is one message in one version: what to build, encode and decode.  The values stay inside what the
oracle codecs can represent (error codes that exist, times that a datetime holds).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.runtime import WHOLE_REQUEST_ELEMENTS_MAX, Buffer, Message
from magnetar.wire.kafka.schema import APIS, DATA
from magnetar.wire.kafka.schema.model import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    RECORD_PARTS,
    RECORDS,
    STRING,
    UUID,
    Field,
    Primitive,
    Struct,
    Versions,
)

ERROR_CODES = [int(code) for code in ErrorCode]
TIME_MS_MAX = 4_102_444_800_000  # the year 2100
# What kio has no negative value for, and only so much room.
NEVER_NEGATIVE = {
    "expiry_time_period_ms", "expiry_timestamp_ms", "issue_timestamp_ms", "max_timestamp_ms", "renew_period_ms",
}  # fmt: skip
ALPHABET = "abcXYZ019._-/ äß€日本🜨\0"


@dataclass(frozen=True)
class Case:
    """One message in one version."""

    name: str
    module: ModuleType
    asking: ModuleType  # what only clients do
    suffix: str  # "_request", "_response" or nothing
    version: int
    fields: tuple[Field, ...]

    @property
    def kind(self) -> str:
        return self.suffix.lstrip("_") or "data"

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}"

    def encode(self, message: object) -> bytes:
        out: list[Buffer] = []
        module = self.asking if self.suffix == "_request" else self.module
        getattr(module, f"encode{self.suffix}")(self.version, message, out)
        return b"".join(out)

    def decode(self, data: bytes | memoryview, position: int = 0) -> Any:
        module = self.asking if self.suffix == "_response" else self.module
        return getattr(module, f"decode{self.suffix}")(self.version, memoryview(data), position)

    def instance(self, rng: random.Random) -> Any:
        """Any message, but for those of more elements than every request may have."""
        while True:
            made = self._struct(Struct(self.name, *self.fields), rng)
            if elements(made) <= WHOLE_REQUEST_ELEMENTS_MAX:
                return made

    def _struct(self, struct: Struct, rng: random.Random) -> Any:
        values = {}
        for field in struct.fields:
            if self.version not in field.versions:
                continue
            if self.version in field.tagged:
                if rng.random() < 0.5:
                    values[field.name] = self._tagged(field, rng)
            elif self.version in field.nullable and rng.random() < 0.25:
                values[field.name] = None
            else:
                values[field.name] = self._value(field, field.type, rng)
        return getattr(self.module, struct.name)(**values)

    def _tagged(self, field: Field, rng: random.Random) -> Any:
        """A value that is not the default: a writer leaves the default out."""
        while True:
            value = self._value(field, field.type, rng)
            if isinstance(field.type, Struct) and value == getattr(self.module, field.type.name)():
                continue
            if value != field.default and (value or field.default == -1):
                return value

    def _value(self, field: Field, type_: Any, rng: random.Random) -> Any:
        if isinstance(type_, list):
            numbers = isinstance(type_[0], Primitive) and bool(type_[0].code)
            count = rng.choice((0, 1, 1, 2, 3, 17, 140)) if numbers else rng.choice((0, 1, 1, 2, 3))
            if not numbers and rng.random() < 0.005:
                count = 130
            return [self._value(field, type_[0], rng) for _ in range(count)]
        if isinstance(type_, Struct):
            return self._struct(type_, rng)
        return primitive(field.name, type_, rng)


def elements(value: Any) -> int:
    """Those of all arrays of a message."""
    if isinstance(value, list):
        return len(value) + sum(map(elements, value))
    if isinstance(value, Message):
        return sum(elements(getattr(value, name)) for name in value.__slots__)
    return 0


def primitive(name: str, type_: Primitive, rng: random.Random) -> Any:
    if type_ is STRING:
        size = rng.choice((0, 1, 5, 12, 12, 12, 140))
        return "".join(rng.choices(ALPHABET, k=size))
    if type_ in (BYTES, RECORDS, RECORD_PARTS):
        return rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 300)))
    if type_ is UUID:
        return rng.randbytes(16)
    if type_ is BOOLEAN:
        return rng.random() < 0.5
    if type_ is FLOAT64:
        return rng.uniform(-1e9, 1e9)
    if name.endswith("error_code"):
        return rng.choice(ERROR_CODES)
    if name in NEVER_NEGATIVE:
        return rng.randrange(TIME_MS_MAX)
    if type_.code == "q" and ("timestamp" in name or name.endswith("time_ms")):
        return rng.choice((0 if name == "transaction_start_time_ms" else -1, rng.randrange(TIME_MS_MAX)))
    bits = 8 * type_.size
    if type_.code == "H":
        return rng.choice((0, 1, rng.randrange(1 << bits), (1 << bits) - 1))
    return rng.choice((0, 1, -1, rng.randrange(-(1 << bits - 1), 1 << bits - 1), (1 << bits - 1) - 1))


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def cases() -> Iterator[Case]:
    """Every message in every version, in order of API key."""
    package = "magnetar.wire.kafka.messages"
    for api in APIS:
        module = import_module(f"{package}.{snake(api.name)}")
        asking = import_module(f"{package}.asking.{snake(api.name)}")
        versions = Versions.parse(api.versions)
        for kind, fields in (("Request", api.request), ("Response", api.response)):
            for version in range(versions.low, versions.high + 1):
                yield Case(api.name + kind, module, asking, f"_{kind.lower()}", version, fields)
    for data in DATA:
        module = import_module(f"{package}.{snake(data.name)}")
        versions = Versions.parse(data.versions)
        for version in range(versions.low, versions.high + 1):
            yield Case(data.name, module, module, "", version, data.fields)


def messages() -> dict[str, list[Case]]:
    """Each message, by its name, in all versions."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.name, []).append(case)
    return found


@contextmanager
def named(case: Case) -> Iterator[None]:
    """What fails inside says in which version."""
    try:
        yield
    except BaseException as error:
        error.add_note(str(case))
        raise

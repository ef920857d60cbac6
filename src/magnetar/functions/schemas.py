"""How the messages of an input become what the function gets, and what it returns becomes an output.

Without a schema that is a serde.  With one it is pulsar-client's: `string` is a str; `json` and `avro` are a `Record`
of the function's code.  The broker then keeps the schema with the topic, and refuses one that is not compatible.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pulsar
from pulsar import schema as schemas

from magnetar.functions.code import CodeError, named, serde_of

BYTES: Final = schemas.BytesSchema()
_OF_RECORDS: Final = {"json": schemas.JsonSchema, "avro": schemas.AvroSchema}


class Encoded(schemas.Schema):  # type: ignore[misc]
    """A schema for producers of bytes that it has made already: so an exception of an encoder is the function's."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def schema_info(self) -> Any:
        return self._inner.schema_info()

    def encode(self, obj: bytes) -> bytes:
        return obj


class Input(NamedTuple):
    """The schema for consumers, and what makes a value of a message."""

    schema: Any
    read: Callable[[Any], Any]


class Output(NamedTuple):
    """The schema for producers, and what makes bytes of a value."""

    schema: Any
    write: Callable[[Any], bytes]


def input_of(config: Mapping[str, Any], spec: Mapping[str, Any]) -> Input:
    """Raises CodeError, and what the function's code raises."""
    found = _schema(spec.get("schemaType", ""), config.get("inputTypeClassName", ""))
    if found is not None:
        return Input(found, pulsar.Message.value)
    serde = serde_of(spec.get("serdeClassName", ""))
    return Input(BYTES, lambda message: serde.deserialize(message.data()))


def output_of(config: Mapping[str, Any]) -> Output:
    """Raises as `input_of`."""
    found = _schema(config.get("outputSchemaType", ""), config.get("outputTypeClassName", ""))
    if found is not None:
        return Output(Encoded(found), found.encode)
    return Output(BYTES, serde_of(config.get("outputSerdeClassName", "")).serialize)


def _schema(kind: str, class_name: str) -> Any:
    """None where serdes are at work."""
    kind = kind.lower()
    if kind in ("", "bytes"):
        return None
    if kind == "string":
        return schemas.StringSchema()
    record = named(class_name)
    if not inspect.isclass(record) or not issubclass(record, schemas.Record):
        raise CodeError(f"{class_name} is no Record, which the schema {kind} needs")
    try:
        return _OF_RECORDS[kind](record)
    except Exception as error:  # noqa: BLE001  the client raises that for a library that it misses
        raise CodeError(f"the schema {kind} of {class_name} cannot be used: {error}") from None

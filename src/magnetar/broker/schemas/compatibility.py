"""Whether a topic accepts a new schema beside its present ones: pure functions with the rules of Pulsar's registry.

The rules compare Avro definitions for the types that have one, both parts of a key-value schema, and the root message
of a native Protobuf schema.  For all other types they compare only the type.  "Backward" means that the new schema can
read data written with the old one.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from magnetar.broker.policy.model import Compatibility
from magnetar.broker.schemas import avro
from magnetar.broker.schemas.model import (
    DEFINITION_BYTES_MAX,
    PARTS,
    IncompatibleSchema,
    InvalidSchema,
    Schema,
    SchemaType,
    key_value,
)

_BACKWARD: Final = frozenset(
    (
        Compatibility.BACKWARD,
        Compatibility.BACKWARD_TRANSITIVE,
        Compatibility.FULL,
        Compatibility.FULL_TRANSITIVE,
    )
)
_FORWARD: Final = frozenset(
    (
        Compatibility.FORWARD,
        Compatibility.FORWARD_TRANSITIVE,
        Compatibility.FULL,
        Compatibility.FULL_TRANSITIVE,
    )
)
TRANSITIVE: Final = frozenset(
    (Compatibility.BACKWARD_TRANSITIVE, Compatibility.FORWARD_TRANSITIVE, Compatibility.FULL_TRANSITIVE)
)


def validate(schema: Schema) -> None:
    """Raise InvalidSchema unless the definition is valid for the schema's type."""
    if len(schema.data) > DEFINITION_BYTES_MAX:
        raise InvalidSchema(f"a schema definition has at most {DEFINITION_BYTES_MAX} bytes")
    kind = schema.type
    if kind is SchemaType.AUTO_CONSUME:
        raise InvalidSchema("AUTO_CONSUME is no schema that could be stored")
    try:
        if kind.is_avro_style:
            _avro(schema)
        elif kind is SchemaType.KEY_VALUE:
            for part in key_value(schema):
                validate(part)
        elif kind is SchemaType.PROTOBUF_NATIVE:
            _root_message(schema)
    except InvalidSchema as error:
        raise InvalidSchema(f"Invalid schema definition data for {kind.name} schema: {error}") from None


def meaning(schema: Schema) -> bytes:
    """A digest that schemas share which count as the same: in Avro definitions, white space, the order of attributes
    and documentation do not matter.

    A definition that this code cannot parse is the same as itself only.  Another cluster may have accepted a definition
    that this one would refuse (`SchemaRegistry.copy`), and a definition may have deeply nested attributes other than
    types.
    """
    content = schema.data
    if schema.type.is_avro_style:
        with suppress(InvalidSchema, RecursionError):
            content = json.dumps(_meaning(avro.load_json(content)), sort_keys=True).encode()
    return hashlib.sha256(b"%d " % schema.type + content).digest()


def _meaning(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _meaning(value) for name, value in content.items() if name != "doc"}
    return [_meaning(value) for value in content] if isinstance(content, list) else content


def check(existing: Sequence[Schema], new: Schema, strategy: Compatibility) -> None:
    """Check that `new` may follow `existing`, the oldest first; only the last one counts unless `strategy` is
    transitive.

    Raises:
        IncompatibleSchema
    """
    if not existing or strategy is Compatibility.ALWAYS_COMPATIBLE:
        return
    for old in existing if strategy in TRANSITIVE else existing[-1:]:
        _check_pair(old, new, strategy)


def _check_pair(old: Schema, new: Schema, strategy: Compatibility) -> None:
    if old.type is not new.type:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {old.type.name}, new schema type {new.type.name}"
        )
    if old.data == new.data:
        return
    if strategy is Compatibility.ALWAYS_INCOMPATIBLE:
        raise IncompatibleSchema("the schema compatibility strategy is ALWAYS_INCOMPATIBLE")
    if new.type.is_avro_style:
        _check_avro(old, new, strategy)
    elif new.type is SchemaType.KEY_VALUE:
        for part, before, after in zip(PARTS, key_value(old), key_value(new), strict=True):
            try:
                _check_pair(before, after, strategy)
            except IncompatibleSchema as error:
                raise IncompatibleSchema(f"the {part} of the key-value schema: {error}") from None
    elif new.type is SchemaType.PROTOBUF_NATIVE and _root_message(old) != _root_message(new):
        raise IncompatibleSchema(
            f"Protobuf root message isn't allow change: {_root_message(old)} to {_root_message(new)}"
        )


def _check_avro(old: Schema, new: Schema, strategy: Compatibility) -> None:
    before, after = _avro(old), _avro(new)
    if before is None or after is None:  # old JSON schemas: only their type can be compared
        if (before is None) != (after is None):
            raise IncompatibleSchema("a JSON schema and an Avro-style one do not follow one another")
        return
    reason = None
    if strategy in _BACKWARD:
        reason = avro.why_unreadable(after, before)
    if reason is None and strategy in _FORWARD:
        reason = avro.why_unreadable(before, after)
    if reason is not None:
        raise IncompatibleSchema(f"Unable to read schema with strategy {strategy.name}: {reason}")


def _avro(schema: Schema) -> avro.Node | None:
    """The parsed definition; None for a JSON schema (json-schema.org) of the type JSON, which old clients send."""
    if schema.type is SchemaType.JSON:
        content = avro.load_json(schema.data)
        if isinstance(content, dict) and content.get("type") == "object":
            return None
    return avro.parse(schema.data)


def _root_message(schema: Schema) -> str:
    content = avro.load_json(schema.data)
    if not isinstance(content, dict):
        raise InvalidSchema("a native Protobuf schema is a JSON object")
    name, files = content.get("rootMessageTypeName"), content.get("fileDescriptorSet")
    if not isinstance(name, str) or not isinstance(files, str):
        raise InvalidSchema("a native Protobuf schema has rootMessageTypeName and fileDescriptorSet")
    try:
        base64.b64decode(files, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSchema("the file descriptors are not base64") from None
    return name

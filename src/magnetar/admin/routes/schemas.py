"""Topics' schemas: shown, added, compared, deleted.

What an administrator adds may be new even when clients may bring nothing new.
"""

import json
import struct
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar.admin.answers import Refused, flag, object_body, value
from magnetar.admin.context import broker_of
from magnetar.admin.routing import Router
from magnetar.base.names import TopicName, parse_partition
from magnetar.broker.schemas.compatibility import text_of
from magnetar.broker.schemas.model import (
    IncompatibleSchema,
    Schema,
    SchemaNotFound,
    SchemaType,
    SchemaVersion,
)

if TYPE_CHECKING:
    from magnetar.broker.schemas.registry import SchemaRegistry

router: Final = Router()
_S: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_I32: Final = struct.Struct(">i")


def _found(request: Request, tenant: str, namespace: str, topic: str) -> "tuple[SchemaRegistry, TopicName]":
    broker = broker_of(request)
    name, _ = parse_partition(f"persistent://{tenant}/{namespace}/{topic}")
    broker.namespaces.require(name.namespace_name)
    return broker.schemas, name


def _shown(found: SchemaVersion) -> dict[str, Any]:
    schema = found.schema
    assert schema is not None
    return {
        "version": found.version,
        "type": schema.type.name,
        "timestamp": found.created_ms,
        "data": text_of(schema),
        "properties": dict(schema.properties),
    }


@router.get(_S + "/schema", summary="The latest schema of a topic")
@router.get(_S + "/schema/{version}", summary="One version of a topic's schema")
async def show(
    request: Request, tenant: str, namespace: str, topic: str, version: int | None = None
) -> Response:
    registry, name = _found(request, tenant, namespace, topic)
    try:
        return value(_shown(registry.get(name, version)))
    except SchemaNotFound:
        raise Refused(404, "Schema not found") from None


@router.get(_S + "/schemas", summary="All versions since the last deletion")
async def show_all(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    registry, name = _found(request, tenant, namespace, topic)
    return value({"getSchemaResponses": [_shown(one) for one in registry.versions(name)]})


@router.post(_S + "/schema", summary="Add a schema: {type, schema, properties}")
async def add(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    registry, name = _found(request, tenant, namespace, topic)
    version = await registry.register(name, await _given(request), may_update=True)
    return value({"version": {"version": version}})


@router.delete(_S + "/schema", summary="Delete all versions; ?force=true counts from 0 again")
async def delete(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    registry, name = _found(request, tenant, namespace, topic)
    if flag(request, "force"):
        await registry.purge(name)
        return value({"version": -1})
    return value({"version": await registry.delete(name)})


@router.post(_S + "/compatibility", summary="Whether the topic would take a schema now")
async def compatibility(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    registry, name = _found(request, tenant, namespace, topic)
    strategy = broker_of(request).namespaces.policies_of(name).schema_compatibility.value
    schema = await _given(request)
    try:
        registry.is_compatible(name, schema)
        is_compatible = True
    except IncompatibleSchema:
        is_compatible = False
    return JSONResponse({"schemaCompatibilityStrategy": strategy, "compatibility": is_compatible}, 202)


@router.post(_S + "/version", summary="The version that a schema has in the topic; -1 when it has none")
async def version_of(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    registry, name = _found(request, tenant, namespace, topic)
    found = registry.find(name, await _given(request))
    return value({"version": found.version if found is not None else -1})


async def _given(request: Request) -> Schema:
    document = await object_body(request)
    kind, text, properties = (
        document.get("type"),
        document.get("schema", ""),
        document.get("properties") or {},
    )
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise Refused(422, f"there is no schema type {str(kind)[:100]}")
    if not isinstance(text, str) or not isinstance(properties, dict):
        raise Refused(422, "a schema has a text as its definition and an object of properties")
    if not all(isinstance(one, str) for one in properties.values()):
        raise Refused(422, "the properties of a schema are texts")
    data = text.encode()
    if kind == SchemaType.KEY_VALUE.name:
        data = _key_value(text)
    return Schema(SchemaType[kind], data, properties)


def _key_value(text: str) -> bytes:
    """From the JSON that administrators write to `[size][key's definition][size][value's]`."""
    try:
        parts = json.loads(text)
        encoded = [_definition(parts[name]) for name in ("key", "value")]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(422, 'a key-value schema is {"key": definition, "value": definition}') from None
    return b"".join(_I32.pack(len(part)) + part for part in encoded)


def _definition(content: Any) -> bytes:
    return b"" if content in ("", None) else json.dumps(content, separators=(",", ":")).encode()

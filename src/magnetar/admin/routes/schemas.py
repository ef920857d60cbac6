"""Topics' schemas: show, add, compare, delete.

An administrator may add a new schema even if policies forbid that to clients.
"""

import struct
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar.admin.answers import Refused, flag, object_body, read_json, value, write_json
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.routing import Router
from magnetar.base.names import PERSISTENT, TopicName, parse_partition
from magnetar.broker.schemas.model import (
    InvalidSchema,
    Schema,
    SchemaNotFound,
    SchemaType,
    SchemaVersion,
    text_of,
)

router: Final = Router()
_S: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_I32: Final = struct.Struct(">i")


def _name(tenant: str, namespace: str, topic: str) -> TopicName:
    return parse_partition(f"{PERSISTENT}{tenant}/{namespace}/{topic}")[0]


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
    name = _name(tenant, namespace, topic)
    try:
        return value(_shown(cases_of(request).schemas.get(caller_of(request), name, version)))
    except SchemaNotFound:
        raise Refused(404, "Schema not found") from None


@router.get(_S + "/schemas", summary="All versions since the last deletion")
async def show_all(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    found = cases_of(request).schemas.versions(caller_of(request), _name(tenant, namespace, topic))
    return value({"getSchemaResponses": [_shown(one) for one in found]})


@router.post(_S + "/schema", summary="Add a schema: {type, schema, properties}")
async def add(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    name, given = _name(tenant, namespace, topic), await given_schema(request)
    version = await cases_of(request).schemas.add(caller_of(request), name, given)
    return value({"version": {"version": version}})


@router.delete(_S + "/schema", summary="Delete all versions; ?force=true counts from 0 again")
async def delete(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    name, schemas = _name(tenant, namespace, topic), cases_of(request).schemas
    if flag(request, "force"):
        await schemas.purge(caller_of(request), name)
        return value({"version": -1})
    return value({"version": await schemas.delete(caller_of(request), name)})


@router.post(_S + "/compatibility", summary="Whether the topic would take a schema now")
async def compatibility(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    name, given = _name(tenant, namespace, topic), await given_schema(request)
    strategy, is_compatible = cases_of(request).schemas.compare(caller_of(request), name, given)
    return JSONResponse({"schemaCompatibilityStrategy": strategy.value, "compatibility": is_compatible}, 202)


@router.post(_S + "/version", summary="The version that a schema has in the topic; -1 when it has none")
async def version_of(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    name, given = _name(tenant, namespace, topic), await given_schema(request)
    found = cases_of(request).schemas.find(caller_of(request), name, given)
    return value({"version": found.version if found is not None else -1})


async def given_schema(request: Request) -> Schema:
    """The schema in a body {type, schema, properties}.  Raises Refused."""
    document = await object_body(request)
    kind, text, properties = (
        document.get("type"),
        document.get("schema", ""),
        document.get("properties") or {},
    )
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise Refused(422, f"there is no schema type {str(kind)[:100]}", InvalidSchema.code)
    if not isinstance(text, str) or not isinstance(properties, dict):
        raise Refused(
            422, "a schema has a text as its definition and an object of properties", InvalidSchema.code
        )
    if not all(isinstance(one, str) for one in properties.values()):
        raise Refused(422, "the properties of a schema are texts", InvalidSchema.code)
    data = text.encode()
    if kind == SchemaType.KEY_VALUE.name:
        data = await _key_value(request, text)
    return Schema(SchemaType[kind], data, properties)


async def _key_value(request: Request, text: str) -> bytes:
    """The bytes `[size][key's definition][size][value's]` of the JSON that administrators send."""
    try:
        parts = await read_json(request, text)
        encoded = [await _definition(request, parts[name], len(text)) for name in ("key", "value")]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(
            422, 'a key-value schema is {"key": definition, "value": definition}', InvalidSchema.code
        ) from None
    return b"".join(_I32.pack(len(part)) + part for part in encoded)


async def _definition(request: Request, content: Any, size: int) -> bytes:
    return b"" if content in ("", None) else (await write_json(request, content, size)).encode()

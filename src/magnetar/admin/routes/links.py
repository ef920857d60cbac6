"""Linked topics (`/magnetar/v1/links`): what `magnetar clone` sends of another cluster's topics, and how far it is.

docs/reference/links.md has the forms.  Record batches, or entries, come as bytes, one after the other; each request
has a limit, and so have all that are at work together.  Positions in a cluster of Pulsar's are texts, `ledger:entry`.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, body_bytes, done, object_body, value
from magnetar.admin.context import caller_of, cases_of, context_of
from magnetar.admin.routing import Router
from magnetar.admin.rows import number_in, partition_in, required_number_in, rows_of, text_in
from magnetar.base.config import LONG_MAX
from magnetar.base.error_codes import CROWDED
from magnetar.broker.log.model import LINKED_OFFSET_MAX, Position
from magnetar.broker.schemas.model import Schema, SchemaType
from magnetar.broker.usecases.linked_copies import PartitionCopy, SubscriptionPosition
from magnetar.broker.usecases.links import GroupPosition

router: Final = Router()

BATCHES_BYTES_MAX: Final = 32 << 20  # of one request
RANGES_MAX: Final = 10_000  # of one subscription in a partition
TEXT_CHARS_MAX: Final = 1024
CONFIGS_MAX: Final = 200
_PARTITIONS_MAX: Final = 100_000
_POSITION: Final = re.compile(r"([0-9]{1,19}):(-1|[0-9]{1,19})", re.ASCII)
_LINKS: Final = "/magnetar/v1/links"
_LINK: Final = _LINKS + "/{topic:path}"


@router.get(_LINKS, summary="The linked topics, where each comes from, and how far it is")
async def links(request: Request) -> Response:
    rows = [
        {
            "topic": link.topic,
            "source": link.source,
            "created_ms": link.created_ms,
            "lag": None if report is None else report.lag,
            "error": "" if report is None else report.error,
            "reported_ms": None if report is None else report.at_ms,
        }
        for link, report in cases_of(request).links.all(caller_of(request))
    ]
    return value({"links": rows})


@router.put(_LINK, summary="Create a linked topic, or give it the partitions and settings of its source")
async def declare(request: Request, topic: str) -> Response:
    body = await object_body(request)
    configs = body.get("configs")
    if configs is not None and (
        not isinstance(configs, dict)
        or len(configs) > CONFIGS_MAX
        or not all(isinstance(text, str) and len(text) <= TEXT_CHARS_MAX for text in configs.values())
    ):
        raise BadBody(f"configs must be an object of at most {CONFIGS_MAX} texts")
    count = number_in(body, "partitions", _PARTITIONS_MAX)
    if not count:
        raise BadBody(f"partitions must be a whole number from 1 to {_PARTITIONS_MAX}")
    is_partitioned = body.get("partitioned", True)
    if not isinstance(is_partitioned, bool):
        raise BadBody("partitioned must be true or false")
    declared = await cases_of(request).links.declare(
        caller_of(request),
        topic,
        _short(body, "source"),
        _short(body, "origin"),
        count,
        configs,
        is_partitioned=is_partitioned,
    )
    rows = [
        {
            "partition": one.partition,
            "log_start": one.log_start,
            "end": one.end,
            "new": one.is_new,
            "position": _shown(one.position),
        }
        for one in declared.partitions
    ]
    schemas = declared.schema_count
    return value({"partitions": rows, "left_out": dict(declared.left_out), "schemas": schemas})


@router.post(
    _LINK + "/records",
    summary="Append record batches at their offsets if the log ends at ?after or later; it then ends at ?end at least",
)
async def append(
    request: Request, topic: str, partition: int, after: int = 0, begin: int = 0, end: int = 0
) -> Response:
    caller = caller_of(request)
    copy = cases_of(request).links.copy(caller, topic, partition)
    for name, offset in (("after", after), ("begin", begin), ("end", end)):
        if not 0 <= offset <= LINKED_OFFSET_MAX:
            raise Refused(400, f"{name} must be from 0 to {LINKED_OFFSET_MAX}")
    await _admitted(copy)
    with context_of(request).appended.holding(caller.principal, _size_of(request)):
        batches = memoryview(await body_bytes(request, BATCHES_BYTES_MAX))
        reached = await copy.append(batches, after=after, begin=begin, end=end)
    return value({"end": reached})


@router.post(
    _LINK + "/entries",
    summary="Append entries of a Pulsar cluster, ?after the position of the last known one",
)
async def append_entries(request: Request, topic: str, partition: int, after: str = "") -> Response:
    caller = caller_of(request)
    copy = cases_of(request).links.copy(caller, topic, partition)
    known = _position(after, "after") if after else None
    await _admitted(copy)
    with context_of(request).appended.holding(caller.principal, _size_of(request)):
        entries = memoryview(await body_bytes(request, BATCHES_BYTES_MAX))
        reached = await copy.append_entries(entries, after=known)
    return value({"position": _shown(reached)})


@router.post(_LINK + "/schemas", summary="Append versions of the topic's schema, the first of which is given")
async def add_schemas(request: Request, topic: str) -> Response:
    body = await object_body(request)
    first = required_number_in(body, "first")
    rows = body.get("schemas")
    if not isinstance(rows, list):
        raise BadBody("schemas must be a list")
    count = await cases_of(request).links.add_schemas(
        caller_of(request), topic, first, [None if row is None else _schema(row) for row in rows]
    )
    return value({"schemas": count})


@router.post(_LINK + "/subscriptions", summary="Give subscriptions what they have acknowledged in the source")
async def set_subscriptions(request: Request, topic: str) -> Response:
    wanted = [
        SubscriptionPosition(
            text_in(row, "subscription"),
            partition_in(row),
            _position(row.get("mark_delete"), "mark_delete"),
            _ranges(row),
            _texts(row, "properties"),
        )
        for row in rows_of(await object_body(request), "subscriptions")
    ]
    errors = await cases_of(request).links.set_subscriptions(caller_of(request), topic, wanted)
    rows = [
        {"subscription": one.subscription, "partition": one.partition, "error": error}
        for one, error in zip(wanted, errors, strict=True)
    ]
    return value({"subscriptions": rows})


@router.post(_LINK + "/positions", summary="Give groups the positions that they have in the source")
async def set_positions(request: Request, topic: str) -> Response:
    wanted = [
        GroupPosition(
            text_in(row, "group"),
            partition_in(row),
            required_number_in(row, "offset"),
            str(row.get("metadata", "")),
        )
        for row in rows_of(await object_body(request), "positions")
    ]
    errors = await cases_of(request).links.set_positions(caller_of(request), topic, wanted)
    rows = [
        {"group": one.group, "partition": one.partition, "error": error}
        for one, error in zip(wanted, errors, strict=True)
    ]
    return value({"positions": rows})


@router.post(_LINK + "/report", summary="Say how many records a link is behind, and its last error")
async def report(request: Request, topic: str) -> Response:
    body = await object_body(request)
    error = body.get("error", "")
    if not isinstance(error, str):
        raise BadBody("error must be a text")
    lag = required_number_in(body, "lag")
    cases_of(request).links.report(caller_of(request), topic, lag, error[:TEXT_CHARS_MAX])
    return done()


@router.delete(_LINK, summary="Cut a linked topic loose: it takes records of all producers from now on")
async def cut(request: Request, topic: str) -> Response:
    await cases_of(request).links.cut(caller_of(request), topic)
    return done()


async def _admitted(copy: PartitionCopy) -> None:
    """Raise Refused if the topic's publish rates let nothing come for a long time; otherwise wait for them."""
    if not await copy.is_admitted():
        raise Refused(503, "the publish rate of the topic is exceeded: send it again", CROWDED)


def _size_of(request: Request) -> int:
    """How large the body can be; 0 for a request without one."""
    said = request.headers.get("content-length", "" if "transfer-encoding" in request.headers else "0")
    return min(int(said), BATCHES_BYTES_MAX) if said.isascii() and said.isdecimal() else BATCHES_BYTES_MAX


def _position(text: object, name: str) -> Position:
    found = _POSITION.fullmatch(text) if isinstance(text, str) else None
    if found is None or max(int(found[1]), int(found[2])) > LONG_MAX:
        raise BadBody(f"{name} must be a position, such as 5:17")
    return Position(int(found[1]), int(found[2]))


def _shown(position: Position | None) -> str | None:
    return None if position is None else str(position)


def _ranges(row: Mapping[str, Any]) -> list[tuple[Position, Position]]:
    """Pairs of positions: what is behind the first one is acknowledged, up to the second one."""
    pairs = row.get("acknowledged", [])
    if (
        not isinstance(pairs, list)
        or len(pairs) > RANGES_MAX
        or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    ):
        raise BadBody(f"acknowledged must be a list of at most {RANGES_MAX} pairs of positions")
    return [(_position(first, "acknowledged"), _position(last, "acknowledged")) for first, last in pairs]


def _texts(row: Mapping[str, Any], name: str) -> Mapping[str, str]:
    texts = row.get(name, {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise BadBody(f"{name} must be an object of texts")
    return texts


def _schema(row: object) -> Schema:
    if not isinstance(row, dict):
        raise BadBody("a schema must be an object, or null if it was deleted")
    kind = number_in(row, "type", max(SchemaType))
    if kind is None:
        raise BadBody("type must be the number of a schema's type")
    try:
        data = b64decode(str(row.get("data", "")), validate=True)
    except ValueError:
        raise BadBody("data must be a schema's definition in base64") from None
    return Schema(SchemaType(kind), data, _texts(row, "properties"), str(row.get("name", "")))


def _short(body: Mapping[str, Any], name: str) -> str:
    text = text_in(body, name)
    if len(text) > TEXT_CHARS_MAX or not text.isprintable():
        raise BadBody(f"{name} must be a text of at most {TEXT_CHARS_MAX} characters that can be printed")
    return text

"""The routes for readers of whole topics (`/magnetar/v1`): which topics exist, which files hold a range, the tail.

docs/reference/pipelines-rest.md has the forms of answers.  Every list in a request has a limit, and a thread encodes
long answers.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from magnetar.admin.answers import BadBody, Refused, done, made, object_body, value
from magnetar.admin.context import caller_of, cases_of, context_of
from magnetar.admin.in_flight import SentBytes
from magnetar.admin.routes.schemas import given_schema
from magnetar.admin.routing import Router
from magnetar.admin.rows import error_row, number_in, partition_in, rows_of, text_in
from magnetar.base.config import LONG_MAX
from magnetar.base.error_codes import CROWDED
from magnetar.base.errors import BrokerError
from magnetar.base.patterns import whole_matcher
from magnetar.broker.history.model import Located, Range, Segment
from magnetar.broker.schemas.model import SchemaNotFound, decode_version, text_of
from magnetar.broker.usecases.history import PartitionOffsets, ReadableTopic, RecordReader
from magnetar.storage.store import LEASE_S_MAX, Buffer

router: Final = Router()

PATTERN_CHARS_MAX: Final = 1024
WAIT_MS_MAX: Final = 30_000
ENTRIES_BYTES_DEFAULT: Final = 1 << 20
ENTRIES_BYTES_MAX: Final = 8 << 20
IN_FLIGHT_BYTES_MAX: Final = 256 << 20  # of all answers with records; above it, each gets little
_INVALID_PATTERN: Final = "INVALID_PATTERN"
_CROWDED_BYTES: Final = 64 << 10
_SEND_BYTES: Final = 256 << 10
_TURN_EVERY: Final = 256


@router.get(
    "/magnetar/v1/topics", summary="The topics that can be read, or those whose names fit ?pattern (RE2)"
)
async def topics(request: Request, pattern: str | None = None) -> Response:
    cases = cases_of(request)
    fits = _pattern(pattern)
    rows = []
    for number, topic in enumerate(cases.history.topics(caller_of(request))):
        if number % _TURN_EVERY == _TURN_EVERY - 1:
            await asyncio.sleep(0)
        if topic is None:
            continue
        short = cases.kafka_names.shown(topic.name)
        if fits(short) or fits(topic.name.full):
            rows.append(_topic_row(topic, short))
    rows.sort(key=lambda row: row["full"])
    return await made(lambda: {"topics": rows})


def _topic_row(topic: ReadableTopic, short: str) -> dict[str, Any]:
    return {
        "topic": short,
        "full": topic.name.full,
        "partitions": topic.partition_count,
        "partitioned": topic.is_partitioned,
    }


def _pattern(text: str | None) -> Callable[[str], object]:
    """A function that returns whether the pattern matches a whole name; without a pattern all names match."""
    if text is None:
        return bool
    try:
        return whole_matcher(text, PATTERN_CHARS_MAX)
    except ValueError as error:
        shown = f"{text[:200]!r} is not a regular expression that is run here"
        raise Refused(400, f"{shown}: {error}", _INVALID_PATTERN) from None


@router.get(
    "/magnetar/v1/topics/{topic:path}/schema", summary="A topic's schema: the newest one, or ?version"
)
async def schema(request: Request, topic: str) -> Response:
    version = _query(request.query_params, "version", -1)
    cases = cases_of(request)
    try:
        found = cases.history.schema(caller_of(request), topic, None if version < 0 else version)
    except SchemaNotFound:
        which = "schema" if version < 0 else f"schema of version {version}"
        raise Refused(404, f"{topic} has no {which}", SchemaNotFound.code) from None
    assert found.schema is not None
    return value(
        {
            "version": found.version,
            "type": found.schema.type.name,
            "schema": text_of(found.schema),
            "properties": dict(found.schema.properties),
        }
    )


@router.post(
    "/magnetar/v1/topics/{topic:path}/schema",
    summary="Give a topic a schema, as a producer does: {type, schema, properties} -> {version}",
)
async def add_schema(request: Request, topic: str) -> Response:
    given, cases = await given_schema(request), cases_of(request)
    version = await cases.schemas.register(caller_of(request), cases.kafka_names.name(topic), given)
    return value({"version": decode_version(version)})


@router.post("/magnetar/v1/offsets", summary="Where partitions begin and end, and what they have at a time")
async def offsets(request: Request) -> Response:
    wanted = [
        (text_in(row, "topic"), partition_in(row), number_in(row, "timestamp"))
        for row in rows_of(await object_body(request), "partitions")
    ]
    found = []
    history, caller = cases_of(request).history, caller_of(request)
    for number, (topic, index, timestamp_ms) in enumerate(wanted):
        if number % _TURN_EVERY == _TURN_EVERY - 1:
            await asyncio.sleep(0)
        try:
            found.append(_offsets_row(request, await history.offsets(caller, topic, index, timestamp_ms)))
        except BrokerError as error:
            found.append(error_row(topic, index, error))
    return await made(lambda: {"partitions": found})


def _offsets_row(request: Request, found: PartitionOffsets) -> dict[str, Any]:
    return {
        "topic": cases_of(request).kafka_names.shown(found.topic),
        "full": found.topic.full,
        "partition": found.partition,
        "earliest": found.earliest,
        "high_watermark": found.high_watermark,
        "last_stable": found.last_stable,
        "offset_for_timestamp": found.at_time,
        "error": None,
    }


# --- where a range lies ----------------------------------------------------------------------------------------------


@router.post(
    "/magnetar/v1/segments", summary="The files that hold ranges of partitions, and where their tails begin"
)
async def locate(request: Request) -> Response:
    history = cases_of(request).history
    body = await object_body(request)
    wanted = [_range(row) for row in rows_of(body, "partitions")]
    lease = text_in(body, "lease") if body.get("lease") is not None else None
    lease, found = await history.locate(caller_of(request), wanted, lease, _lease_s(body))
    store = history.store_id

    def content() -> dict[str, Any]:
        rows = [
            error_row(asked.topic, asked.partition, one)
            if isinstance(one, BrokerError)
            else _located_row(one)
            for asked, one in zip(wanted, found, strict=True)
        ]
        return {"lease": lease, "store": store, "partitions": rows}

    return await made(content)


@router.post("/magnetar/v1/leases/{lease}", summary="Let a lease end {lease_s} from now")
async def renew(request: Request, lease: str) -> Response:
    lease_s = _lease_s(await object_body(request))
    await cases_of(request).history.renew_lease(lease, lease_s)
    return done()


@router.delete("/magnetar/v1/leases/{lease}", summary="End a lease: its files are not needed any more")
async def end(request: Request, lease: str) -> Response:
    await cases_of(request).history.end_lease(lease)
    return done()


def _lease_s(body: Mapping[str, Any]) -> int | None:
    found = body.get("lease_s")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= LEASE_S_MAX:
        raise BadBody(f"lease_s must be a number of seconds, up to {LEASE_S_MAX}")
    return math.ceil(found)


def _range(row: Mapping[str, Any]) -> Range:
    return Range(
        text_in(row, "topic"),
        partition_in(row),
        number_in(row, "from_offset"),
        number_in(row, "to_offset"),
        number_in(row, "from_timestamp"),
        number_in(row, "to_timestamp"),
    )


def _located_row(found: Located) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "full": found.full,
        "partition": found.partition,
        "earliest": found.earliest,
        "high_watermark": found.high_watermark,
        "last_stable": found.last_stable,
        "from_offset": found.from_offset,
        "to_offset": found.to_offset,
        "segments": [_segment_row(one) for one in found.segments],
        "tail_from": found.tail_from,
        "aborted": found.aborted,
        "error": None,
    }


def _segment_row(segment: Segment) -> dict[str, Any]:
    return {
        "ledger": segment.ledger_id,
        "path": segment.path,
        "state": "sealed" if segment.is_sealed else "open",
        "first_offset": segment.first_offset,
        "last_offset": segment.last_offset,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "data_bytes": segment.data_bytes,
        "bytes": segment.bytes,
        "cuts": segment.cuts,
        "end_position": segment.end_position,
    }


# --- the tail --------------------------------------------------------------------------------------------------------


class _Records(Response):
    """Store records, sent in pieces as the client reads them.  They count among those that are `sent` until then."""

    media_type = "application/octet-stream"

    def __init__(self, parts: list[Buffer], headers: dict[str, str], sent: SentBytes) -> None:
        self._parts = parts
        self._sent = sent
        self._size = sum(map(len, parts))
        sent.total += self._size
        super().__init__(b"", headers={**headers, "content-length": str(self._size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            batch: list[Buffer] = []
            size = 0
            for part in self._parts:
                batch.append(part)
                size += len(part)
                if size >= _SEND_BYTES:
                    await send({"type": "http.response.body", "body": b"".join(batch), "more_body": True})
                    batch = []
                    size = 0
            await send({"type": "http.response.body", "body": b"".join(batch), "more_body": False})
        finally:
            self._sent.total -= self._size


@router.get("/magnetar/v1/entries", summary="Store records of a partition from an offset on")
async def entries(request: Request, topic: str) -> Response:
    query = request.query_params
    reader = cases_of(request).history.reader(caller_of(request), topic, _query(query, "partition"))
    offset = _query(query, "offset")
    bytes_max = min(_query(query, "bytes_max", ENTRIES_BYTES_DEFAULT), ENTRIES_BYTES_MAX)
    wait_ms = min(_query(query, "wait_ms", 0), WAIT_MS_MAX)
    end_offset = _query(query, "end_offset", LONG_MAX)
    form = query.get("as", "stored")
    if form not in ("stored", "kafka"):
        raise Refused(400, f"as must be 'stored' or 'kafka', not {form[:100]!r}")
    reader.check(offset)
    if wait_ms and reader.high_watermark <= offset < end_offset:
        await _wait(request, reader, offset, wait_ms)
    sent = context_of(request).sent
    if sent.total >= IN_FLIGHT_BYTES_MAX:
        bytes_max = min(bytes_max, _CROWDED_BYTES)
    sent.total += bytes_max  # others that read at this moment find less room
    try:
        parts = await reader.read(offset, end_offset, bytes_max, as_kafka=form == "kafka")
    finally:
        sent.total -= bytes_max
    headers = {
        "X-Magnetar-High-Watermark": str(reader.high_watermark),
        "X-Magnetar-Last-Stable": str(reader.last_stable),
        "X-Magnetar-Earliest": str(reader.earliest),
    }
    return _Records(parts, headers, sent)


def _query(query: Mapping[str, str], name: str, default: int | None = None) -> int:
    """The query parameter `name`, a whole number from 0 on."""
    text = query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (
        text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= LONG_MAX
    ):
        raise Refused(400, f"{name} must be a whole number from 0 to {LONG_MAX}")
    return int(text)


async def _wait(request: Request, reader: RecordReader, offset: int, wait_ms: int) -> None:
    """Wait until there is something to read, the time is over, or the client has gone."""
    if reader.is_crowded:
        raise Refused(
            503, "too many readers wait for records already: ask again, or without wait_ms", CROWDED
        )
    waiting = asyncio.ensure_future(reader.wait(offset, wait_ms / 1000))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        gone.cancel()
        await asyncio.wait((waiting, gone))
    try:
        if not waiting.cancelled():
            waiting.result()
    finally:
        del waiting  # it has the error that is raised, whose traceback has this frame (`base/errors.kept`)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

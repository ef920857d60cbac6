"""The answers of the admin API: Pulsar's statuses, and errors as `{"reason": "..."}`.

One table turns the broker's errors into statuses.  Magnetar's own paths (`OWN_PATHS`) answer errors as `{"error":
"UNKNOWN_TOPIC", "reason": "..."}`, so that a program can tell them apart.  A `BrokerError` has its `code`.  Any other
refusal has the code that its raiser gave it, or the code of its status.  Bodies have a limit and are parsed as JSON;
`guard.py` has checked that their type is JSON.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from magnetar.admin.json_bodies import JsonReader, TooManyDocuments
from magnetar.base.error_codes import CROWDED
from magnetar.base.errors import (
    BrokerError,
    EntryCorrupt,
    LeaseNotFound,
    MetadataError,
    StorageError,
    TooManyLeases,
)
from magnetar.base.names import InvalidTopicName
from magnetar.broker import errors
from magnetar.broker.compaction.errors import CompactionRunning
from magnetar.broker.history.errors import NonPersistent
from magnetar.broker.jobs.errors import (
    FunctionBusy,
    FunctionExists,
    FunctionNotFound,
    FunctionsDisabled,
    FunctionTimedOut,
    InvalidFunction,
    InvalidPipeline,
    InvalidReplicator,
    LinkNotFound,
    PipelineExists,
    PipelineNotFound,
    ReplicatorBusy,
    ReplicatorExists,
    ReplicatorNotFound,
    WorkerBusy,
    WorkerFenced,
)
from magnetar.broker.policy.errors import (
    InvalidConfig,
    InvalidNamespace,
    InvalidPolicy,
    MalformedPolicy,
    NamespaceExists,
    NamespaceNotFound,
    QuotaAboveRetention,
    ResourceGroupInUse,
    ResourceGroupNotFound,
    TenantExists,
    TenantNotEmpty,
    TenantNotFound,
    TooManyNamespaces,
    TooManyTenants,
    UnknownCluster,
)
from magnetar.broker.schemas.model import IncompatibleSchema, InvalidSchema, SchemaNotFound
from magnetar.broker.security.errors import (
    AuthenticationFailed,
    InvalidRule,
    NamespaceNotAuthorized,
    NotAuthorized,
    PipelineNotAuthorized,
    SecurityDisabled,
    TopicNotAuthorized,
)
from magnetar.broker.security.model import Operation
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.errors import NothingExpired, SubscriptionNotAllowed, SubscriptionNotFound
from magnetar.broker.topics.errors import (
    EmptyTopic,
    NamespaceNotEmpty,
    NotPartitioned,
    TooManyTopics,
    TopicInUse,
    WrongKindOfTopic,
)
from magnetar.broker.transactions.errors import (
    InvalidTransactionStatus,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
    TransactionsDisabled,
)

log = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 1 << 20
BODY_S_MAX: Final = 30.0
OWN_PATHS: Final = "/magnetar/"
UNSUPPORTED: Final = 501

# The first class that fits wins.
_STATUSES: Final[tuple[tuple[type[BrokerError], int], ...]] = (
    (AuthenticationFailed, 401),
    (NotAuthorized, 403),
    (SecurityDisabled, UNSUPPORTED),
    (InvalidRule, 412),
    (NotPartitioned, 409),
    (WrongKindOfTopic, 405),
    (EmptyTopic, 412),
    (TopicInUse, 412),
    (CompactionRunning, 409),
    (ConsumerBusy, 412),
    (SubscriptionNotFound, 404),
    (NothingExpired, 409),
    (SubscriptionNotAllowed, 412),
    (errors.UnknownTopic, 404),
    (errors.OffsetOutOfRange, 416),
    (errors.OffsetsDiffer, 409),
    (errors.InvalidRecord, 422),
    (errors.CorruptMessage, 422),
    (errors.UnsupportedMessageFormat, 422),
    (errors.RecordTooLarge, 413),
    (NonPersistent, 409),
    (errors.TopicExists, 409),
    (errors.InvalidPartitions, 422),
    (IncompatibleSchema, 409),
    (InvalidSchema, 422),
    (SchemaNotFound, 404),
    (InvalidTopicName, 412),
    (NamespaceNotFound, 404),
    (NamespaceExists, 409),
    (NamespaceNotEmpty, 409),
    (InvalidConfig, 422),
    (InvalidNamespace, 412),
    (TenantNotFound, 404),
    (TenantExists, 409),
    (TenantNotEmpty, 409),
    (ResourceGroupNotFound, 404),
    (ResourceGroupInUse, 412),
    (UnknownCluster, 412),
    (MalformedPolicy, 400),
    (QuotaAboveRetention, 412),
    (InvalidPolicy, 412),
    (TooManyTopics, 412),
    (TooManyTenants, 412),
    (TooManyNamespaces, 412),
    (TransactionsDisabled, 503),
    (errors.PolicyViolation, 403),
    (LinkNotFound, 404),
    (PipelineNotFound, 404),
    (PipelineExists, 409),
    (InvalidPipeline, 422),
    (FunctionsDisabled, UNSUPPORTED),
    (FunctionNotFound, 404),
    (FunctionExists, 400),
    (FunctionBusy, 409),
    (FunctionTimedOut, 408),
    (InvalidFunction, 400),
    (InvalidReplicator, 412),
    (ReplicatorNotFound, 404),
    (ReplicatorExists, 400),
    (ReplicatorBusy, 409),
    (WorkerBusy, 409),
    (WorkerFenced, 409),
    (TransactionCoordinatorNotFound, 404),
    (TransactionNotFound, 404),
    (InvalidTransactionStatus, 409),
    (EntryCorrupt, 500),  # permanent: a client need not try again
    (LeaseNotFound, 404),
    (TooManyLeases, 429),
    (MetadataError, 503),
    (errors.NotLeader, 503),
    (StorageError, 503),
)

# What a caller with rights on the tenant does to a namespace, and one with rights on the namespace to a topic.
_OF_THE_TENANT: Final = frozenset((Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.FUNCTIONS))
_OF_THE_NAMESPACE: Final = frozenset(
    (Operation.CREATE, Operation.DELETE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
)

# Codes of refusals without their own.  They are written out, because Python's names of statuses change with releases.
_CODES: Final = {
    400: "BAD_REQUEST",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "REQUEST_ENTITY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
}


class Refused(Exception):
    """A request gets `status` and one sentence.  `code` is for Magnetar's own paths; without it they send the
    status's code.
    """

    def __init__(self, status: int, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.code = code


class BadBody(Refused):
    """The body of the request is not valid."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, reason)


def unsupported(what: str) -> Refused:
    """The refusal of a feature of Pulsar that Magnetar lacks: the server stores no setting without an effect."""
    return Refused(UNSUPPORTED, f"{what}: not supported by Magnetar.")


def reason(status: int, text: str) -> Response:
    return JSONResponse({"reason": text}, status)


def done() -> Response:
    """204, as Pulsar answers a successful change."""
    return Response(status_code=204)


def value(content: Any) -> Response:
    """A JSON value; None gives Pulsar's empty answer for a policy that is not set."""
    return Response(status_code=200) if content is None else JSONResponse(content)


async def made(content: Callable[[], Any]) -> Response:
    """An answer with the JSON of `content()`; a thread makes and encodes it."""
    text = await asyncio.to_thread(lambda: json.dumps(content(), separators=(",", ":")))
    return Response(text, media_type="application/json")


def failure(request: Request, status: int, text: str, code: str = "") -> Response:
    """An error in the form of Pulsar's or of Magnetar's own paths."""
    if not request.url.path.startswith(OWN_PATHS):
        return reason(status, text)
    return JSONResponse({"error": code or _CODES[status], "reason": text}, status)


def install(app: Starlette, reader: JsonReader) -> None:
    """Make the app answer exceptions of handlers, and read bodies with `reader`."""
    app.state.json = reader

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return failure(request, error.status, error.reason, error.code)

    async def broker_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, BrokerError)
        if isinstance(error, NotAuthorized) and not request.url.path.startswith(OWN_PATHS):
            return reason(_denied(error), str(error))
        for kind, status in _STATUSES:
            if isinstance(error, kind):
                return failure(request, status, str(error), error.code)
        log.warning("%s %s: %s", request.method, request.url.path, error)
        return failure(request, 500, str(error), error.code)

    async def too_many(request: Request, error: Exception) -> Response:
        return failure(
            request, 503, "too many large documents of this client wait already: ask again", CROWDED
        )

    async def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return failure(request, error.status_code, str(error.detail))

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(TooManyDocuments, too_many)
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(BrokerError, broker_error)


def _denied(error: NotAuthorized) -> int:
    """Pulsar's status for a client that has logged in and lacks a right.

    401: the right concerns a tenant, the cluster, a broker or a topic, functions, or creating, unloading or deleting a
    namespace. 403: it concerns the content of a namespace, or the policies of a namespace or topic.
    """
    if isinstance(error, NamespaceNotAuthorized):
        return 401 if error.operation in _OF_THE_TENANT else 403
    if isinstance(error, TopicNotAuthorized):
        return 403 if error.operation in _OF_THE_NAMESPACE else 401
    return 403 if isinstance(error, PipelineNotAuthorized) else 401


async def body_bytes(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body.  Raises Refused: 413 if it is larger than any valid body, 408 if it does not come."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for part in request.stream():
                size += len(part)
                if size > bytes_max:
                    raise Refused(413, f"the body is larger than {bytes_max} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the body has not come within {BODY_S_MAX:.0f} s") from None
    return b"".join(parts)


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


async def read_json(request: Request, content: bytes | str) -> Any:
    """A document that the request brings; see `JsonReader.read`."""
    reader: JsonReader = request.app.state.json
    return await reader.read(content, _address(request))


async def write_json(request: Request, found: Any, size: int) -> str:
    """A part of what `read_json` has read, as text; see `JsonReader.write`."""
    reader: JsonReader = request.app.state.json
    return await reader.write(found, size, _address(request))


async def body(request: Request) -> Any:
    """The body as JSON; None if there is none.  Raises BadBody."""
    content = await body_bytes(request)
    if not content.strip():
        return None
    try:
        parsed = await read_json(request, content)
    except UnicodeEncodeError:
        raise BadBody("the body is not JSON: a text in it has half of a character") from None
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the body is not JSON: {error}") from None
    return parsed


async def object_body(request: Request) -> Mapping[str, Any]:
    """The body as a JSON object; an empty one if there is no body.  Raises BadBody."""
    content = await body(request)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadBody("the body must be a JSON object")
    return content


def flag(request: Request, name: str, default: bool = False) -> bool:
    """The value of a query parameter that is true or false."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def text(content: str, status: int = 200) -> Response:
    return PlainTextResponse(content, status)

"""How the admin API answers: Pulsar's statuses, and its errors as `{"reason": "..."}`.

What the broker refuses is turned into a status here, in one table.  Magnetar's own paths (`OWN_PATHS`) answer errors as
`{"error": "UNKNOWN_TOPIC", "reason": "..."}`, so that a program can tell them apart: a `BrokerError` by its `code`,
any other refusal by one that is written where it is refused, or by its status's.  Bodies are read with a bound and
parsed as JSON; `guard.py` has seen to it that they say that they are.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

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
    InvalidPipeline,
    PipelineExists,
    PipelineNotFound,
    WorkerBusy,
    WorkerFenced,
)
from magnetar.broker.policy.errors import (
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
    (TransactionsDisabled, 503),
    (errors.PolicyViolation, 403),
    (PipelineNotFound, 404),
    (PipelineExists, 409),
    (InvalidPipeline, 422),
    (WorkerBusy, 409),
    (WorkerFenced, 409),
    (TransactionCoordinatorNotFound, 404),
    (TransactionNotFound, 404),
    (InvalidTransactionStatus, 409),
    (EntryCorrupt, 500),  # it stays so: asking again is of no use
    (LeaseNotFound, 404),
    (TooManyLeases, 429),
    (MetadataError, 503),
    (StorageError, 503),
)

# What a caller that may change the tenant does to a namespace, and one that may change the namespace to a topic.
_OF_THE_TENANT: Final = frozenset((Operation.CREATE, Operation.DELETE, Operation.ALTER))
_OF_THE_NAMESPACE: Final = frozenset(
    (Operation.CREATE, Operation.DELETE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
)

# Of refusals that have no code of their own.  Python's names of statuses change from release to release.
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
    """A request is answered with `status` and one sentence.  `code` is for Magnetar's own paths; without it the
    status's is sent.
    """

    def __init__(self, status: int, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.code = code


class BadBody(Refused):
    """The body is not what it must be."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, reason)


def unsupported(what: str) -> Refused:
    """For what Pulsar has and Magnetar has not: nothing is stored that would do nothing."""
    return Refused(UNSUPPORTED, f"{what}: not supported by Magnetar.")


def reason(status: int, text: str) -> Response:
    return JSONResponse({"reason": text}, status)


def done() -> Response:
    """204, as Pulsar answers what changed something."""
    return Response(status_code=204)


def value(content: Any) -> Response:
    """A JSON value; None is Pulsar's empty answer for a policy that is not set."""
    return Response(status_code=200) if content is None else JSONResponse(content)


def failure(request: Request, status: int, text: str, code: str = "") -> Response:
    """An error as the path's side of the API writes it."""
    if not request.url.path.startswith(OWN_PATHS):
        return reason(status, text)
    return JSONResponse({"error": code or _CODES[status], "reason": text}, status)


def install(app: Starlette) -> None:
    """Let the app answer what handlers raise."""

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

    async def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return failure(request, error.status_code, str(error.detail))

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(BrokerError, broker_error)


def _denied(error: NotAuthorized) -> int:
    """Pulsar's status for a client that it knows and that lacks the right.

    401 says that it may not touch a tenant, the cluster, a broker or a topic, or that it may not make, unload or delete
    a namespace; 403 that it may not touch what is in a namespace, or the policies of one or of a topic.
    """
    if isinstance(error, NamespaceNotAuthorized):
        return 401 if error.operation in _OF_THE_TENANT else 403
    if isinstance(error, TopicNotAuthorized):
        return 403 if error.operation in _OF_THE_NAMESPACE else 401
    return 403 if isinstance(error, PipelineNotAuthorized) else 401


async def body_bytes(request: Request) -> bytes:
    """The body; 413 when it is larger than anything that is asked for here, 408 when it does not come."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for part in request.stream():
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise Refused(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the body has not come within {BODY_S_MAX:.0f} s") from None
    return b"".join(parts)


async def body(request: Request) -> Any:
    """The body as JSON; None when there is none."""
    content = await body_bytes(request)
    if not content.strip():
        return None
    try:
        parsed = json.loads(content)
        # What could not be written again would be stored, and every answer with it in it fail: Python reads 1e999 and
        # NaN, which JSON does not have, and halves of characters (\ud800), which UTF-8 does not have.
        json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadBody("the body is not JSON: a text in it has half of a character") from None
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the body is not JSON: {error}") from None
    return parsed


async def object_body(request: Request) -> Mapping[str, Any]:
    """The body as a JSON object; an empty one when there is no body."""
    content = await body(request)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadBody("the body must be a JSON object")
    return content


def flag(request: Request, name: str, default: bool = False) -> bool:
    """A query parameter that is true or false."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def text(content: str, status: int = 200) -> Response:
    return PlainTextResponse(content, status)

"""The codes by which programs tell REST's errors apart, written out as clients have them."""

import ast
import asyncio
import functools
import importlib
import re
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.responses import Response

import magnetar
from magnetar.admin import answers
from magnetar.admin.json_bodies import JsonReader
from magnetar.admin.routing import Handler, Router
from magnetar.base import error_codes
from magnetar.base.errors import BrokerError

# Every error that the broker may refuse with: its code, and the status that REST answers it with.
CODES = {
    "AUTHENTICATION_FAILED": 401,
    "BAD_VERSION": 503,
    "BROKER_ERROR": 500,
    "CLUSTER_NOT_AUTHORIZED": 403,
    "COMPACTION_RUNNING": 409,
    "CONSUMER_ASSIGN_ERROR": 500,
    "CONSUMER_BUSY": 412,
    "COORDINATOR_NOT_AVAILABLE": 500,
    "CORRUPT_MESSAGE": 422,
    "DELEGATION_TOKEN_AUTH_DISABLED": 500,
    "DELEGATION_TOKEN_EXPIRED": 500,
    "DELEGATION_TOKEN_NOT_AUTHORIZED": 403,
    "DELEGATION_TOKEN_NOT_FOUND": 500,
    "DELEGATION_TOKEN_OWNER_MISMATCH": 500,
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": 500,
    "EMPTY_TOPIC": 412,
    "ENCRYPTION_REQUIRED": 500,
    "ENTRY_CORRUPT": 500,
    "FUNCTIONS_DISABLED": 501,
    "FUNCTION_BUSY": 409,
    "FUNCTION_EXISTS": 400,
    "FUNCTION_NOT_FOUND": 404,
    "FUNCTION_TIMED_OUT": 408,
    "GROUP_NOT_AUTHORIZED": 403,
    "INCOMPATIBLE_SCHEMA": 409,
    "INTERNAL_TOPIC": 500,
    "INVALID_CONFIG": 422,
    "INVALID_CONFIG_REQUEST": 500,
    "INVALID_FUNCTION": 400,
    "INVALID_NAMESPACE": 412,
    "INVALID_PARTITIONS": 422,
    "INVALID_PATTERN": 500,
    "INVALID_PIPELINE": 422,
    "INVALID_POLICY": 412,
    "INVALID_PRINCIPAL_TYPE": 500,
    "INVALID_PRODUCER_EPOCH": 500,
    "INVALID_RECORD": 422,
    "INVALID_RECORD_STATE": 500,
    "INVALID_REPLICATION_FACTOR": 500,
    "INVALID_REPLICATOR": 412,
    "INVALID_REPLICA_ASSIGNMENT": 500,
    "INVALID_ROLES": 401,
    "INVALID_RULE": 412,
    "INVALID_SCHEMA": 422,
    "INVALID_SHARE_REQUEST": 500,
    "INVALID_SHARE_SESSION_EPOCH": 500,
    "INVALID_TELEMETRY": 500,
    "INVALID_TELEMETRY_REQUEST": 500,
    "INVALID_TIMESTAMP": 500,
    "INVALID_TOKEN": 401,
    "INVALID_TOPIC_NAME": 412,
    "INVALID_TRANSACTION_STATUS": 409,
    "INVALID_TXN_STATE": 500,
    "LEASE_NOT_FOUND": 404,
    "LEDGER_FENCED": 503,
    "LEDGER_NOT_FOUND": 503,
    "LINK_NOT_FOUND": 404,
    "LOGIN_REFUSED": 401,
    "LOG_DIR_NOT_FOUND": 500,
    "LOG_LOST": 503,
    "LOOKUP_TIMED_OUT": 500,
    "MALFORMED_POLICY": 400,
    "MESSAGE_GONE": 500,
    "METADATA_ERROR": 503,
    "METADATA_LOST": 503,
    "NAMESPACE_EXISTS": 409,
    "NAMESPACE_NOT_AUTHORIZED": 403,
    "NAMESPACE_NOT_EMPTY": 409,
    "NAMESPACE_NOT_FOUND": 404,
    "NON_PERSISTENT": 409,
    "NOTHING_EXPIRED": 409,
    "NOT_AUTHORIZED": 403,
    "NOT_COORDINATOR": 500,
    "NOT_LEADER": 503,
    "NOT_PARTITIONED": 409,
    "NO_REASSIGNMENT_IN_PROGRESS": 500,
    "OFFSETS_DIFFER": 409,
    "OFFSET_OUT_OF_RANGE": 416,
    "OUT_OF_ORDER_SEQUENCE": 500,
    "PIPELINE_EXISTS": 409,
    "PIPELINE_NOT_AUTHORIZED": 403,
    "PIPELINE_NOT_FOUND": 404,
    "POLICY_VIOLATION": 403,
    "PRODUCERS_HELD": 503,
    "PRODUCERS_NOT_KNOWN": 503,
    "PRODUCERS_REFUSED": 403,
    "PRODUCER_BUSY": 500,
    "PRODUCER_FENCED": 500,
    "PRODUCER_ID_IN_USE": 500,
    "QUOTA_ABOVE_RETENTION": 412,
    "QUOTA_EXCEEDED": 500,
    "RECORD_TOO_LARGE": 413,
    "REPLICATOR_BUSY": 409,
    "REPLICATOR_EXISTS": 400,
    "REPLICATOR_NOT_FOUND": 404,
    "REPLICA_NOT_AVAILABLE": 500,
    "RESOURCE_GROUP_IN_USE": 412,
    "RESOURCE_GROUP_NOT_FOUND": 404,
    "SCHEMA_NOT_FOUND": 404,
    "SECURITY_DISABLED": 501,
    "SHARE_SESSION_LIMIT_REACHED": 500,
    "SHARE_SESSION_NOT_FOUND": 500,
    "STORAGE_ERROR": 503,
    "STORAGE_FULL": 503,
    "SUBSCRIPTION_BUSY": 412,
    "SUBSCRIPTION_CLOSED": 500,
    "SUBSCRIPTION_NOT_ALLOWED": 412,
    "SUBSCRIPTION_NOT_FOUND": 404,
    "TELEMETRY_TOO_EARLY": 500,
    "TELEMETRY_TOO_LARGE": 500,
    "TENANT_EXISTS": 409,
    "TENANT_NOT_AUTHORIZED": 403,
    "TENANT_NOT_EMPTY": 409,
    "TENANT_NOT_FOUND": 404,
    "TOO_MANY_LEASES": 429,
    "TOO_MANY_CONNECTIONS": 401,
    "TOO_MANY_NAMESPACES": 412,
    "TOO_MANY_PRODUCERS": 500,
    "TOO_MANY_TENANTS": 412,
    "TOO_MANY_TOPICS": 412,
    "TOO_MANY_TRANSACTIONS": 403,
    "TOPIC_DELETION_DISABLED": 403,
    "TOPIC_EXISTS": 409,
    "TOPIC_IN_USE": 412,
    "TOPIC_LINKED": 403,
    "TOPIC_NOT_ALLOWED": 404,
    "TOPIC_NOT_AUTHORIZED": 403,
    "TOPIC_TERMINATED": 500,
    "TRANSACTIONAL_ID_NOT_AUTHORIZED": 403,
    "TRANSACTIONS_DISABLED": 503,
    "TRANSACTION_CONFLICT": 500,
    "TRANSACTION_COORDINATOR_NOT_FOUND": 404,
    "TRANSACTION_NOT_FOUND": 404,
    "TRANSACTION_TIMEOUT_TOO_LONG": 403,
    "UNKNOWN_CLUSTER": 412,
    "UNKNOWN_TELEMETRY_SUBSCRIPTION": 500,
    "UNKNOWN_TOPIC": 404,
    "UNKNOWN_TOPIC_ID": 500,
    "UNSUPPORTED_MESSAGE_FORMAT": 422,
    "UNSUPPORTED_TELEMETRY_COMPRESSION": 500,
    "WORKER_BUSY": 409,
    "WORKER_FENCED": 409,
    "WRONG_KIND_OF_TOPIC": 405,
}
# What a refusal without a code of its own says.
CODES_OF_STATUSES = {
    400: "BAD_REQUEST",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "REQUEST_ENTITY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
}

_DERIVES = re.compile(r"^ *class \w+\s*\(", re.MULTILINE)  # a class with a base


@functools.cache
def _written() -> dict[type[BrokerError], ast.ClassDef]:
    """The classes below `BrokerError` as the package's sources have them, found without importing all of it."""
    root = Path(magnetar.__file__).parent
    defined: list[tuple[str, ast.ClassDef]] = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("magnetar", *path.relative_to(root).with_suffix("").parts))
        if _DERIVES.search(text := path.read_text()):  # others take four fifths of the time
            defined += [
                (module, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)
            ]
    written: dict[type[BrokerError], ast.ClassDef] = {}
    names = {"BrokerError"}
    while found := [
        (module, node)
        for module, node in defined
        if node.name not in names and names & {_name(base) for base in node.bases}
    ]:
        for module, node in found:
            names.add(node.name)
            kind = getattr(importlib.import_module(module), node.name)
            assert issubclass(kind, BrokerError), kind
            written[kind] = node
    return written


def _name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _is_written(node: ast.ClassDef) -> bool:
    """Whether the class's body has its code: the text itself, or a constant of those that clients share."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and _name(statement.target) == "code":
            value = statement.value
            if isinstance(value, ast.Attribute):
                return _name(value.value) == "error_codes"
            return isinstance(value, ast.Constant) and isinstance(value.value, str)
    return False


def _below(kind: type[BrokerError]) -> set[type[BrokerError]]:
    return {kind}.union(*(_below(one) for one in kind.__subclasses__()))


def _errors() -> set[type[BrokerError]]:
    """All of the package's, whatever other tests have imported."""
    found: set[type[BrokerError]] = {BrokerError, *_written()}
    return found | {kind for kind in _below(BrokerError) if kind.__module__.startswith("magnetar.")}


def test_every_error_has_a_written_code_of_its_own() -> None:
    written = _written()
    assert _errors() == {BrokerError, *written}, "an error that the sources' class statements do not show"
    without = [kind.__name__ for kind, node in written.items() if not _is_written(node)]
    assert not without, "write `code: ClassVar[str]` on these classes"
    assert len({kind.code for kind in written}) == len(written), "two errors have the same code"


def test_codes_and_statuses_stay_what_clients_know() -> None:
    """A class that is renamed keeps its code; a new error is a new row here."""
    errors = {kind.code: kind for kind in _errors()}
    assert sorted(errors) == sorted(CODES)

    async def refuse(code: str) -> Response:
        kind = errors[code]
        raise kind.__new__(kind, "why")  # some take more than a sentence when they are made

    expected = {code: (status, {"error": code, "reason": "why"}) for code, status in CODES.items()}
    app = _app(refuse, "/magnetar/refuse/{code}")
    assert asyncio.run(_asked(app, "/magnetar/refuse/", list(CODES))) == expected


def test_a_refusal_without_a_code_has_that_of_its_status() -> None:
    async def refuse(status: int) -> Response:
        raise answers.Refused(status, "why")

    app = _app(refuse, "/magnetar/refuse/{status}", "/admin/refuse/{status}")
    statuses = [str(status) for status in CODES_OF_STATUSES]
    assert asyncio.run(_asked(app, "/magnetar/refuse/", statuses)) == {
        str(status): (status, {"error": code, "reason": "why"}) for status, code in CODES_OF_STATUSES.items()
    }
    assert asyncio.run(_asked(app, "/admin/refuse/", statuses)) == {
        status: (int(status), {"reason": "why"}) for status in statuses
    }


def test_what_is_not_served_is_not_found() -> None:
    async def there() -> Response:
        return Response()

    app = _app(there, "/magnetar/there")

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/magnetar/nowhere")).json()["error"] == "NOT_FOUND"
            assert (await client.put("/magnetar/there")).json()["error"] == "METHOD_NOT_ALLOWED"

    asyncio.run(main())


def test_codes_that_clients_act_on_are_these() -> None:
    shared = {name: value for name, value in vars(error_codes).items() if name.isupper()}
    assert shared == {
        name: name for name in ("CROWDED", "TOPIC_NOT_AUTHORIZED", "WORKER_BUSY", "WORKER_FENCED")
    }


def _app(handler: Handler, *paths: str) -> Starlette:
    router = Router()
    for path in paths:
        router.get(path, "")(handler)
    app = Starlette(routes=router.routes)
    answers.install(app, JsonReader(lambda: 0.0))
    return app


async def _asked(app: Starlette, path: str, ends: list[str]) -> dict[str, tuple[int, object]]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        got = {end: await client.get(path + end) for end in ends}
    return {end: (response.status_code, response.json()) for end, response in got.items()}

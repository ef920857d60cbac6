"""A line of the audit log: one JSON object in ASCII, `LINE_BYTES_MAX` long at most.

Programs of an operator compare the keys, and the words that stand for events, results and changes.  So each is written
here, is not made from a name in the code, and never changes.

Texts of clients (names, lists) are cut, and the line says how much is missing.  Other characters than ASCII are
escaped: no client can end a line, or begin one.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any, Final

LINE_BYTES_MAX: Final = 8192
TEXT_CHARS_MAX: Final = 300
ITEMS_MAX: Final = 50
_SHORT_CHARS_MAX: Final = 32  # of each text, in a line that would be too long
_DEPTH_MAX: Final = 4
_NUMBER_BITS_MAX: Final = 64


class Key:
    """The keys of a line, in the order in which they stand there."""

    TIME: Final = "time"
    EVENT: Final = "event"
    RESULT: Final = "result"
    ERROR: Final = "error"
    PRINCIPAL: Final = "principal"
    PROXY: Final = "proxy"
    HOST: Final = "host"
    DOOR: Final = "door"
    LISTENER: Final = "listener"
    CLIENT: Final = "client"
    OPERATION: Final = "operation"
    RESOURCE_TYPE: Final = "resource_type"
    RESOURCE: Final = "resource"
    TOPIC: Final = "topic"
    METHOD: Final = "method"
    REASON: Final = "reason"
    DETAILS: Final = "details"
    COUNT: Final = "count"
    CUT: Final = "cut"


class Event(Enum):
    """What a line is about."""

    CHANGE = "change"
    REFUSAL = "refusal"
    LOGIN = "login"
    DROPPED = "dropped"


class Result(Enum):
    """How it ended.  `unfinished`: the client has gone meanwhile; what was begun may have been done all the same."""

    DONE = "done"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    REFUSED = "refused"
    ACCEPTED = "accepted"


class Change(Enum):
    """What changes the state of the server, as `operation` has it."""

    ACL_CREATE = "acl.create"
    ACL_DELETE = "acl.delete"
    BROKER_CONFIGS = "broker.configs"
    CLIENT_METRICS_CONFIGS = "client_metrics.configs"
    DELEGATION_TOKEN_CREATE = "delegation_token.create"  # noqa: S105  a name
    DELEGATION_TOKEN_EXPIRE = "delegation_token.expire"  # noqa: S105  a name
    DELEGATION_TOKEN_RENEW = "delegation_token.renew"  # noqa: S105  a name
    FUNCTION_CREATE = "function.create"
    FUNCTION_DELETE = "function.delete"
    FUNCTION_RESTART = "function.restart"
    FUNCTION_START = "function.start"
    FUNCTION_STATE = "function.state"
    FUNCTION_STOP = "function.stop"
    FUNCTION_UPDATE = "function.update"
    GROUP_CONFIGS = "group.configs"
    GROUP_DELETE = "group.delete"
    GROUP_DELETE_OFFSETS = "group.delete_offsets"
    GROUP_SET_OFFSETS = "group.set_offsets"
    LINK_CUT = "link.cut"
    LINK_DECLARE = "link.declare"
    LOGGER_LEVELS = "logger.levels"
    NAMESPACE_CREATE = "namespace.create"
    NAMESPACE_DELETE = "namespace.delete"
    NAMESPACE_POLICIES = "namespace.policies"
    NAMESPACE_RESOURCE_GROUP = "namespace.resource_group"
    NAMESPACE_UNLOAD = "namespace.unload"
    PERMISSION_GRANT = "permission.grant"
    PERMISSION_REVOKE = "permission.revoke"
    PIPELINE_CREATE = "pipeline.create"
    PIPELINE_DELETE = "pipeline.delete"
    PIPELINE_RESTART = "pipeline.restart"
    PIPELINE_START = "pipeline.start"
    PIPELINE_STOP = "pipeline.stop"
    PIPELINE_UPDATE = "pipeline.update"
    QUOTAS_SET = "quotas.set"
    REPLICATOR_ADD = "replicator.add_config"
    REPLICATOR_DEREGISTER = "replicator.deregister"
    REPLICATOR_REGISTER = "replicator.register"
    REPLICATOR_REMOVE = "replicator.remove_config"
    REPLICATOR_UPDATE = "replicator.update"
    RESOURCE_GROUP_DELETE = "resource_group.delete"
    RESOURCE_GROUP_SET = "resource_group.set"
    SCHEMA_ADD = "schema.add"
    SCHEMA_DELETE = "schema.delete"
    SCRAM_DELETE = "scram.delete"
    SCRAM_SET = "scram.set"
    SUBSCRIPTION_CREATE = "subscription.create"
    SUBSCRIPTION_DELETE = "subscription.delete"
    SUBSCRIPTION_EXPIRE = "subscription.expire"
    SUBSCRIPTION_PROPERTIES = "subscription.properties"
    SUBSCRIPTION_RESET = "subscription.reset"
    SUBSCRIPTION_SKIP = "subscription.skip"
    TENANT_CREATE = "tenant.create"
    TENANT_DELETE = "tenant.delete"
    TENANT_UPDATE = "tenant.update"
    TOPIC_COMPACT = "topic.compact"
    TOPIC_CONFIGS = "topic.configs"
    TOPIC_CREATE = "topic.create"
    TOPIC_DELETE = "topic.delete"
    TOPIC_DELETE_RECORDS = "topic.delete_records"
    TOPIC_END_TRANSACTION = "topic.end_transaction"
    TOPIC_GROW = "topic.grow"
    TOPIC_POLICIES = "topic.policies"
    TOPIC_TERMINATE = "topic.terminate"
    TOPIC_TRIM = "topic.trim"
    TOPIC_TRUNCATE = "topic.truncate"
    TOPIC_UNLOAD = "topic.unload"
    TRANSACTION_ABORT = "transaction.abort"


def audit_line(now_ms: int, fields: Mapping[str, object]) -> bytes:
    """The line of something that happened; fields that are None or empty are left out."""
    content = {Key.TIME: _instant(now_ms)}
    content |= {name: _bounded(value, TEXT_CHARS_MAX) for name, value in fields.items() if _says(value)}
    line = _encoded(content)
    if len(line) > LINE_BYTES_MAX:
        content |= {name: _bounded(fields[name], _SHORT_CHARS_MAX) for name in content.keys() & fields.keys()}
        content.pop(Key.DETAILS, None)
        line = _encoded({**content, Key.CUT: True})
    return line


def shallow(value: object) -> Any:
    """What a line would have of a value of any depth and length."""
    return _bounded(value, TEXT_CHARS_MAX)


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"


def _says(value: object) -> bool:
    return value is not None and value != "" and value != {}


def _instant(now_ms: int) -> str:
    instant = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"


def _bounded(value: object, chars_max: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        return cut(value, chars_max)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _NUMBER_BITS_MAX else "(a large number)"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _DEPTH_MAX:
        if isinstance(value, Mapping):
            items = islice(value.items(), ITEMS_MAX)
            found = {cut(str(name), chars_max): _bounded(one, chars_max, depth + 1) for name, one in items}
            return found | ({"...": f"{len(value) - ITEMS_MAX} more"} if len(value) > ITEMS_MAX else {})
        if isinstance(value, list | tuple | set | frozenset):
            return _listed(value, len(value), chars_max, depth)
    return "..."


def _listed(values: Iterable[object], count: int, chars_max: int, depth: int) -> list[Any]:
    found = [_bounded(one, chars_max, depth + 1) for one in islice(values, ITEMS_MAX)]
    return [*found, f"... {count - ITEMS_MAX} more"] if count > ITEMS_MAX else found


def cut(text: str, chars_max: int) -> str:
    """A text, or its beginning with how much more there was."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}... {len(text) - chars_max} more"

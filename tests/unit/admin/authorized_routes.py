"""The smallest request to each route, the routes that ask for no right, and what some answer without it.

`test_denied.py` asks them of an application in this process, `tests/integration/matrix` of a real server.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

_WATCHED: Final = "load balancers ask, who have no rights"
_KNOWN: Final = "every role may know it, as in Pulsar"
_WORKER: Final = "it is for the worker, which is known by its token"
_LEASE: Final = "the id of a lease is known only to a reader that has the right to read: it ends with that"
_UNSERVED: Final = "it says that Magnetar has nothing there"
ASKS_NOTHING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "GET /health": _WATCHED,
        "GET /ready": _WATCHED,
        "GET /status.html": _WATCHED,
        "GET /admin/v2/brokers/health": _WATCHED,
        "GET /admin/v2/brokers/ready": _WATCHED,
        "GET /admin/v2/brokers/version": _KNOWN,
        "GET /admin/v2/clusters": _KNOWN,
        "GET /admin/v3/{connector:connector}/builtinsinks": _KNOWN,
        "GET /admin/v3/{connector:connector}/builtinsources": _KNOWN,
        "GET /openapi.json": "it describes the program, not what is in it",
        "POST /magnetar/v1/worker/lease": _WORKER,
        "POST /magnetar/v1/worker/orders": _WORKER,
        "POST /magnetar/v1/worker/report": _WORKER,
        "POST /magnetar/v1/worker/tokens": _WORKER,
        "POST /magnetar/v1/worker/end": _WORKER,
        "POST /magnetar/v1/leases/{lease}": _LEASE,
        "DELETE /magnetar/v1/leases/{lease}": _LEASE,
        "GET /admin/{path:path}": _UNSERVED,
        "PUT /admin/{path:path}": _UNSERVED,
        "POST /admin/{path:path}": _UNSERVED,
        "DELETE /admin/{path:path}": _UNSERVED,
    }
)
# Listings leave out what the caller may not see: {route: the answer without any right}.
LISTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "GET /admin/v3/{connector:connector}/{tenant}/{namespace}": [],
        "GET /magnetar/v1/pipelines": {"pipelines": [], "worker": None},
        "GET /magnetar/v1/topics": {"topics": []},
    }
)
# Routes that answer for each of many partitions: a refusal is a row.
ROWS: Final = frozenset(("POST /magnetar/v1/offsets", "POST /magnetar/v1/segments"))

# What stands in paths: a world that is there, and one that is not.
THERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tenant": "acme",
        "namespace": "house",
        "topic": "t",
        "name": "s",
        "group": "gold",
        "cluster": "standalone",
        "broker": "test",
    }
)
MISSING: Final[Mapping[str, str]] = MappingProxyType(
    {**THERE, "tenant": "nobody", "namespace": "nothing", "topic": "missing", "name": "none", "group": "lead"}
)
# Words that mean the same in both worlds.
WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "domain": "persistent",
        "connector": "sources",
        "bundle": "0x00000000_0x40000000",
        "policy": "apart",
        "wanted": "7",
        "key": "owner",
        "content": "me",
        "count": "1",
        "seconds": "1",
        "time_ms": "1",
        "number": "1",
        "ledger_id": "0",
        "entry_id": "0",
        "version": "0",
        "lease": "0" * 32,
        "coordinator": "0",
        "transaction": "0",
        "timeout_ms": "1",
        "role": "ann",
        "subscription": "s",
        "path": "bookies",
        "type_name": "Kafka",
        "region": "us-west1",
        "action": "Stop",
        "instance": "0",
    }
)
# Each is known to some routes, and does nothing elsewhere.
FLAGS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        ("applied", "checkAllowAutoCreation", "force", "getEarliestTimeInBacklog", "perPartition"), "true"
    )
)
_MESSAGE_ID: Final = {"ledgerId": 0, "entryId": 0}
_TENANT: Final = {"adminRoles": [], "allowedClusters": ["standalone"]}
_SCHEMA: Final = {"type": "STRING", "schema": "", "properties": {}}
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"
_S: Final = _T + "/subscription/{name:path}"
_LINK: Final = "/magnetar/v1/links/{topic:path}"
_SCHEMAS: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
# It means no topic of these worlds, so that no pipeline is declared.
_REPLICATOR: Final = {
    "replicatorPolicies": {
        "replicationProperties": {"bootstrap.servers": "127.0.0.1:1"},
        "topicNameMapping": {"no-topic": "copy"},
    }
}
_QUOTA: Final = {"limitSize": 1 << 20, "policy": "producer_request_hold"}

BODIES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "PUT /admin/v2/tenants/{tenant}": _TENANT,
        "POST /admin/v2/tenants/{tenant}": _TENANT,
        "PUT /admin/v2/resourcegroups/{group}": {"publishRateInMsgs": 1000},
        f"POST {_N}/replication": ["standalone"],
        f"POST {_N}/permissions/{{role}}": ["produce"],
        f"POST {_N}/replicator/{{type_name}}/{{region}}": _REPLICATOR,
        f"POST {_N}/permissions/subscription/{{subscription}}": ["ann"],
        f"POST {_T}/permissions/{{role}}": ["produce"],
        f"POST {_N}/backlogQuota": _QUOTA,
        f"PUT {_N}/properties": {"owner": "me"},
        f"POST {_T}/backlogQuota": _QUOTA,
        f"PUT {_T}/properties": {"owner": "me"},
        f"PUT {_T}/partitions": 2,
        f"POST {_T}/partitions": 2,
        f"PUT {_T}/backlogSize": _MESSAGE_ID,
        f"POST {_S}/expireMessages": _MESSAGE_ID,
        f"POST {_S}/resetcursor": _MESSAGE_ID,
        f"PUT {_S}/properties": {"owner": "me"},
        f"POST {_SCHEMAS}/schema": _SCHEMA,
        f"POST {_SCHEMAS}/compatibility": _SCHEMA,
        f"POST {_SCHEMAS}/version": _SCHEMA,
    }
)

_FUNCTION: Final = "/admin/v3/functions/{tenant}/{namespace}/{name}"
_CONNECTOR: Final = "/admin/v3/{connector:connector}/{tenant}/{namespace}/{name}"
_BOUNDARY: Final = "between"
# Parts of forms, by their names; a file has its own.
FORMS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        f"POST {_FUNCTION}": {
            "functionConfig": '{"className": "f.process", "inputs": ["in"]}',
            'data"; filename="f.py': "def process(input): ...",
        },
        f"PUT {_FUNCTION}": {"functionConfig": '{"parallelism": 2}'},
        f"POST {_CONNECTOR}": {"sourceConfig": '{"archive": "builtin://rate", "topicName": "in"}'},
        f"PUT {_CONNECTOR}": {"sourceConfig": '{"configs": {"rowsPerSecond": 2}}'},
        f"POST {_FUNCTION}/trigger": {"data": "x"},
        f"POST {_FUNCTION}/state/{{key}}": {"state": '{"stringValue": "v"}'},
    }
)


def form(parts: Mapping[str, str]) -> str:
    """The body of a form."""
    pieces = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{content}\r\n'
        for name, content in parts.items()
    ]
    return "".join([*pieces, f"--{_BOUNDARY}--\r\n"])


def full_name(words: Mapping[str, str]) -> str:
    return f"persistent://{words['tenant']}/{words['namespace']}/{words['topic']}"


def own_body(route: str, words: Mapping[str, str]) -> Any:
    """The body of a request to one of Magnetar's own paths."""
    topic = full_name(words)
    rows: Any = [{"topic": topic, "partition": 0}]
    return {
        "POST /magnetar/v1/pipelines": {"name": words["name"], "kind": "table", "config": {"topic": topic}},
        "POST /magnetar/v1/topics/{topic:path}/schema": _SCHEMA,
        "POST /magnetar/v1/offsets": {"partitions": rows},
        "POST /magnetar/v1/segments": {"partitions": rows},
        "POST /magnetar/v1/positions": {
            "subscription": words["name"],
            "positions": [{"topic": topic, "partition": 0, "offset": 0}],
        },
        f"PUT {_LINK}": {"source": "kafka://host:9092", "origin": "c/t", "partitions": 1},
        f"POST {_LINK}/positions": {"positions": [{"group": words["name"], "partition": 0, "offset": 0}]},
        f"POST {_LINK}/report": {"lag": 0},
        f"POST {_LINK}/schemas": {"first": 0, "schemas": []},
        f"POST {_LINK}/subscriptions": {
            "subscriptions": [{"subscription": words["name"], "partition": 0, "mark_delete": "0:-1"}]
        },
        "POST /magnetar/v1/admissions": {
            "subscription": words["name"],
            "partitions": [{"topic": topic, "partition": 0, "from_offset": 0, "to_offset": 1}],
        },
    }.get(route)


def query(route: str, words: Mapping[str, str]) -> dict[str, str]:
    return {
        f"DELETE {_T}/properties": {"key": "owner"},
        "GET /magnetar/v1/entries": {"topic": full_name(words), "partition": "0", "offset": "0"},
        f"POST {_LINK}/records": {"partition": "0"},
        f"POST {_LINK}/entries": {"partition": "0"},
        "GET /magnetar/v1/positions": {"subscription": words["name"]},
        "DELETE /magnetar/v1/positions": {"subscription": words["name"]},
    }.get(route, {})


class Asked(NamedTuple):
    """A request to a route."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    content: str | None


def request(route: str, world: Mapping[str, str]) -> Asked:
    """The one to `route`, about what is in `world`."""
    method, _, path = route.partition(" ")
    words = {**WORDS, **world}
    if path.startswith(("/magnetar/v1/topics/{topic:path}/schema", _LINK)):
        words["topic"] = f"{words['tenant']}/{words['namespace']}/{words['topic']}"
    path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: words[found[1]], path)
    if route in FORMS:
        headers = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}
        return Asked(method, path, query(route, world), headers, form(FORMS[route]))
    body = BODIES.get(route, own_body(route, world))
    if body is None and method in ("PUT", "POST"):
        body = {}
    headers = {} if body is None else {"content-type": "application/json"}
    return Asked(method, path, query(route, world), headers, None if body is None else json.dumps(body))

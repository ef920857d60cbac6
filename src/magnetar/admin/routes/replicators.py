"""Replicators (PIP-18): configurations of a namespace, and what the replicators of a topic do.

PIP-18 has commands and no paths; these follow the prototype's names.  Answers have no credentials, and replication
properties that may be secret are masked: a key store has the former, and the owner knows the latter.
"""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, done, object_body, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.names import topic_name
from magnetar.admin.routing import Router
from magnetar.base.masking import masked
from magnetar.base.names import TopicName
from magnetar.broker.jobs.model import State
from magnetar.broker.policy.model import (
    REPLICATION_KEY_STORE,
    REPLICATION_MAPPING,
    REPLICATION_PROPERTIES,
    Region,
    ReplicatorConfig,
)
from magnetar.broker.usecases.replicators import Action, ReplicatorStatistics

router: Final = Router()
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}/replicator"
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/replicator"
_POLICIES: Final = "replicatorPolicies"
_AUTH_PARAM: Final = "authParamData"

# As the prototype calls what a replicator does; it has no words for the last two.
_STATES: Final[Mapping[State, str]] = {
    State.CREATED: "Starting",
    State.STARTING: "Starting",
    State.RUNNING: "Started",
    State.STOPPED: "Stopped",
    State.FAILED: "Failed",
    State.DELETING: "Deregistering",
}


# --- of a namespace ----------------------------------------------------------------------------------------------


@router.get(_N, summary="The replicators' configurations of a namespace, by type and region")
async def configs(request: Request, tenant: str, namespace: str) -> Response:
    found = cases_of(request).replicators.configs(caller_of(request), f"{tenant}/{namespace}")
    shown: dict[str, dict[str, Any]] = {}
    for one in found:
        shown.setdefault(one.region.type, {})[one.region.name] = _shown(one)
    return value(shown)


@router.post(
    _N + "/{type_name}/{region}",
    summary="Add a configuration, or replace it: {replicatorPolicies, authParamData}; its replicators start",
)
async def add(request: Request, tenant: str, namespace: str, type_name: str, region: str) -> Response:
    body = await object_body(request)
    policies = _object(body, _POLICIES)
    key_store = policies.get(REPLICATION_KEY_STORE)
    if key_store is not None and not isinstance(key_store, str):
        raise BadBody(f"{REPLICATION_KEY_STORE} must be a text")
    await cases_of(request).replicators.add_config(
        caller_of(request),
        f"{tenant}/{namespace}",
        Region(type_name, region),
        _object(policies, REPLICATION_PROPERTIES),
        _object(policies, REPLICATION_MAPPING),
        key_store or "",
        _object(body, _AUTH_PARAM),
    )
    return done()


@router.delete(
    _N + "/{type_name}/{region}",
    summary="Remove a configuration, its credentials, and its replicators with their subscriptions",
)
async def remove(request: Request, tenant: str, namespace: str, type_name: str, region: str) -> Response:
    await cases_of(request).replicators.remove_config(
        caller_of(request), f"{tenant}/{namespace}", Region(type_name, region)
    )
    return done()


# --- of a topic --------------------------------------------------------------------------------------------------


@router.get(_T, summary="What each replicator of a topic does, and how far it is, by type and region")
async def statistics(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name = _whole_topic(domain, tenant, namespace, topic)
    shown: dict[str, dict[str, Any]] = {}
    for one in cases_of(request).replicators.statistics(caller_of(request), name):
        region = one.replicator.region
        shown.setdefault(region.type, {})[region.name] = _document(one)
    return value(shown)


@router.put(
    _T + "/{type_name}",
    summary="Replicate a mapped topic again that was taken out; ?region= means only that one",
)
async def register(
    request: Request,
    domain: str,
    tenant: str,
    namespace: str,
    topic: str,
    type_name: str,
    region: str | None = None,
) -> Response:
    name = _whole_topic(domain, tenant, namespace, topic)
    await cases_of(request).replicators.register(caller_of(request), name, type_name, region)
    return done()


@router.post(
    _T + "/{type_name}/{action}",
    summary="Start, Stop or Restart a topic's replicators; ?region= means only that one",
)
async def update(
    request: Request,
    domain: str,
    tenant: str,
    namespace: str,
    topic: str,
    type_name: str,
    action: str,
    region: str | None = None,
) -> Response:
    name = _whole_topic(domain, tenant, namespace, topic)
    wanted = next((one for one in Action if one.value.lower() == action.lower()), None)
    if wanted is None:
        raise Refused(
            412, f"there is no action {action[:100]!r}: there are {', '.join(one.value for one in Action)}"
        )
    await cases_of(request).replicators.act(caller_of(request), name, type_name, wanted, region)
    return done()


@router.delete(
    _T + "/{type_name}",
    summary="Stop a topic's replicators for good, and drop their subscriptions; ?region= means only that one",
)
async def deregister(
    request: Request,
    domain: str,
    tenant: str,
    namespace: str,
    topic: str,
    type_name: str,
    region: str | None = None,
) -> Response:
    name = _whole_topic(domain, tenant, namespace, topic)
    await cases_of(request).replicators.deregister(caller_of(request), name, type_name, region)
    return done()


# --- forms -------------------------------------------------------------------------------------------------------


def _shown(config: ReplicatorConfig) -> dict[str, Any]:
    return {
        REPLICATION_PROPERTIES: masked(config.properties),
        REPLICATION_KEY_STORE: config.key_store,
        REPLICATION_MAPPING: dict(config.topic_names),
        "owner": str(config.owner),
        "hasCredentials": bool(config.keys),
    }


def _document(found: ReplicatorStatistics) -> dict[str, Any]:
    status = found.status
    return {
        "target": found.replicator.target,
        "subscription": found.replicator.subscription,
        "pipeline": found.replicator.pipeline.name,
        "state": _STATES[found.state],
        "lastError": found.reason,
        "msgBacklog": found.backlog,
        "connectedConsumers": found.consumers,
        "heldByDispatchRate": found.is_held,
        "msgRateOut": status.get("rows_per_second", 0.0),
        "msgOutCounter": status.get("rows", 0),
        "bytesOutCounter": status.get("bytes", 0),
        "lag": status.get("lag"),
        "lagSeconds": status.get("lag_s"),
        "errors": status.get("errors", 0),
        "restarts": status.get("restarts", 0),
        "reportedMs": found.reported_ms,
    }


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadBody(f"{name} must be an object")
    return found


def _whole_topic(domain: str, tenant: str, namespace: str, topic: str) -> TopicName:
    name, index = topic_name(domain, tenant, namespace, topic)
    if index >= 0:
        raise Refused(405, "a replicator has all partitions of a topic: name the topic without one")
    return name

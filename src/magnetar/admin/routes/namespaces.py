"""Namespaces: list, create, show, delete, unload.  Their policies are in `policies.py`."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, body, done, flag, object_body, unsupported, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.lists import list_response
from magnetar.admin.routing import Router
from magnetar.broker.policy.model import BUNDLE_COUNT_DEFAULT, CLUSTER, DISPATCH_RATE, RATES, Namespace
from magnetar.broker.usecases.policies import is_policy

router: Final = Router()
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"

# Members of Pulsar's Policies document for policies that are not served, with their values if nothing is set.
_NEUTRAL: Final[Mapping[str, Any]] = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [CLUSTER],
    "allowed_clusters": [],
    "latency_stats_sample_rate": {},
    "deleted": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "migrated": False,
    "schema_auto_update_compatibility_strategy": "Full",
    "clusterThatCanDeleteNamespace": CLUSTER,
}
# The values of served policies that are not set, for those that Pulsar's document shows nevertheless.
_UNSET: Final[Mapping[str, Any]] = {
    "backlog_quota_map": {},
    **{rate: {} for rate in RATES},  # by cluster in the document, without elsewhere
    "encryption_required": False,
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "schema_validation_enforced": False,
    "subscription_auth_mode": "None",
    "subscription_types_enabled": [],
    "properties": {},
}
_FORMER_DISPATCH_RATE: Final = (
    "clusterDispatchRate"  # has the same value, and the effective one if the other is not set
)


@router.get("/admin/v2/namespaces/{tenant}", summary="A tenant's namespaces")
async def names(request: Request, tenant: str) -> Response:
    return value(list(cases_of(request).namespaces.list(caller_of(request), tenant)))


@router.get(_N, summary="All policies of a namespace")
async def show(request: Request, tenant: str, namespace: str) -> Response:
    name, caller, permissions = f"{tenant}/{namespace}", caller_of(request), cases_of(request).permissions
    found = cases_of(request).policies.of_namespace(caller, name)
    granted = {
        "namespace_auth": permissions.of_namespace(caller, name),
        "destination_auth": {},
        "subscription_auth_roles": permissions.of_subscriptions(caller, name),
    }
    policies = {**_UNSET, **found.policies}
    for rate in RATES:
        if policies[rate]:
            policies[rate] = {CLUSTER: policies[rate]}
    policies[_FORMER_DISPATCH_RATE] = policies[DISPATCH_RATE]
    return value({**_NEUTRAL, "auth_policies": granted, "bundles": _bundles(found), **policies})


@router.put(_N, summary="Make a namespace, with policies if the body has some")
async def create(request: Request, tenant: str, namespace: str) -> Response:
    document = {**await object_body(request)}
    former = document.pop(_FORMER_DISPATCH_RATE, None)
    document[DISPATCH_RATE] = document.get(DISPATCH_RATE) or former
    policies = {}
    for key, content in document.items():
        if is_policy(key):
            # The Go client sends null, or an empty text, if a value is not set.
            if content not in (None, "", _UNSET.get(key)):
                policies[key] = _of_this_cluster(content) if key in RATES else content
        elif key == "replication_clusters":
            _check_clusters(content, tenant)
        elif key != "bundles" and not _says_nothing(key, content):
            raise unsupported(f"The policy {key[:100]}")
    name = f"{tenant}/{namespace}"
    count = _bundle_count(document.get("bundles"))
    await cases_of(request).namespaces.create(caller_of(request), name, policies, count)
    return done()


@router.delete(_N, summary="Delete a namespace; with ?force=true its topics, too")
async def delete(request: Request, tenant: str, namespace: str) -> Response:
    name = f"{tenant}/{namespace}"
    await cases_of(request).namespaces.delete(caller_of(request), name, force=flag(request, "force"))
    return done()


@router.get(
    _N + "/topics", summary="Everything in a namespace that holds messages; partitions by their own names"
)
async def topics(request: Request, tenant: str, namespace: str) -> Response:
    mode = request.query_params.get("mode", "PERSISTENT")
    if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        raise Refused(404, f"there is no mode {mode[:100]}")
    persistent = None if mode == "ALL" else mode == "PERSISTENT"
    listing = cases_of(request).pulsar_topics.to_list(
        caller_of(request), f"{tenant}/{namespace}", persistent=persistent
    )
    return await list_response(request, listing)


@router.get(_N + "/bundles", summary="The parts of the namespace's hash space")
async def bundles(request: Request, tenant: str, namespace: str) -> Response:
    return value(_bundles(cases_of(request).namespaces.describe(caller_of(request), f"{tenant}/{namespace}")))


@router.get(_N + "/replication", summary="The clusters that have the namespace: this one")
async def replication(request: Request, tenant: str, namespace: str) -> Response:
    cases_of(request).policies.of_namespace(caller_of(request), f"{tenant}/{namespace}")
    return value([CLUSTER])


@router.post(_N + "/replication", summary="Takes this cluster and no other")
async def set_replication(request: Request, tenant: str, namespace: str) -> Response:
    cases_of(request).namespaces.check_replication(caller_of(request), f"{tenant}/{namespace}")
    content = await body(request)
    if not content:
        raise Refused(412, "ClusterIds should not be null or empty")
    if not isinstance(content, list) or any(cluster != CLUSTER for cluster in content):
        raise Refused(403, f"Invalid cluster id: the only cluster is {CLUSTER}")
    return done()


@router.get(_N + "/allowedClusters", summary="The clusters that may have the namespace: this one")
async def allowed_clusters(request: Request, tenant: str, namespace: str) -> Response:
    cases_of(request).policies.of_namespace(caller_of(request), f"{tenant}/{namespace}")
    return value([CLUSTER])


@router.post(_N + "/allowedClusters", summary="Takes this cluster and no other")
async def set_allowed_clusters(request: Request, tenant: str, namespace: str) -> Response:
    cases_of(request).namespaces.check_replication(caller_of(request), f"{tenant}/{namespace}")
    content = await body(request)
    if not isinstance(content, list):
        raise BadBody("the body must be a list of clusters")
    _check_clusters(content, tenant)
    return Response(status_code=200)


def _of_this_cluster(content: Any) -> Any:
    """This cluster's value of a policy that is set for each cluster."""
    if not isinstance(content, dict):
        raise BadBody("a policy of each cluster must be a JSON object")
    if content.keys() - {CLUSTER}:
        raise unsupported("A policy of another cluster")
    return content.get(CLUSTER)


def _bundles(namespace: Namespace) -> dict[str, Any]:
    return {"boundaries": namespace.bundle_boundaries, "numBundles": namespace.bundle_count}


def _bundle_count(content: Any) -> int:
    count = content.get("numBundles") if isinstance(content, dict) else None
    if count is None or count == 0:
        return BUNDLE_COUNT_DEFAULT
    if isinstance(count, bool) or not isinstance(count, int):
        raise Refused(400, "numBundles must be a whole number")
    return count


def _check_clusters(content: Any, tenant: str) -> None:
    for cluster in content or []:
        if cluster != CLUSTER:
            raise Refused(
                403, f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]"
            )


def _says_nothing(key: str, content: Any) -> bool:
    """Whether a member of a Policies document has its default value, of Java's or of Go's client."""
    if isinstance(content, dict):
        return all(_says_nothing("", one) for one in content.values())
    return not content or content == _NEUTRAL.get(key)

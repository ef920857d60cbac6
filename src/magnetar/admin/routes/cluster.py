"""Clusters, brokers and tenants.  There is one cluster, `standalone`, and one broker: this server."""

import itertools
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar import __version__
from magnetar.admin.answers import BadBody, Refused, body, done, flag, object_body, text, unsupported, value
from magnetar.admin.context import caller_of, cases_of, context_of, known_caller_of, web_url
from magnetar.admin.routing import Router
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import CLUSTER, AlterOperation, ConfigChange, Tenant
from magnetar.broker.usecases.configs import ALL_BROKERS, is_dynamic

router: Final = Router()
_ADDRESSES: Final = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")
_ISOLATION: Final = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
_CONFIGURATION: Final = "/admin/v2/brokers/configuration"


# --- clusters and brokers --------------------------------------------------------------------------------------------


@router.get("/admin/v2/clusters", summary="The clusters: one")
async def clusters() -> Response:
    return value([CLUSTER])


@router.get("/admin/v2/clusters/{cluster}", summary="Where the cluster is")
async def cluster(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.describe(caller_of(request))
    _check_cluster(cluster)
    return value(_addresses(request))


@router.put("/admin/v2/clusters/{cluster}", summary="Refused: there is one cluster")
async def create_cluster(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.create(caller_of(request))
    if cluster == CLUSTER:
        raise Refused(409, "Cluster already exists")
    raise unsupported("More than one cluster")


@router.post(
    "/admin/v2/clusters/{cluster}", summary="Takes the addresses that the cluster has, and no others"
)
async def update_cluster(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.alter(caller_of(request))
    wanted = await object_body(request)
    _check_cluster(cluster)
    addresses = _addresses(request)
    if any(url and url != addresses.get(name, "") for name, url in wanted.items() if name in _ADDRESSES):
        raise unsupported("A cluster's addresses other than those that its clients use")
    return Response(status_code=200)


@router.delete("/admin/v2/clusters/{cluster}", summary="Refused: the only cluster has namespaces")
async def delete_cluster(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.alter(caller_of(request))
    _check_cluster(cluster)
    raise Refused(412, "Cluster not empty")


@router.get("/admin/v2/clusters/{cluster}/peers", summary="The cluster's peers: none")
async def peers(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.describe(caller_of(request))
    _check_cluster(cluster)
    return value(None)


@router.post("/admin/v2/clusters/{cluster}/peers", summary="Takes an empty list: there is no other cluster")
async def set_peers(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.alter(caller_of(request))
    wanted = await body(request) or []
    _check_cluster(cluster)
    if not isinstance(wanted, list):
        raise BadBody("the body must be a list of clusters")
    if CLUSTER in wanted:
        raise Refused(412, f"{CLUSTER} itself can't be part of peer-list")
    if any(wanted):
        raise Refused(412, f"Peer cluster {str(wanted[0])[:100]} does not exist")
    return done()


@router.get("/admin/v2/clusters/{cluster}/failureDomains", summary="The cluster's failure domains: none")
async def failure_domains(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.describe_configs(caller_of(request))
    _check_cluster(cluster)
    return value({})


@router.get(_ISOLATION, summary="404: there is one broker, and so nothing to keep apart")
@router.get(_ISOLATION + "/{policy}", summary="404: likewise")
async def isolation(request: Request, cluster: str) -> Response:
    cases_of(request).cluster.describe_configs(caller_of(request))
    _check_cluster(cluster)
    raise Refused(404, f"NamespaceIsolationPolicies for cluster {cluster} does not exist")


def _addresses(request: Request) -> dict[str, str]:
    context = context_of(request)
    web, web_tls = context.web_urls(request)
    urls = (web, web_tls, context.service_url(request), context.tls_service_url(request))
    return {name: url for name, url in zip(_ADDRESSES, urls, strict=True) if url or not name.endswith("Tls")}


@router.get("/admin/v2/brokers/leaderBroker", summary="The broker that leads")
async def leader(request: Request) -> Response:
    cases_of(request).cluster.describe(caller_of(request))
    return value({"serviceUrl": web_url(request), "brokerId": request.url.netloc})


@router.get("/admin/v2/brokers/version", summary="Magnetar's version")
async def version() -> Response:
    return text(__version__)


@router.get(
    "/admin/v2/brokers/configuration/runtime", summary="The cluster's name, which pulsar-admin asks for here"
)
async def runtime_configuration(request: Request) -> Response:
    cases_of(request).cluster.describe_configs(caller_of(request))
    return value({"clusterName": CLUSTER})


@router.get(_CONFIGURATION, summary="The settings that can be changed while the server runs")
async def dynamic_names(request: Request) -> Response:
    return value(list(cases_of(request).configs.dynamic_names(caller_of(request))))


@router.get(_CONFIGURATION + "/values", summary="The settings that were changed, and their values now")
async def dynamic_values(request: Request) -> Response:
    found = cases_of(request).configs.describe_broker(caller_of(request), ALL_BROKERS, None)
    return value({one.name: one.value for one in found})


@router.post(_CONFIGURATION + "/{name}/{wanted:path}", summary="Change one setting, at once and for good")
async def set_dynamic(request: Request, name: str, wanted: str) -> Response:
    await _change_dynamic(request, ConfigChange(name, AlterOperation.SET, wanted), "update")
    return Response(status_code=200)


@router.delete(_CONFIGURATION + "/{name}", summary="Go back to the value with which the server was started")
async def unset_dynamic(request: Request, name: str) -> Response:
    await _change_dynamic(request, ConfigChange(name, AlterOperation.DELETE), "delete")
    return Response(status_code=200)


async def _change_dynamic(request: Request, change: ConfigChange, verb: str) -> None:
    configs = cases_of(request).configs
    try:
        await configs.alter_broker(caller_of(request), ALL_BROKERS, [change], validate_only=False)
    except InvalidConfigRequest:
        raise Refused(412, f"Can't {verb} non-dynamic configuration") from None
    except InvalidConfig as error:
        raise Refused(412, str(error)) from None
    if not is_dynamic(change.name):  # removing a setting that cannot be set changes nothing
        raise Refused(412, f"Can't {verb} non-dynamic configuration")


@router.get("/admin/v2/brokers/ready", summary="Whether the server takes clients")
async def ready(request: Request) -> Response:
    await _check_health(request)
    return text("ok")


@router.get(
    "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", summary="What the broker serves: all of it"
)
async def owned(request: Request, cluster: str, broker: str) -> Response:
    served = cases_of(request).namespaces.list_served(caller_of(request))
    _check_cluster(cluster)
    if broker != request.url.netloc:
        raise Refused(404, f"Broker id '{broker}' not found in available brokers.")
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return value(
        {
            f"{one.name}/{low}_{high}": status
            for one in served
            for low, high in itertools.pairwise(one.bundle_boundaries)
        }
    )


@router.get(
    "/admin/v2/brokers/backlog-quota-check", summary="Look at all backlogs now, and act on their quotas"
)
async def check_quotas(request: Request) -> Response:
    await cases_of(request).cluster.check_quotas(caller_of(request))
    return done()


@router.get("/health", summary="Whether the server works, part by part; 503 if a part does not")
@router.get("/ready", summary="Whether the server takes clients: the same")
async def health(request: Request) -> Response:
    server, caller = cases_of(request).cluster, known_caller_of(request)
    checks = await server.health_checks(caller)
    works = not any(checks.values())
    content = {"status": "ok" if works else "failing", "checks": checks, "notes": server.health_notes(caller)}
    return JSONResponse(content, 200 if works else 503)


@router.get("/admin/v2/brokers/health", summary="Whether the server works")
async def broker_health(request: Request) -> Response:
    await _check_health(request)
    return text("ok")


@router.get("/status.html", summary="The same, for load balancers")
async def status(request: Request) -> Response:
    await _check_health(request)
    return text("OK")


@router.get("/admin/v2/brokers", summary="The brokers: one")
@router.get(f"/admin/v2/brokers/{CLUSTER}", summary="The brokers of the cluster")
async def brokers(request: Request) -> Response:
    cases_of(request).cluster.describe(caller_of(request))
    return value([request.url.netloc])


async def _check_health(request: Request) -> None:
    checks = await cases_of(request).cluster.health_checks(known_caller_of(request))
    failing = [f"{name}: {problem}" for name, problem in checks.items() if problem]
    if failing:
        raise Refused(503, "; ".join(failing))


def _check_cluster(cluster: str) -> None:
    if cluster != CLUSTER:
        raise Refused(404, "Cluster does not exist")


# --- tenants ---------------------------------------------------------------------------------------------------------


@router.get("/admin/v2/tenants", summary="All tenants")
async def tenants(request: Request) -> Response:
    return value(cases_of(request).tenants.list(caller_of(request)))


@router.get("/admin/v2/tenants/{tenant}", summary="A tenant's admin roles and clusters")
async def tenant(request: Request, tenant: str) -> Response:
    found = cases_of(request).tenants.describe(caller_of(request), tenant)
    return value({"adminRoles": list(found.admin_roles), "allowedClusters": list(found.clusters)})


@router.put("/admin/v2/tenants/{tenant}", summary="Make a tenant")
async def create_tenant(request: Request, tenant: str) -> Response:
    given = await _tenant(request, tenant)
    await cases_of(request).tenants.create(caller_of(request), given)
    return done()


@router.post("/admin/v2/tenants/{tenant}", summary="Change a tenant")
async def update_tenant(request: Request, tenant: str) -> Response:
    given = await _tenant(request, tenant)
    await cases_of(request).tenants.update(caller_of(request), given)
    return done()


@router.delete("/admin/v2/tenants/{tenant}", summary="Delete a tenant; with ?force=true all that is in it")
async def delete_tenant(request: Request, tenant: str) -> Response:
    await cases_of(request).tenants.delete(caller_of(request), tenant, force=flag(request, "force"))
    return done()


async def _tenant(request: Request, name: str) -> Tenant:
    document = await body(request)
    if document is None:
        raise Refused(412, "TenantInfo is null")
    if not isinstance(document, dict):
        raise BadBody("the body must be a JSON object")
    return Tenant(name, _texts(document, "adminRoles"), _texts(document, "allowedClusters"))


def _texts(document: dict[str, object], name: str) -> tuple[str, ...]:
    content = document.get(name) or []
    if not isinstance(content, list) or not all(isinstance(one, str) for one in content):
        raise BadBody(f"{name} must be a list of texts")
    return tuple(dict.fromkeys(content))

"""The rights of roles on namespaces, topics and subscriptions: grant, show, revoke."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, body, done, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.names import topic_name
from magnetar.admin.routing import Router

router: Final = Router()
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"


async def _texts(request: Request) -> list[str]:
    content: Any = await body(request)
    if not isinstance(content, list) or not all(isinstance(one, str) for one in content):
        raise BadBody("the body must be a JSON array of texts")
    return list(dict.fromkeys(content))


@router.get(_N + "/permissions", summary="What each role may do in a namespace")
async def of_namespace(request: Request, tenant: str, namespace: str) -> Response:
    return value(cases_of(request).permissions.of_namespace(caller_of(request), f"{tenant}/{namespace}"))


@router.get(_N + "/permissions/subscription", summary="The roles that subscriptions were granted to")
async def of_subscriptions(request: Request, tenant: str, namespace: str) -> Response:
    return value(cases_of(request).permissions.of_subscriptions(caller_of(request), f"{tenant}/{namespace}"))


@router.post(
    _N + "/permissions/{role}", summary="Grant a role actions in a namespace, instead of those it has"
)
async def grant_namespace(request: Request, tenant: str, namespace: str, role: str) -> Response:
    actions = await _texts(request)
    permissions = cases_of(request).permissions
    await permissions.grant_namespace(caller_of(request), f"{tenant}/{namespace}", role, actions)
    return done()


@router.delete(_N + "/permissions/{role}", summary="Revoke what a role may do in a namespace")
async def revoke_namespace(request: Request, tenant: str, namespace: str, role: str) -> Response:
    permissions = cases_of(request).permissions
    await permissions.revoke_namespace(caller_of(request), f"{tenant}/{namespace}", role)
    return done()


@router.post(
    _N + "/permissions/subscription/{subscription}",
    summary="Let only these roles use a namespace's subscription",
)
async def grant_subscription(request: Request, tenant: str, namespace: str, subscription: str) -> Response:
    roles = await _texts(request)
    permissions = cases_of(request).permissions
    await permissions.grant_subscription(caller_of(request), f"{tenant}/{namespace}", subscription, roles)
    return done()


@router.delete(
    _N + "/permissions/{subscription}/{role}", summary="Take a namespace's subscription from a role"
)
async def revoke_subscription(
    request: Request, tenant: str, namespace: str, subscription: str, role: str
) -> Response:
    permissions = cases_of(request).permissions
    await permissions.revoke_subscription(caller_of(request), f"{tenant}/{namespace}", subscription, role)
    return done()


@router.get(_T + "/permissions", summary="What each role may do with a topic, its namespace's roles included")
async def of_topic(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    return value(cases_of(request).permissions.of_topic(caller_of(request), name))


@router.post(_T + "/permissions/{role}", summary="Grant a role actions on a topic, instead of those it has")
async def grant_topic(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, role: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    actions = await _texts(request)
    await cases_of(request).permissions.grant_topic(caller_of(request), name, role, actions)
    return done()


@router.delete(_T + "/permissions/{role}", summary="Revoke what a role may do with a topic itself")
async def revoke_topic(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, role: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    await cases_of(request).permissions.revoke_topic(caller_of(request), name, role)
    return done()

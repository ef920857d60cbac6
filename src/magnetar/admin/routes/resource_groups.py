"""Resource groups, and the one of a namespace."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import done, object_body, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.routing import Router
from magnetar.broker.policy.model import RESOURCE_GROUP

router: Final = Router()
_G: Final = "/admin/v2/resourcegroups"
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"


@router.get(_G, summary="All resource groups")
async def names(request: Request) -> Response:
    return value(list(cases_of(request).resource_groups.list(caller_of(request))))


@router.get(_G + "/{group}", summary="The rates of a resource group")
async def show(request: Request, group: str) -> Response:
    return value(dict(cases_of(request).resource_groups.describe(caller_of(request), group)))


@router.put(_G + "/{group}", summary="Make a resource group, or change rates of it")
async def put(request: Request, group: str) -> Response:
    rates = await object_body(request)
    await cases_of(request).resource_groups.put(caller_of(request), group, rates)
    return done()


@router.delete(_G + "/{group}", summary="Delete a resource group that no namespace is in")
async def delete(request: Request, group: str) -> Response:
    await cases_of(request).resource_groups.delete(caller_of(request), group)
    return done()


@router.get(_N, summary="The resource group of a namespace")
async def of_namespace(request: Request, tenant: str, namespace: str) -> Response:
    found = cases_of(request).policies.of_namespace(caller_of(request), f"{tenant}/{namespace}")
    return value(found.policies.get(RESOURCE_GROUP))


@router.post(
    _N + "/{group}", summary="Put a namespace into a resource group, instead of the one that it is in"
)
async def join(request: Request, tenant: str, namespace: str, group: str) -> Response:
    await cases_of(request).resource_groups.join(caller_of(request), f"{tenant}/{namespace}", group)
    return done()


@router.delete(_N, summary="Take a namespace out of its resource group")
async def leave(request: Request, tenant: str, namespace: str) -> Response:
    await cases_of(request).resource_groups.join(caller_of(request), f"{tenant}/{namespace}", None)
    return done()

"""Sinks and sources, as Pulsar's functions worker answers them (`/admin/v3/sink` and `/admin/v3/source`).

Each is a pipeline (`admin/connectors.py`), and what concerns pipelines concerns it, also rights.  A connector has one
instance.  What is not served below these paths is refused by name.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import Refused, body_bytes, done, value
from magnetar.admin.connectors import (
    ROLES,
    SINK,
    SOURCE,
    Place,
    Role,
    changed,
    declared,
    place_of,
    shown,
    status_of,
)
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.forms import object_part, parts_of
from magnetar.admin.routing import Router
from magnetar.base.masking import masked
from magnetar.broker.jobs.errors import InvalidPipeline, PipelineExists, PipelineNotFound
from magnetar.broker.policy.errors import NamespaceNotFound
from magnetar.broker.usecases.pipelines import PipelineView

router: Final = Router()
_R: Final = "/admin/v3/{connector:connector}"
_N: Final = _R + "/{tenant}/{namespace}"
_C: Final = _N + "/{name}"
_TOO_LARGE: Final = 413
_STOP_S: Final = 20.0  # a tool that has deleted a connector may declare it anew


@router.get(_R + "/builtinsinks", summary="The known sinks, whose names follow `builtin://`")
async def sinks() -> Response:
    return value(_there(SINK))


@router.get(_R + "/builtinsources", summary="The known sources, whose names follow `builtin://`")
async def sources() -> Response:
    return value(_there(SOURCE))


@router.get(_N, summary="The connectors of a namespace that the caller may see")
async def names(request: Request, connector: str, tenant: str, namespace: str) -> Response:
    role = ROLES[connector]
    places = (place_of(view, role) for view in cases_of(request).pipelines.list(caller_of(request)))
    found = [one for one in places if one is not None]
    return value([one.name for one in found if (one.tenant, one.namespace) == (tenant, namespace)])


@router.post(_C, summary="Declare a connector by a form with sinkConfig or sourceConfig; it starts")
async def create(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    with _as_pulsar(place):
        config = declared(place, await _declaration(request, place.role))
        await cases_of(request).pipelines.create(
            caller_of(request), place.pipeline(), place.role.kind, config, namespace=f"{tenant}/{namespace}"
        )
    return done()


@router.put(_C, summary="Change a connector by a form with sinkConfig or sourceConfig")
async def update(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    with _as_pulsar(place, missing=400):
        said = await _declaration(request, place.role)
        await cases_of(request).pipelines.update(caller_of(request), place.pipeline(), changed(place, said))
    return done()


@router.get(_C, summary="The configuration of a connector")
async def show(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    return value(masked(shown(place, _found(request, place).pipeline.config)))


@router.delete(_C, summary="Delete a connector with its position; what it has written stays")
async def delete(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    with _as_pulsar(place):
        await cases_of(request).pipelines.delete(caller_of(request), place.pipeline(), wait_s=_STOP_S)
    return done()


@router.get(_C + "/status", summary="What a connector does, how much it has moved, and why it fails")
async def status(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    one = status_of(place.role, _found(request, place))
    instances = [{"instanceId": 0, "status": one}]
    return value({"numInstances": 1, "numRunning": int(one["running"]), "instances": instances})


@router.get(_C + "/{instance}/status", summary="What the one instance of a connector does")
async def status_of_one(
    request: Request, connector: str, tenant: str, namespace: str, name: str, instance: int
) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    found = _found(request, place)
    _check_instance(place, instance)
    return value(status_of(place.role, found))


@router.post(_C + "/start", summary="Start a connector where it was")
async def start(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    with _as_pulsar(place):
        await cases_of(request).pipelines.start(caller_of(request), place.pipeline())
    return done()


@router.post(_C + "/stop", summary="Stop a connector; it keeps its position")
async def stop(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    with _as_pulsar(place):
        await cases_of(request).pipelines.stop(caller_of(request), place.pipeline())
    return done()


@router.post(_C + "/restart", summary="Stop a connector and start it again")
async def restart(request: Request, connector: str, tenant: str, namespace: str, name: str) -> Response:
    place = Place(ROLES[connector], tenant, namespace, name)
    with _as_pulsar(place):
        await cases_of(request).pipelines.restart(caller_of(request), place.pipeline())
    return done()


@router.post(_C + "/{instance}/start", summary="Start the one instance of a connector")
async def start_one(
    request: Request, connector: str, tenant: str, namespace: str, name: str, instance: int
) -> Response:
    _check_instance(Place(ROLES[connector], tenant, namespace, name), instance)
    return await start(request, connector, tenant, namespace, name)


@router.post(_C + "/{instance}/stop", summary="Stop the one instance of a connector")
async def stop_one(
    request: Request, connector: str, tenant: str, namespace: str, name: str, instance: int
) -> Response:
    _check_instance(Place(ROLES[connector], tenant, namespace, name), instance)
    return await stop(request, connector, tenant, namespace, name)


@router.post(_C + "/{instance}/restart", summary="Stop the one instance of a connector and start it again")
async def restart_one(
    request: Request, connector: str, tenant: str, namespace: str, name: str, instance: int
) -> Response:
    _check_instance(Place(ROLES[connector], tenant, namespace, name), instance)
    return await restart(request, connector, tenant, namespace, name)


# --- inside ------------------------------------------------------------------------------------------------------


def _there(role: Role) -> list[dict[str, str]]:
    """As Pulsar describes a connector; its tools leave out those without a class of the role."""
    return [
        {"name": name, "description": does, f"{role.noun}Class": f"pipeline of the kind {role.kind}"}
        for name, does in role.formats.items()
    ]


def _found(request: Request, place: Place) -> PipelineView:
    """The pipeline that is the connector.  Raises Refused and what `PipelineCases.describe` raises."""
    with _as_pulsar(place):
        view = cases_of(request).pipelines.describe(caller_of(request), place.pipeline())
        if place_of(view, place.role) is None:
            raise PipelineNotFound(place.name)
    return view


def _check_instance(place: Place, instance: int) -> None:
    if instance:
        raise Refused(400, f"{place.role.title} {place.name} doesn't have instance with id {instance}")


@contextmanager
def _as_pulsar(place: Place, missing: int = 404) -> Iterator[None]:
    """Refuses in Pulsar's words and statuses; `missing` is the status if there is no such connector."""
    try:
        yield
    except PipelineNotFound:
        raise Refused(missing, f"{place.role.title} {place.name} doesn't exist") from None
    except PipelineExists:
        raise Refused(400, f"{place.role.title} {place.name} already exists") from None
    except (NamespaceNotFound, InvalidPipeline) as error:
        raise Refused(400, str(error)) from None


async def _declaration(request: Request, role: Role) -> Mapping[str, Any]:
    try:
        parts = await parts_of(request.headers, await body_bytes(request))
    except Refused as error:
        if error.status != _TOO_LARGE:
            raise
        # It has an archive, which would be refused anyway.
        raise Refused(_TOO_LARGE, "Archives of connectors: not supported by Magnetar.") from None
    return await object_part(request, parts, role.config_part)

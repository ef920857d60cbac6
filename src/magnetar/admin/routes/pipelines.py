"""Pipelines (`/magnetar/v1/pipelines`): declared, listed, started and stopped by people; and what their worker asks and
says (`/magnetar/v1/worker`).

The forms are in docs/reference/pipelines-rest.md.  Secrets of a configuration are for the worker alone, which is known
by its token (`base/worker_token.py`); everybody else gets them masked, and nothing by which to pass for the worker.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar.admin.answers import BadBody, Refused, done, flag, object_body, value
from magnetar.admin.context import broker_of, context_of
from magnetar.admin.routing import Router
from magnetar.base.masking import masked
from magnetar.broker.jobs.pipelines import Pipeline, Pipelines, WorkerSays
from magnetar.broker.jobs.worker_lease import LEASE_S, WORKER_ID_CHARS_MAX

if TYPE_CHECKING:
    from magnetar.broker.jobs.pipelines import Report

router: Final = Router()
_P: Final = "/magnetar/v1/pipelines"
_W: Final = "/magnetar/v1/worker"
_TROUBLE_CHARS_MAX: Final = 4000
_TEXT_CHARS_MAX: Final = 5000  # a host and a path of the file system


def _pipelines(request: Request) -> Pipelines:
    return broker_of(request).pipelines


# --- for people --------------------------------------------------------------------------------------------------


@router.get(_P, summary="All pipelines: what they are, what they do, how far they are behind")
async def all_of_them(request: Request) -> Response:
    pipelines = _pipelines(request)
    return value(
        {"pipelines": [_row(pipelines, one) for one in pipelines.all()], "worker": _worker(pipelines)}
    )


@router.post(_P, summary="Declare a pipeline: {name, kind, config}; it starts unless ?start=false")
async def create(request: Request) -> Response:
    body = await object_body(request)
    config = body.get("config", {})
    if not isinstance(config, dict):
        raise BadBody("config must be an object")
    pipelines = _pipelines(request)
    made = await pipelines.create(
        _text(body, "name"), _text(body, "kind"), config, start=flag(request, "start", True)
    )
    return JSONResponse(_whole(pipelines, made), 201)


@router.get(_P + "/{name}", summary="One pipeline with its configuration and status")
async def show(request: Request, name: str) -> Response:
    pipelines = _pipelines(request)
    return value(_whole(pipelines, pipelines.get(name)))


@router.get(_P + "/{name}/stats", summary="A pipeline's numbers: lag, rates, batches, durations")
async def stats(request: Request, name: str) -> Response:
    pipelines = _pipelines(request)
    report = pipelines.report(pipelines.get(name))
    return value(dict(report.status) if report is not None else {})


@router.put(_P + "/{name}/start", summary="Let a pipeline run")
async def start(request: Request, name: str) -> Response:
    pipelines = _pipelines(request)
    return value(_whole(pipelines, await pipelines.start(name)))


@router.put(_P + "/{name}/stop", summary="Let a pipeline rest where it is")
async def stop(request: Request, name: str) -> Response:
    pipelines = _pipelines(request)
    return value(_whole(pipelines, await pipelines.stop(name)))


@router.put(_P + "/{name}/restart", summary="Stop a pipeline and let it run again")
async def restart(request: Request, name: str) -> Response:
    pipelines = _pipelines(request)
    return value(_whole(pipelines, await pipelines.restart(name)))


@router.delete(_P + "/{name}", summary="Stop a pipeline for good; ?force=true does not wait for the worker")
async def delete(request: Request, name: str) -> Response:
    is_gone = await _pipelines(request).delete(name, force=flag(request, "force"))
    return done() if is_gone else Response(status_code=202)


# --- for the worker ----------------------------------------------------------------------------------------------


@router.get(_W, summary="The worker that runs the pipelines; null when there is none")
async def worker(request: Request) -> Response:
    return value({"worker": _worker(_pipelines(request))})


@router.post(
    _W + "/lease",
    summary="Become the worker: {worker, host, pid, place} -> {epoch, lease_s, bootstrap, table_roots}",
)
async def lease(request: Request) -> Response:
    body = await _workers_body(request)
    epoch = await _pipelines(request).take_lease(
        _worker_id(body), _text(body, "host"), _number(body, "pid"), _text(body, "place")
    )
    roots = _pipelines(request).table_roots
    return value(
        {
            "epoch": epoch,
            "lease_s": LEASE_S,
            "bootstrap": _bootstrap(request),
            "table_roots": [*roots.folders, *roots.urls],
        }
    )


@router.post(
    _W + "/orders", summary="All pipelines when they are not {version}, waiting {wait_ms} for a change"
)
async def orders(request: Request) -> Response:
    body = await _workers_body(request)
    pipelines = _pipelines(request)
    found = await pipelines.orders(
        _worker_id(body),
        _number(body, "epoch"),
        str(body.get("version", "")),
        _number(body, "wait_ms", 0) / 1000,
    )
    if found is None:
        return value({"version": pipelines.version, "pipelines": None})
    version, wanted = found
    return value({"version": version, "pipelines": [_spec(one) for one in wanted]})


@router.post(
    _W + "/report", summary="What the worker's pipelines do: {pipelines: {name: {state, reason, status}}}"
)
async def report(request: Request) -> Response:
    body = await _workers_body(request)
    reports, about = body.get("pipelines", {}), body.get("about", {})
    if not isinstance(reports, dict) or not isinstance(about, dict):
        raise BadBody("pipelines and about must be objects")
    says = WorkerSays(trouble=str(body.get("trouble") or "")[:_TROUBLE_CHARS_MAX], about=about)
    await _pipelines(request).reported(_worker_id(body), _number(body, "epoch"), reports, says)
    return done()


@router.post(_W + "/end", summary="The worker has stopped everything and ends")
async def end(request: Request) -> Response:
    body = await _workers_body(request)
    _pipelines(request).lease.end(_worker_id(body), _number(body, "epoch"))
    return done()


async def _workers_body(request: Request) -> Mapping[str, Any]:
    """What the worker says; nobody else is listened to."""
    if not context_of(request).access.is_worker(request.headers.get("authorization", "")):
        raise Refused(401, "this is for the pipelines' worker, which is known by its token", "NOT_THE_WORKER")
    return await object_body(request)


def _bootstrap(request: Request) -> str:
    """Where a Kafka client connects that sent this request: the first listener of each node."""
    addresses = []
    for node in broker_of(request).nodes.all:
        for endpoint in list(node.advertised.values())[:1]:
            host = endpoint.host or request.url.hostname or "localhost"
            addresses.append(f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}")
    return ",".join(addresses)


# --- forms -------------------------------------------------------------------------------------------------------


def _spec(pipeline: Pipeline) -> dict[str, Any]:
    """For the worker: as it was declared."""
    return {
        "name": pipeline.name,
        "id": pipeline.id,
        "kind": pipeline.kind,
        "config": pipeline.config,
        "desired": pipeline.desired,
        "run": pipeline.run,
        "created_ms": pipeline.created_ms,
        "subscription": pipeline.subscription,
    }


def _whole(pipelines: Pipelines, pipeline: Pipeline) -> dict[str, Any]:
    """For people: without secrets."""
    state, why = pipelines.state(pipeline)
    found = pipelines.report(pipeline)
    return {
        **_spec(pipeline),
        "config": masked(pipeline.config),
        "state": state,
        "reason": why,
        "status": _status(found),
        "reported_ms": found.at_ms if found is not None else None,
    }


def _row(pipelines: Pipelines, pipeline: Pipeline) -> dict[str, Any]:
    state, why = pipelines.state(pipeline)
    status = _status(pipelines.report(pipeline))
    return {
        "name": pipeline.name,
        "kind": pipeline.kind,
        "desired": pipeline.desired,
        "state": state,
        "reason": why,
        "lag": status.get("lag"),
        "rows_per_second": status.get("rows_per_second"),
        "rows": status.get("rows"),
    }


def _status(found: "Report | None") -> Mapping[str, Any]:
    return found.status if found is not None else {}


def _worker(pipelines: Pipelines) -> dict[str, Any] | None:
    holder = pipelines.lease.holder
    if holder is None:
        return None
    return {
        "host": holder.host,
        "pid": holder.pid,
        "trouble": pipelines.worker.trouble,
        "about": pipelines.worker.about,
        "reported_ms": pipelines.worker.at_ms,
    }


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str) or not found:
        raise BadBody(f"{name} must be a text")
    if len(found) > _TEXT_CHARS_MAX:
        raise BadBody(f"{name} has more than {_TEXT_CHARS_MAX} characters")
    return found


def _number(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    found = body.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 53:
        raise BadBody(f"{name} must be a whole number")
    return found


def _worker_id(body: Mapping[str, Any]) -> str:
    found = _text(body, "worker")
    if len(found) > WORKER_ID_CHARS_MAX:
        raise BadBody(f"worker has more than {WORKER_ID_CHARS_MAX} characters")
    return found

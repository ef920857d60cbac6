"""Pipelines: users declare, list, start and stop them (`/magnetar/v1/pipelines`); their worker gets its work and
reports (`/magnetar/v1/worker`).

docs/reference/pipelines-rest.md has the forms of bodies.  Only the worker, which has its token
(`base/worker_token.py`), gets the secrets of a configuration; other clients get them masked, and never get the
worker's token.  Only the worker gets the tokens with which queries act for the owners of their pipelines.
"""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar.admin.answers import BadBody, Refused, done, flag, object_body, value
from magnetar.admin.context import caller_of, cases_of, context_of
from magnetar.admin.routing import Router
from magnetar.base.masking import masked
from magnetar.broker.jobs.model import LEASE_S, OWNER_TOKEN_S, WORKER_ID_CHARS_MAX, Pipeline, WorkerSays
from magnetar.broker.usecases.pipelines import PipelineView, WorkerView

router: Final = Router()
_P: Final = "/magnetar/v1/pipelines"
_W: Final = "/magnetar/v1/worker"
_LISTED: Final = ("lag", "lag_s", "rows", "bytes", "rows_per_second", "errors", "restarts", "last_error")
_TROUBLE_CHARS_MAX: Final = 4000
_TEXT_CHARS_MAX: Final = 5000  # a host and a path of the file system


# --- for people --------------------------------------------------------------------------------------------------


@router.get(_P, summary="All pipelines: what they are, what they do, how far they are behind")
async def all_of_them(request: Request) -> Response:
    pipelines, caller = cases_of(request).pipelines, caller_of(request)
    rows = [_row(one) for one in pipelines.list(caller)]
    return value({"pipelines": rows, "worker": _worker(pipelines.worker_or_none(caller))})


@router.post(_P, summary="Declare a pipeline: {name, kind, config}; it starts unless ?start=false")
async def create(request: Request) -> Response:
    body = await object_body(request)
    config = body.get("config", {})
    if not isinstance(config, dict):
        raise BadBody("config must be an object")
    name, kind, starts = _text(body, "name"), _text(body, "kind"), flag(request, "start", True)
    made = await cases_of(request).pipelines.create(caller_of(request), name, kind, config, start=starts)
    return JSONResponse(_whole(made), 201)


@router.get(_P + "/{name}", summary="One pipeline with its configuration and status")
async def show(request: Request, name: str) -> Response:
    return value(_whole(cases_of(request).pipelines.describe(caller_of(request), name)))


@router.get(_P + "/{name}/stats", summary="A pipeline's numbers: lag, rates, batches, durations")
async def stats(request: Request, name: str) -> Response:
    return value(dict(cases_of(request).pipelines.describe(caller_of(request), name).status))


@router.put(_P + "/{name}/start", summary="Start a pipeline")
async def start(request: Request, name: str) -> Response:
    return value(_whole(await cases_of(request).pipelines.start(caller_of(request), name)))


@router.put(_P + "/{name}/stop", summary="Stop a pipeline; it keeps its position")
async def stop(request: Request, name: str) -> Response:
    return value(_whole(await cases_of(request).pipelines.stop(caller_of(request), name)))


@router.put(_P + "/{name}/restart", summary="Stop a pipeline and start it again")
async def restart(request: Request, name: str) -> Response:
    return value(_whole(await cases_of(request).pipelines.restart(caller_of(request), name)))


@router.delete(_P + "/{name}", summary="Delete a pipeline; ?force=true does not wait for the worker")
async def delete(request: Request, name: str) -> Response:
    pipelines, force = cases_of(request).pipelines, flag(request, "force")
    is_gone = await pipelines.delete(caller_of(request), name, force=force)
    return done() if is_gone else Response(status_code=202)


# --- for the worker ----------------------------------------------------------------------------------------------


@router.get(_W, summary="The worker that runs the pipelines; null when there is none")
async def worker(request: Request) -> Response:
    return value({"worker": _worker(cases_of(request).pipelines.worker(caller_of(request)))})


@router.post(
    _W + "/lease",
    summary="Become the worker: {worker, host, pid, place} -> {epoch, lease_s, bootstrap, table_roots}",
)
async def lease(request: Request) -> Response:
    body = await _workers_body(request)
    cases = cases_of(request).pipeline_worker
    epoch = await cases.take_lease(
        _worker_id(body), _text(body, "host"), _number(body, "pid"), _text(body, "place")
    )
    return value(
        {
            "epoch": epoch,
            "lease_s": LEASE_S,
            "bootstrap": _bootstrap(request),
            "table_roots": list(cases.table_roots),
        }
    )


@router.post(
    _W + "/orders", summary="All pipelines when they are not {version}, waiting {wait_ms} for a change"
)
async def orders(request: Request) -> Response:
    body = await _workers_body(request)
    cases = cases_of(request).pipeline_worker
    found = await cases.orders(
        _worker_id(body),
        _number(body, "epoch"),
        str(body.get("version", "")),
        _number(body, "wait_ms", 0) / 1000,
    )
    if found is None:
        return value({"version": cases.version, "pipelines": None})
    version, wanted = found
    return value({"version": version, "pipelines": [_spec(one) for one in wanted]})


@router.post(
    _W + "/tokens",
    summary="Tokens by which queries act for the owners of these pipelines: {pipelines: [name]} -> {tokens, life_s}",
)
async def tokens(request: Request) -> Response:
    body = await _workers_body(request)
    names = body.get("pipelines")
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise BadBody("pipelines must be a list of names")
    made = cases_of(request).pipeline_worker.tokens(_worker_id(body), _number(body, "epoch"), names)
    answer = value({"tokens": dict(made), "life_s": OWNER_TOKEN_S})
    answer.headers["cache-control"] = "no-store"
    return answer


@router.post(
    _W + "/report", summary="What the worker's pipelines do: {pipelines: {name: {state, reason, status}}}"
)
async def report(request: Request) -> Response:
    body = await _workers_body(request)
    reports, about = body.get("pipelines", {}), body.get("about", {})
    if not isinstance(reports, dict) or not isinstance(about, dict):
        raise BadBody("pipelines and about must be objects")
    says = WorkerSays(trouble=str(body.get("trouble") or "")[:_TROUBLE_CHARS_MAX], about=about)
    cases = cases_of(request).pipeline_worker
    await cases.report(_worker_id(body), _number(body, "epoch"), reports, says)
    return done()


@router.post(_W + "/end", summary="The worker has stopped everything and ends")
async def end(request: Request) -> Response:
    body = await _workers_body(request)
    cases_of(request).pipeline_worker.end(_worker_id(body), _number(body, "epoch"))
    return done()


async def _workers_body(request: Request) -> Mapping[str, Any]:
    """The body of a request of the worker; other clients are refused."""
    if not context_of(request).access.is_worker(request.headers.get("authorization", "")):
        raise Refused(401, "this is for the pipelines' worker, which is known by its token", "NOT_THE_WORKER")
    return await object_body(request)


def _bootstrap(request: Request) -> str:
    """The bootstrap addresses for a Kafka client at the sender of this request: one listener of each node."""
    addresses = []
    with_tls = request.url.scheme == "https"  # as the worker's own request: it has the files for that
    for endpoint in cases_of(request).pipeline_worker.kafka_endpoints(with_tls=with_tls):
        host = endpoint.host or request.url.hostname or "localhost"
        addresses.append(f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}")
    return ",".join(addresses)


# --- forms -------------------------------------------------------------------------------------------------------


def _spec(pipeline: Pipeline) -> dict[str, Any]:
    """The specification for the worker, with secrets."""
    return {
        "name": pipeline.name,
        "id": pipeline.id,
        "kind": pipeline.kind,
        "owner": str(pipeline.owner),
        "config": pipeline.config,
        "desired": pipeline.desired,
        "run": pipeline.run,
        "created_ms": pipeline.created_ms,
        "subscription": pipeline.subscription,
    }


def _whole(view: PipelineView) -> dict[str, Any]:
    """The pipeline for users, without secrets."""
    return {
        **_spec(view.pipeline),
        "config": masked(view.pipeline.config),
        "state": view.state,
        "reason": view.reason,
        "status": view.status,
        "reported_ms": view.reported_ms,
    }


def _row(view: PipelineView) -> dict[str, Any]:
    return {
        "name": view.pipeline.name,
        "kind": view.pipeline.kind,
        "owner": str(view.pipeline.owner),
        "desired": view.pipeline.desired,
        "state": view.state,
        "reason": view.reason,
        **{name: view.status.get(name) for name in _LISTED},
    }


def _worker(view: WorkerView | None) -> dict[str, Any] | None:
    if view is None:
        return None
    return {
        "host": view.holder.host,
        "pid": view.holder.pid,
        "trouble": view.says.trouble,
        "about": view.says.about,
        "reported_ms": view.says.at_ms,
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

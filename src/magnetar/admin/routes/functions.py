"""Functions, as Pulsar's functions worker answers them (`/admin/v3/functions`): `FunctionConfig` in forms with a file.

docs/reference/functions.md says what a configuration may have.  What is not served below these paths is refused by
name.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, done, unsupported, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.forms import Part, form_body, object_part
from magnetar.admin.routing import Router
from magnetar.broker.jobs.model import FunctionName, InstanceSays

router: Final = Router()
_N: Final = "/admin/v3/functions/{tenant}/{namespace}"
_F: Final = _N + "/{name}"
_WORKER: Final = "magnetar"  # the one that runs all
# The numbers of an instance, as Pulsar's statistics name them.
_COUNTS: Final = (
    "receivedTotal",
    "processedSuccessfullyTotal",
    "systemExceptionsTotal",
    "userExceptionsTotal",
)
_LATENCY: Final = "avgProcessLatency"


@router.get(_N, summary="The functions of a namespace")
async def names(request: Request, tenant: str, namespace: str) -> Response:
    return value(list(cases_of(request).functions.names(caller_of(request), tenant, namespace)))


@router.post(_F, summary="Declare a function by a form with functionConfig and data; it starts")
async def create(request: Request, tenant: str, namespace: str, name: str) -> Response:
    config, file = await _declaration(request, tenant, namespace)
    await cases_of(request).functions.create(
        caller_of(request), FunctionName(tenant, namespace, name), config, file.file_name, file.content
    )
    return done()


@router.put(_F, summary="Change a function by a form with functionConfig, data or both")
async def update(request: Request, tenant: str, namespace: str, name: str) -> Response:
    config, file = await _declaration(request, tenant, namespace)
    code = file.content if file.file_name else None
    await cases_of(request).functions.update(
        caller_of(request), FunctionName(tenant, namespace, name), config, file.file_name, code
    )
    return done()


@router.get(_F, summary="The configuration of a function")
async def show(request: Request, tenant: str, namespace: str, name: str) -> Response:
    view = cases_of(request).functions.describe(caller_of(request), FunctionName(tenant, namespace, name))
    return value(dict(view.config))


@router.get(_F + "/download", summary="The file of a function's code")
async def download(request: Request, tenant: str, namespace: str, name: str) -> Response:
    if request.query_params.get("transform-function", "false") != "false":
        raise unsupported("A function that transforms what a connector reads")
    file_name, code = await cases_of(request).functions.code(
        caller_of(request), FunctionName(tenant, namespace, name)
    )
    return Response(
        code,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{file_name}"'},
    )


@router.delete(_F, summary="Delete a function with its code and state")
async def delete(request: Request, tenant: str, namespace: str, name: str) -> Response:
    await cases_of(request).functions.delete(caller_of(request), FunctionName(tenant, namespace, name))
    return done()


@router.post(_F + "/start", summary="Start all instances of a function")
async def start(request: Request, tenant: str, namespace: str, name: str) -> Response:
    await cases_of(request).functions.start(caller_of(request), FunctionName(tenant, namespace, name), None)
    return done()


@router.post(_F + "/stop", summary="Stop all instances of a function")
async def stop(request: Request, tenant: str, namespace: str, name: str) -> Response:
    await cases_of(request).functions.stop(caller_of(request), FunctionName(tenant, namespace, name), None)
    return done()


@router.post(_F + "/restart", summary="Stop all instances of a function and start them again")
async def restart(request: Request, tenant: str, namespace: str, name: str) -> Response:
    await cases_of(request).functions.restart(caller_of(request), FunctionName(tenant, namespace, name), None)
    return done()


# Before the routes of an instance: a key may be called `start`, and `state` is no instance.
@router.get(_F + "/state/{key}", summary="What a function keeps under a key")
async def state(request: Request, tenant: str, namespace: str, name: str, key: str) -> Response:
    kept = await cases_of(request).functions.state(
        caller_of(request), FunctionName(tenant, namespace, name), key
    )
    shown: dict[str, Any] = {"key": key, "version": kept.version}
    if kept.number is not None:
        shown["numberValue"] = kept.number
    if kept.data is not None:
        try:
            shown["stringValue"] = kept.data.decode()
        except UnicodeDecodeError:
            shown["byteValue"] = base64.b64encode(kept.data).decode()
    return value(shown)


@router.post(_F + "/state/{key}", summary="Keep a value under a key of a function, by a form with state")
async def put_state(request: Request, tenant: str, namespace: str, name: str, key: str) -> Response:
    cases_of(request).functions.require(caller_of(request), tenant, namespace)
    said = await object_part(request, await form_body(request), "state")
    text, number, data = said.get("stringValue"), said.get("numberValue"), said.get("byteValue")
    if said.get("key", key) != key:
        raise BadBody("the key in the path and the key of the state differ")
    if isinstance(number, int) and not isinstance(number, bool) and not text and not data:
        content = None
    elif isinstance(data, str) and not text:
        try:
            content, number = base64.b64decode(data, validate=True), None
        except ValueError:
            raise BadBody("byteValue must be base64") from None
    elif isinstance(text, str):
        content, number = text.encode("utf-8", "replace"), None
    else:
        raise BadBody("the state must have a stringValue, a byteValue or a numberValue")
    await cases_of(request).functions.put_state(
        caller_of(request), FunctionName(tenant, namespace, name), key, content, number
    )
    return done()


@router.post(_F + "/{instance}/start", summary="Start an instance of a function")
async def start_one(request: Request, tenant: str, namespace: str, name: str, instance: int) -> Response:
    await cases_of(request).functions.start(
        caller_of(request), FunctionName(tenant, namespace, name), instance
    )
    return done()


@router.post(_F + "/{instance}/stop", summary="Stop an instance of a function")
async def stop_one(request: Request, tenant: str, namespace: str, name: str, instance: int) -> Response:
    await cases_of(request).functions.stop(
        caller_of(request), FunctionName(tenant, namespace, name), instance
    )
    return done()


@router.post(_F + "/{instance}/restart", summary="Stop an instance of a function and start it again")
async def restart_one(request: Request, tenant: str, namespace: str, name: str, instance: int) -> Response:
    await cases_of(request).functions.restart(
        caller_of(request), FunctionName(tenant, namespace, name), instance
    )
    return done()


@router.get(_F + "/status", summary="What each instance of a function does, and its last exceptions")
async def status(request: Request, tenant: str, namespace: str, name: str) -> Response:
    view = cases_of(request).functions.describe(caller_of(request), FunctionName(tenant, namespace, name))
    rows = [{"instanceId": number, "status": _status(one)} for number, one in view.instances.items()]
    running = sum(one.running for one in view.instances.values())
    return value({"numInstances": len(rows), "numRunning": running, "instances": rows})


@router.get(_F + "/{instance}/status", summary="What an instance of a function does")
async def status_of_one(request: Request, tenant: str, namespace: str, name: str, instance: int) -> Response:
    view = cases_of(request).functions.instance(
        caller_of(request), FunctionName(tenant, namespace, name), instance
    )
    return value(_status(view))


@router.get(_F + "/stats", summary="The numbers of a function and of each of its instances")
async def stats(request: Request, tenant: str, namespace: str, name: str) -> Response:
    view = cases_of(request).functions.describe(caller_of(request), FunctionName(tenant, namespace, name))
    rows = [{"instanceId": number, "metrics": _metrics(one)} for number, one in view.instances.items()]
    all_numbers = [one.numbers for one in view.instances.values()]
    last_minute = [one.one_minute for one in view.instances.values()]
    last = max((one.last_invocation_ms for one in view.instances.values()), default=0)
    return value(
        {
            **_sums(all_numbers),
            "1min": _sums(last_minute),
            "lastInvocation": last or None,
            "instances": rows,
        }
    )


@router.get(_F + "/{instance}/stats", summary="The numbers of an instance of a function")
async def stats_of_one(request: Request, tenant: str, namespace: str, name: str, instance: int) -> Response:
    view = cases_of(request).functions.instance(
        caller_of(request), FunctionName(tenant, namespace, name), instance
    )
    return value(_metrics(view))


@router.post(
    _F + "/trigger",
    summary="Send a message to a function by a form with data or dataStream, and show the output",
)
async def trigger(request: Request, tenant: str, namespace: str, name: str) -> Response:
    cases_of(request).functions.require(caller_of(request), tenant, namespace)
    parts = await form_body(request)
    said = parts.get("data") or parts.get("dataStream")
    if said is None:
        raise BadBody("Function in trigger function has no value: the form has neither data nor dataStream")
    topic = parts.get("topic", Part(b"")).content.decode("utf-8", "replace")
    output = await cases_of(request).functions.trigger(
        caller_of(request), FunctionName(tenant, namespace, name), topic, said.content
    )
    return done() if output is None else Response(output, media_type="text/plain")


# --- forms -------------------------------------------------------------------------------------------------------


async def _declaration(request: Request, tenant: str, namespace: str) -> tuple[Mapping[str, Any], Part]:
    """The configuration, and the file of code with an empty name if there is none."""
    cases_of(request).functions.require(caller_of(request), tenant, namespace)
    parts = await form_body(request)
    if parts.get("url", Part(b"")).content:
        raise unsupported("Code of a function by its URL")
    file = parts.get("data", Part(b""))
    return await object_part(request, parts, "functionConfig"), file if file.file_name else Part(b"")


def _status(one: InstanceSays) -> dict[str, Any]:
    numbers = one.numbers
    return {
        "running": one.running,
        "error": one.error,
        "numRestarts": one.restarts,
        "numReceived": int(numbers.get("receivedTotal", 0)),
        "numSuccessfullyProcessed": int(numbers.get("processedSuccessfullyTotal", 0)),
        "numUserExceptions": int(numbers.get("userExceptionsTotal", 0)),
        "latestUserExceptions": _troubles(one.user_exceptions),
        "numSystemExceptions": int(numbers.get("systemExceptionsTotal", 0)),
        "latestSystemExceptions": _troubles(one.system_exceptions),
        "averageLatency": numbers.get(_LATENCY, 0.0),
        "lastInvocationTime": one.last_invocation_ms,
        "workerId": _WORKER,
    }


def _troubles(troubles: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{"exceptionString": one.text, "timestampMs": one.at_ms} for one in troubles]


def _metrics(one: InstanceSays) -> dict[str, Any]:
    return {
        **_sums([one.numbers]),
        "1min": _sums([one.one_minute]),
        "lastInvocation": one.last_invocation_ms or None,
        "userMetrics": dict(one.metrics),
    }


def _sums(several: list[Mapping[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: int(sum(one.get(name, 0) for one in several)) for name in _COUNTS}
    latencies = [one[_LATENCY] for one in several if one.get(_LATENCY)]
    found[_LATENCY] = sum(latencies) / len(latencies) if latencies else None
    return found

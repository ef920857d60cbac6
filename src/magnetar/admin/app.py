"""The HTTP side of a server: Pulsar's admin API, health and metrics.

* `/admin/v2/...`, `/lookup/v2/...`: Pulsar's paths, one file per kind of resource in `routes/`
* `/magnetar/v1/...`: Magnetar's own paths
* `/metrics`: Prometheus' text format
* `/health`, `/ready`: each part and its problem; 503 if the server cannot do its work
* `/admin/v2/brokers/health`, `/admin/v2/brokers/ready`, `/status.html`: `ok`, or the same 503

The routes translate: each calls a use case (`broker/usecases/`), the same one that a client's command calls.
Importing this module takes 0.3 s, so `serving.load` does it in the background.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from magnetar import __version__
from magnetar.admin import answers, routing
from magnetar.admin.access import NO_PORTS, Access, WebPorts
from magnetar.admin.context import AdminContext, caller_of
from magnetar.admin.guard import Guard
from magnetar.admin.json_bodies import JsonReader
from magnetar.admin.login import Filter
from magnetar.admin.routes import (
    cluster,
    connectors,
    functions,
    links,
    lookup,
    namespaces,
    permissions,
    pipelines,
    policies,
    positions,
    replicators,
    resource_groups,
    schemas,
    segments,
    subscriptions,
    topic_state,
    topics,
    transactions,
    unserved,
)
from magnetar.base.exposition import render
from magnetar.base.metrics import Metrics
from magnetar.broker.cluster.model import NO_ENDPOINTS, PulsarEndpoints
from magnetar.broker.usecases.cases import UseCases

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METHODS: Final = ("GET", "POST", "PUT", "DELETE")
# The order counts: the first route that matches a path answers.
ROUTERS: Final = (
    cluster.router,
    connectors.router,
    functions.router,
    links.router,
    lookup.router,
    namespaces.router,
    permissions.router,
    policies.router,
    replicators.router,
    resource_groups.router,
    schemas.router,
    topic_state.router,
    subscriptions.router,
    topics.router,
    transactions.router,
    pipelines.router,
    segments.router,
    positions.router,
    unserved.router,
)


def create_app(
    cases: UseCases,
    metrics: Metrics,
    pulsar: PulsarEndpoints = NO_ENDPOINTS,
    access: Access | None = None,
    web: WebPorts = NO_PORTS,
) -> Starlette:
    """The application for one broker's use cases; it adds its metrics to `metrics`.

    `pulsar` has the addresses for Pulsar clients, and `web` the ports of HTTP.  `access` has the server's names and its
    worker's token; without it, the server answers to `localhost` and numeric addresses, and has no worker.
    """
    refresh_metrics = cases.metrics.declare(metrics)
    app = Starlette()
    access = access or Access()
    app.state.admin = AdminContext(cases, pulsar, access, web)
    answers.install(app, JsonReader(cases.clock.monotonic))
    # Inside the others, because a browser's preflight request has no login.
    app.add_middleware(Filter, logins=cases.logins, access=access)
    if access.origins:  # inside the guard, which has refused all other origins
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(access.origins),
            allow_methods=METHODS,
            allow_headers=["content-type", "authorization"]
            if cases.logins.are_required
            else ["content-type"],
        )
    app.add_middleware(Guard, access=access)

    async def read_metrics(request: Request) -> Response:
        await refresh_metrics(caller_of(request))
        # On a thread: with many partitions it takes long, and would block the event loop.
        return Response(await asyncio.to_thread(render, metrics), media_type=METRICS_TYPE)

    about = routing.Router()
    about.add("/metrics", read_metrics, ["GET"], "Every number about the server")
    about.add("/openapi.json", _schema(app), ["GET"], in_schema=False)
    # All other routes were created once, at import.
    for router in (about, *ROUTERS):
        app.router.routes.extend(router.routes)
    return app


def _schema(app: Starlette) -> Callable[[], Awaitable[Response]]:
    """A route that describes all others.  The document is made once, on a thread, because it takes long."""
    making = asyncio.Lock()
    made = b""

    async def schema() -> Response:
        nonlocal made
        async with making:
            if not made:
                made = await asyncio.to_thread(
                    lambda: json.dumps(routing.document("Magnetar", __version__, app.routes)).encode()
                )
        return Response(made, media_type="application/json")

    return schema

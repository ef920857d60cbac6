"""The HTTP side of a server: health and metrics.

* `/metrics`: Prometheus' text format
* `/admin/v2/brokers/health` (Pulsar's path), `/health`: `ok`, or 503 when the server cannot do its work
* `/status.html`: the same for load balancers that want a page

Importing this module costs a third of a second: `serving.load` does it beside other work.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse, Response

from magnetar import __version__
from magnetar.admin.broker_metrics import GroupProgress, declare_broker_metrics
from magnetar.base.errors import BrokerError

if TYPE_CHECKING:
    from magnetar.base.metrics import Metrics
    from magnetar.broker.broker import Broker

log = logging.getLogger(__name__)

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEALTH_S_MAX: Final = 5.0
_HEALTH_PATH: Final = "/health-check"  # need not exist: the question is whether the store answers


def create_app(broker: "Broker", metrics: "Metrics") -> FastAPI:
    """The application for one broker, whose numbers are declared in `metrics` here; others may be there already."""
    declare_broker_metrics(metrics, broker)
    progress = GroupProgress(metrics, broker)
    # The pages at /docs would load their scripts from the internet; the schema itself is at /openapi.json.
    app = FastAPI(title="Magnetar", version=__version__, docs_url=None, redoc_url=None)

    @app.get("/metrics", summary="Every number about the server", response_class=PlainTextResponse)
    async def read_metrics() -> Response:
        await progress.refresh()
        # On a worker thread: with many partitions it takes long, and the event loop belongs to the clients.
        return Response(await asyncio.to_thread(metrics.render), media_type=METRICS_TYPE)

    async def check() -> None:
        try:
            async with asyncio.timeout(HEALTH_S_MAX):
                await broker.metadata.get(_HEALTH_PATH)
        except (BrokerError, TimeoutError) as error:
            log.warning("health check failed: %s", str(error) or "no answer from the metadata store")
            raise HTTPException(503, "the metadata store does not answer") from error

    @app.get("/admin/v2/brokers/health", summary="Whether the server works", response_class=PlainTextResponse)
    @app.get("/health", summary="Whether the server works", response_class=PlainTextResponse)
    async def health() -> str:
        await check()
        return "ok"

    @app.get("/status.html", summary="The same, for load balancers", response_class=PlainTextResponse)
    async def status() -> str:
        await check()
        return "OK"

    return app

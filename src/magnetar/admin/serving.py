"""HTTP in the server's own event loop.

uvicorn runs without its signal handlers and its log: the process handles signals itself, and a log line for each
request of metrics would be too much.  `load` imports the web framework on a thread, while the server already serves
other clients; nothing of it is imported before.
"""

import asyncio
import importlib
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from magnetar.admin.access import Access, WebPorts
from magnetar.base.metrics import Metrics
from magnetar.broker.cluster.model import PulsarEndpoints
from magnetar.broker.usecases.cases import UseCases

log = logging.getLogger(__name__)

STOP_S_MAX: Final = 3  # a request under way may take this long before its connection is cut
KEEP_ALIVE_S: Final = 30

CreateApp = Callable[[UseCases, Metrics, PulsarEndpoints, Access, WebPorts], Any]


class Secured(NamedTuple):
    """Listening sockets with TLS, and the function that adds TLS to a protocol factory."""

    sockets: list[socket.socket]
    factory: Callable[[Callable[[], asyncio.Protocol]], Callable[[], asyncio.BaseProtocol]]


async def load() -> CreateApp:
    """Import the framework and return `create_app`, ready to be called."""
    return await asyncio.to_thread(_import)


def _import() -> CreateApp:
    importlib.import_module("uvicorn.server")
    importlib.import_module("magnetar.admin.slots")
    create: CreateApp = importlib.import_module("magnetar.admin.app").create_app
    return create


class _Uvicorn(Protocol):
    """The parts of `uvicorn.Server`, which `load` imports, that this module uses."""

    should_exit: bool

    async def main_loop(self) -> None: ...
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None: ...


class HttpServer:
    """A running HTTP server; `serve` creates it."""

    def __init__(self, server: _Uvicorn, sockets: list[socket.socket], stopping: Callable[[], None]) -> None:
        self._server = server
        self._stopping = stopping
        self._sockets = sockets
        self.ticking = asyncio.get_running_loop().create_task(server.main_loop(), name="http")

    async def close(self) -> None:
        """Take no more requests, wait up to `STOP_S_MAX` for those under way, and return when all are gone."""
        self._server.should_exit = True
        self._stopping()
        with suppress(asyncio.CancelledError):
            await self.ticking
        await self._server.shutdown(self._sockets)


def _nothing() -> None:
    return None


def _no_worker(authorization: str) -> bool:
    return False


async def serve(
    app: Any,
    sockets: Sequence[socket.socket],
    stopping: Callable[[], None] = _nothing,
    secured: Secured | None = None,
    connections_max: int = sys.maxsize,
    is_worker: Callable[[str], bool] = _no_worker,
) -> HttpServer:
    """Serve the ASGI application `app` on listening `sockets`; the server answers requests when this returns.

    `secured` has further sockets, with TLS.  `connections_max` is the limit that the process's open files allow; for
    a short time there may be twice as many.  `stopping` is called when the server begins to close, to end requests
    that wait for something.  `is_worker` says whether an Authorization is that of the pipelines' worker.
    """
    import uvicorn

    from magnetar.admin.slots import Slots, bounded

    connection = bounded(connections_max)

    config = uvicorn.Config(
        Slots(app, is_worker),
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        loop="none",
        http=connection,
        ws="none",
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S_MAX,
        server_header=False,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    listening = list(sockets)
    await server.startup(listening)
    if secured is not None:

        def make() -> asyncio.Protocol:
            return connection(
                config=config, server_state=server.server_state, app_state=server.lifespan.state
            )

        loop = asyncio.get_running_loop()
        for one in secured.sockets:
            server.servers.append(await loop.create_server(secured.factory(make), sock=one))
        listening += secured.sockets
    return HttpServer(server, listening, stopping)

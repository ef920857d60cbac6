"""The process of the replicator service: it listens, serves brokers, and ends at SIGTERM.

It keeps nothing: a message without a receipt is still in the broker's backlog.  At SIGTERM each lane sends the rest of
the chunk that it has begun, and its broker gets the receipts.
"""

import asyncio
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.base.listeners import LOCALHOST, is_loopback
from magnetar.base.private import new_private_folder
from magnetar.base.tasks import Tasks
from magnetar.replicator_service.config import Targets
from magnetar.replicator_service.lanes import Lanes
from magnetar.replicator_service.session import Session, Shared
from magnetar.wire.convert import engine

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1_000
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What the command line says.  Port 0 is a free one; `letters_folder` is None if there is none."""

    host: str
    port: int
    targets: Targets
    tokens: Sequence[bytes]
    letters_folder: Path | None


class Service:
    """Serves brokers while an `async with` block runs; `url` is where they find it."""

    def __init__(self, options: ServiceOptions) -> None:
        """Raises ConfigError: brokers of other machines could come in without a token."""
        if not options.tokens and options.host != LOCALHOST and not is_loopback(options.host):
            raise ConfigError(
                f"{options.host} can be reached from other machines: give --token-file, so that only your brokers"
                " may send here"
            )
        self._options = options
        self._lanes = Lanes()
        self._tasks = Tasks(log)
        self._connections = Tasks(log)
        self._sessions: set[Session] = set()
        self._server: asyncio.Server

    async def __aenter__(self) -> "Service":
        """Raises ConfigError: the service cannot listen on the address."""
        options = self._options
        if options.letters_folder is not None:
            new_private_folder(options.letters_folder)
        engine.prepare()
        try:
            self._server = await asyncio.start_server(
                self._accepted, options.host, options.port, limit=_BUFFER_BYTES, start_serving=False
            )
        except OSError as error:
            raise ConfigError(
                f"the service cannot listen on {options.host}:{options.port}: {error.strerror or error}"
            ) from error
        port = self._server.sockets[0].getsockname()[1]
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"pulsar://{host}:{port}"
        self._shared = Shared(
            options.targets, options.tokens, options.letters_folder, self._lanes, self._tasks, self.url
        )
        await self._server.start_serving()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        await self._lanes.close()
        for session in list(self._sessions):
            session.close()
        await self._connections.ended()
        await self._tasks.ended()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._sessions) >= CONNECTIONS_MAX:
            log.warning("the service refuses a connection, because it has %d already", CONNECTIONS_MAX)
            writer.close()
            return
        self._connections.spawn("a connection", self._serve(Session(self._shared, reader, writer)))

    async def _serve(self, session: Session) -> None:
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)


def run(options: ServiceOptions) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.  Raises ConfigError."""
    return asyncio.run(_until_stopped(options))


async def _until_stopped(options: ServiceOptions) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Service(options) as service:
        print(f"magnetar: the replicator service is ready: {service.url}", flush=True)
        await stop.wait()
    return 0

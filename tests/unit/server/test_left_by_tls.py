"""What the end of a connection with TLS leaves in memory: nothing that only the cycle collector can free
(`circles.py`).
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from magnetar.admin import serving
from magnetar.base.clock import SystemClock
from magnetar.base.settings_connections import ConnectionRules, ListenerRules
from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.server.https import Https
from magnetar.server.listeners import bind
from magnetar.server.tls import TlsConnection
from magnetar.testing.certificates import Authority
from tests.unit.circles import circles_of
from tests.unit.server.tls_world import Session, World

TIMEOUT_S = 10.0
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

Life = Callable[[int, ssl.SSLContext], Awaitable[None]]


async def hangs_up(port: int, context: ssl.SSLContext) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03")
    writer.close()


async def speaks_no_tls(port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


async def asks(port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(REQUEST)
    await reader.read(10)
    writer.close()


async def breaks_off(port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(REQUEST)
    await reader.read(10)
    writer.transport.abort()


LIVES: tuple[Life, ...] = (hangs_up, speaks_no_tls, asks, breaks_off)


class Answering(Session):
    """Answers whatever it receives."""

    def received(self, count: int) -> None:
        self.connection.send([b"answer"])


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture
def world(authority: Authority) -> World:
    pem = Material("ssl.keystore.location", authority.issue("server", hosts=["localhost", "127.0.0.1"]).both)
    settings = TlsSettings(pem, pem, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3"))
    return World(authority, settings, ConnectionRules(ListenerRules(4), per_address_max=2))


@pytest.mark.parametrize("is_http", [False, True], ids=["door", "https"])
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_the_end_of_a_connection_leaves_no_circle(
    world: World, life: Life, is_http: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = asyncio.Event()
    original = TlsConnection.connection_lost

    def lose(connection: TlsConnection, error: Exception | None) -> None:
        original(connection, error)
        lost.set()

    monkeypatch.setattr(TlsConnection, "connection_lost", lose)
    context = ssl.create_default_context(cafile=str(world.authority.certificate))

    async def main() -> None:
        sockets = bind("127.0.0.1", 0)

        async def whole_life() -> None:
            lost.clear()
            async with asyncio.timeout(TIMEOUT_S):
                await life(sockets[0].getsockname()[1], context)
                await lost.wait()
            for _ in range(20):  # what has ended is told those that wait for it
                await asyncio.sleep(0)

        if is_http:
            https = Https(world.certificate, SystemClock())
            server: Any = await serving.serve(app, [], secured=serving.Secured(sockets, https.factory))
            left = await circles_of(whole_life)
            await server.close()
        else:
            loop = asyncio.get_running_loop()
            factory = world.connections.tls_factory("SSL", lambda one, _: Answering(one), world.certificate)
            server = await loop.create_server(factory, sock=sockets[0])
            left = await circles_of(whole_life)
            server.close()
        assert not left

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

"""What the end of an HTTP connection leaves in memory: nothing that only the cycle collector can free (`circles.py`).

A malformed request left 10 KB, so clients could fill the memory.
"""

import asyncio
import logging
import socket
import struct
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import uvloop

from magnetar.admin import serving, slots
from magnetar.server.listeners import bind
from tests.unit.circles import circles_of

TIMEOUT_S = 10.0
HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"
AT_ONCE, AFTER_A_WORD, WITH_A_RESET, AFTER_THE_SERVER = range(4)


class Life(NamedTuple):
    """What a client sends, and when it closes the connection."""

    sent: bytes
    end: int = AFTER_A_WORD


LIVES = {
    "nothing": Life(b"", AT_ONCE),
    "half a line": Life(b"GET / HTTP", AT_ONCE),
    "nonsense": Life(b"\x8a\0zz\r\n\r\n"),
    "nonsense after a request": Life(b"GET /" + HEAD + b"\r\n\0\0\0zz\r\n\r\n", AFTER_THE_SERVER),
    "a head that is too long": Life(b"GET /" + b"a" * 70_000),
    "a request": Life(b"GET /" + HEAD + b"\r\n"),
    "a request and a reset": Life(b"GET /" + HEAD + b"\r\n", WITH_A_RESET),
    "three requests at once": Life((b"GET /" + HEAD + b"\r\n") * 3),
    "head": Life(b"HEAD /" + HEAD + b"\r\n"),
    "HTTP/1.0": Life(b"GET / HTTP/1.0\r\n\r\n", AFTER_THE_SERVER),
    "half a body": Life(b"POST /" + HEAD + b"Content-Length: 10\r\n\r\nabc", AT_ONCE),
    "a malformed body": Life(b"POST /" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "an answer that fails": Life(b"GET /fails" + HEAD + b"\r\n", AFTER_THE_SERVER),
    "an answer that is awaited": Life(b"GET /waits" + HEAD + b"\r\n", AT_ONCE),
    "an answer that is half read": Life(b"GET /large" + HEAD + b"\r\n"),
    "an answer that is half read and a reset": Life(b"GET /large" + HEAD + b"\r\n", WITH_A_RESET),
    "too many requests": Life(b"GET /" + HEAD + b"\r\n"),
    "a head that does not come": Life(b"GET /" + HEAD, AFTER_THE_SERVER),
    "a request that does not come": Life(b"GET /" + HEAD + b"\r\n", AFTER_THE_SERVER),
}


class App:
    """An ASGI application for these lives."""

    def __init__(self) -> None:
        self._under_way = 0
        self.is_idle = asyncio.Event()
        self.is_idle.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._under_way += 1
        self.is_idle.clear()
        try:
            await self._answer(scope["path"], receive, send)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.is_idle.set()

    async def _answer(self, path: str, receive: Any, send: Any) -> None:
        message = await receive()
        while message["type"] != "http.disconnect" and (message["more_body"] or path == "/waits"):
            message = await receive()
        if path == "/fails":
            raise ValueError("it fails")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(16 if path == "/large" else 0):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        await send({"type": "http.response.body", "body": b"hello"})


async def live(life: Life, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(life.sent)
    if life.end == AFTER_THE_SERVER:
        with suppress(ConnectionError):
            await reader.read()
    elif life.end != AT_ONCE:
        await reader.read(10)
    if life.end == WITH_A_RESET:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    writer.close()


@pytest.mark.parametrize("name", LIVES)
def test_the_end_of_a_connection_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = asyncio.Event()

    known: list[weakref.ref[slots.Connection]] = []

    def lose(connection: slots.Connection, error: Exception | None) -> None:
        known.append(weakref.ref(connection))
        original(connection, error)
        lost.set()

    original = slots.Connection.connection_lost
    monkeypatch.setattr(slots.Connection, "connection_lost", lose)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "disabled", True)  # pytest keeps what is logged
    if name == "too many requests":
        monkeypatch.setattr(slots, "REQUESTS_MAX", 0)
    if name.endswith("does not come"):
        monkeypatch.setattr(slots, "HEAD_S_MAX", 0.05)
        monkeypatch.setattr(serving, "KEEP_ALIVE_S", 0.05)

    async def main() -> None:
        app = App()
        sockets = bind("127.0.0.1", 0)
        server = await serving.serve(app, sockets)

        async def whole_life() -> None:
            lost.clear()
            async with asyncio.timeout(TIMEOUT_S):
                await live(LIVES[name], sockets[0].getsockname()[1])
                await lost.wait()
                await app.is_idle.wait()
            for _ in range(20):  # what has ended is told those that wait for it
                await asyncio.sleep(0)

        left = await circles_of(whole_life)
        kept = [one for one in known if one() is not None]
        await server.close()
        assert not left
        assert not kept

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

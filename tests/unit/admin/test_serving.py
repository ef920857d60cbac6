"""HTTP inside another program's event loop: it starts, answers and ends without taking anything over."""

import asyncio
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import httpx
import pytest

from magnetar.admin import serving, slots
from magnetar.server.listeners import bind


class Hello:
    """An ASGI application that waits before it answers, if a test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})


def test_requests_are_answered_until_it_is_closed() -> None:
    async def main() -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        sockets = bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/"
        server = await serving.serve(Hello(), sockets)
        async with httpx.AsyncClient() as client:
            response = await client.get(url)
            assert response.text == "hello"
            assert "server" not in response.headers
            assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
            await server.close()  # also with an idle connection open
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    asyncio.run(main())


def test_a_request_under_way_is_finished_first() -> None:
    async def main() -> None:
        app = Hello()
        app.may_answer.clear()
        sockets = bind("127.0.0.1", 0)
        server = await serving.serve(app, sockets)
        async with httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/"
            answer = asyncio.create_task(client.get(url))
            await app.asked.wait()
            closing = asyncio.create_task(server.close())
            done, _ = await asyncio.wait({closing}, timeout=0.3)
            assert not done
            app.may_answer.set()
            assert (await answer).text == "hello"
            await closing

    asyncio.run(main())


def test_the_framework_is_imported_when_it_is_loaded_and_not_before() -> None:
    code = (
        "import asyncio, sys\n"
        "from magnetar.admin import serving\n"
        "assert not {'starlette', 'uvicorn'} & set(sys.modules)\n"
        "print(asyncio.run(serving.load()).__qualname__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.stdout.strip(), ran.stderr) == ("create_app", "")


def _anybody(authorization: str) -> bool:
    """Whoever asks is the worker."""
    return True


async def _ask(port: int, path: str = "/") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


def test_connections_that_ask_for_nothing_give_way_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 idle sockets had all other clients answered 503, for as long as they stayed."""
    monkeypatch.setattr(slots, "CONNECTIONS_MAX", 8)
    monkeypatch.setattr(slots, "HEAD_S_MAX", 600.0)

    async def main() -> None:
        sockets = bind("127.0.0.1", 0)
        port = sockets[0].getsockname()[1]
        server = await serving.serve(Hello(), sockets)
        idle = []
        for _ in range(8):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHo")  # half a head is not a request
            idle.append((reader, writer))
            await asyncio.sleep(0)
        for reader, writer in (idle[0], idle[7]):  # both ask, and are idle again
            writer.write(b"st: localhost\r\n\r\n")
            await reader.readuntil(b"0\r\n\r\n")
        assert await _ask(port) == 200
        with suppress(ConnectionResetError):  # of those that never asked, the one that came first
            assert await idle[1][0].read() == b""
        for reader, writer in (idle[0], *idle[2:7]):
            writer.write(
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" if writer is idle[0][1] else b"st: a\r\n\r\n"
            )
            assert b"200" in await reader.readuntil(b"0\r\n\r\n")
        for _, writer in idle:
            writer.close()
        await server.close()

    asyncio.run(main())


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "HEAD_S_MAX", 0.05)

    async def main() -> None:
        sockets = bind("127.0.0.1", 0)
        port = sockets[0].getsockname()[1]
        server = await serving.serve(Hello(), sockets)
        for first in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", None):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if first is None:  # a whole request, and then half of one
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200" in await reader.readuntil(b"0\r\n\r\n")
                first = b"GET"
            writer.write(first)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        await server.close()

    asyncio.run(main())


def test_a_body_that_is_broken_off_by_nonsense_is_answered_once(caplog: pytest.LogCaptureFixture) -> None:
    # The application answered, too, behind the refusal: forty lines of traceback for each such request.
    async def main() -> None:
        app = Hello()
        sockets = bind("127.0.0.1", 0)
        server = await serving.serve(app, sockets)
        reader, writer = await asyncio.open_connection("127.0.0.1", sockets[0].getsockname()[1])
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1
        await app.asked.wait()
        writer.close()
        await server.close()

    asyncio.run(main())
    assert not [one for one in caplog.records if one.exc_info]
    assert "Exception" not in caplog.text


def test_a_request_that_takes_long_is_not_cut_off_by_what_bounds_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "HEAD_S_MAX", 0.05)

    async def main() -> None:
        app = Hello()
        app.may_answer.clear()
        sockets = bind("127.0.0.1", 0)
        server = await serving.serve(app, sockets)
        asking = asyncio.create_task(_ask(sockets[0].getsockname()[1]))
        await app.asked.wait()
        done, _ = await asyncio.wait({asking}, timeout=0.3)
        assert not done
        app.may_answer.set()
        assert await asking == 200
        await server.close()

    asyncio.run(main())


def test_an_answer_that_is_not_taken_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "UNREAD_S_MAX", 0.05)

    class Endless:
        def __init__(self) -> None:
            self.gone = asyncio.Event()

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            asyncio.create_task(self._watch(receive))  # noqa: RUF006  it ends with the connection
            while not self.gone.is_set():
                await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})

        async def _watch(self, receive: Any) -> None:
            assert (await receive())["type"] == "http.disconnect"
            self.gone.set()

    async def main() -> None:
        app = Endless()
        sockets = bind("127.0.0.1", 0)
        server = await serving.serve(app, sockets)
        _, writer = await asyncio.open_connection("127.0.0.1", sockets[0].getsockname()[1], limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await app.gone.wait()
        writer.close()
        await server.close()

    asyncio.run(main())


def test_monitoring_is_answered_while_every_slot_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "REQUESTS_MAX", 4)
    monkeypatch.setattr(slots, "REQUESTS_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(slots, "RESERVED", 1)

    class Slow(Hello):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["query_string"] == b"slow":
                await Hello.__call__(self, scope, receive, send)
            else:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b""})

    async def ask(app: Any, path: str, client: str, query: bytes = b"") -> int:
        found = []

        async def send(message: Any) -> None:
            found.append(message.get("status"))

        scope = {"type": "http", "path": path, "client": (client, 1), "query_string": query, "method": "GET"}
        await app({**scope, "headers": []}, None, send)
        return int(found[0])

    async def main() -> None:
        inner = Slow()
        inner.may_answer.clear()
        app = slots.Slots(inner, _anybody)
        slow = [asyncio.create_task(ask(app, "/a", "one", b"slow")) for _ in range(3)]
        await asyncio.sleep(0)
        assert await ask(app, "/a", "one") == 503  # one address does not take all
        assert await ask(app, "/a", "two") == 200
        slow.append(asyncio.create_task(ask(app, "/a", "two", b"slow")))
        await asyncio.sleep(0)
        assert await ask(app, "/a", "three") == 503
        watching = ("/health", "/ready", "/admin/v2/brokers/health", "/metrics", "/magnetar/v1/worker/lease")
        for path in watching:
            assert await ask(app, path, "one") == 200
        slow.append(asyncio.create_task(ask(app, "/metrics", "one", b"slow")))
        await asyncio.sleep(0)
        assert await ask(app, "/metrics", "two") == 503  # and none of them takes the others' room
        assert await ask(app, "/health", "two") == 200
        inner.may_answer.set()
        assert await asyncio.gather(*slow) == [200] * 5
        assert await ask(app, "/a", "one") == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "shown"), [("/magnetar/v1/worker/lease", "Bearer worker"), ("/metrics", "Bearer scraper")]
)
def test_wrong_passwords_take_no_room_that_is_kept_for_others(
    monkeypatch: pytest.MonkeyPatch, path: str, shown: str
) -> None:
    """Each waits until the server has looked at those of the others: sixty such clients kept the pipelines' worker out,
    and all programs that read metrics.
    """
    monkeypatch.setattr(slots, "RESERVED", 1)

    async def main() -> None:
        inner = Hello()
        inner.may_answer.clear()
        app = slots.Slots(inner, lambda authorization: authorization == "Bearer worker")

        async def ask(authorization: str) -> int:
            found = []

            async def send(message: Any) -> None:
                found.append(message.get("status"))

            headers = [(b"authorization", authorization.encode())]
            scope = {"type": "http", "path": path, "client": ("one", 1), "method": "GET", "headers": headers}
            await app(scope, None, send)  # type: ignore[arg-type]
            return int(found[0])

        waiting = [asyncio.create_task(ask("Basic d3Jvbmc6d3Jvbmc=")) for _ in range(2)]
        await inner.asked.wait()
        served = asyncio.create_task(ask(shown))
        await asyncio.sleep(0)
        inner.may_answer.set()
        assert await asyncio.gather(served, *waiting) == [200] * 3

    asyncio.run(main())


def test_health_is_answered_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seventeenth that asked at once got 503, which says that the server does not work."""
    monkeypatch.setattr(slots, "RESERVED", 1)
    monkeypatch.setattr(slots, "REQUESTS_MAX", 1)

    async def main() -> None:
        inner = Hello()
        inner.may_answer.clear()
        sockets = bind("127.0.0.1", 0)
        server = await serving.serve(inner, sockets)
        port = sockets[0].getsockname()[1]
        asking = [asyncio.create_task(_ask(port, "/ready")) for _ in range(20)]
        await inner.asked.wait()
        await asyncio.sleep(0.1)
        inner.may_answer.set()
        assert await asyncio.gather(*asking) == [200] * 20
        await server.close()

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/health", "/magnetar/v1/worker/lease"])
def test_answers_that_are_not_taken_keep_health_and_the_worker_from_no_client(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Sixteen connections that asked again and again and read nothing had health answer 503 for a minute."""
    monkeypatch.setattr(slots, "RESERVED", 1)

    async def main() -> None:
        taken = asyncio.Event()
        statuses = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if len(statuses) == 1:
                    await taken.wait()  # as long as what was answered before fills the connection

        app = slots.Slots(Hello(), _anybody)
        scope = {"type": "http", "path": path, "client": ("one", 1), "method": "GET", "headers": []}
        unread = asyncio.create_task(app(scope, None, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        await app(scope, None, send)  # type: ignore[arg-type]
        assert statuses == [200, 200]
        taken.set()
        await unread

    asyncio.run(main())


def test_a_client_that_takes_no_answers_gives_way_where_none_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections full of untaken answers are not idle: every new one, a probe's too, was cut off at once."""
    monkeypatch.setattr(slots, "CONNECTIONS_MAX", 1)

    class Large:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            body = bytes(32 << 20) if scope["path"] == "/large" else b""
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def main() -> None:
        sockets = bind("127.0.0.1", 0)
        port = sockets[0].getsockname()[1]
        server = await serving.serve(Large(), sockets)
        unread = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()
            await asyncio.sleep(0.2)
            unread.append((reader, writer))
        assert await _ask(port) == 200
        with suppress(ConnectionResetError):  # the first that took nothing
            assert len(await unread[0][0].read()) < 32 << 20
        for _, writer in unread:
            writer.transport.abort()
        await server.close()

    asyncio.run(main())

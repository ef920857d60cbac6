"""HTTP inside another program's event loop: it starts, answers and ends without taking anything over."""

import asyncio
import signal
import subprocess
import sys
from typing import Any

import httpx
import pytest

from magnetar.admin import serving
from magnetar.server.listeners import bind


class Hello:
    """An ASGI application that can be told to wait before it answers."""

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
        "assert not {'fastapi', 'uvicorn', 'pydantic'} & set(sys.modules)\n"
        "print(asyncio.run(serving.load()).__qualname__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.stdout.strip(), ran.stderr) == ("create_app", "")

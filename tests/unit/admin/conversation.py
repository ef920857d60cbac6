"""One table of requests and answers, played in order against an application."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from magnetar.admin.access import Access
from magnetar.admin.app import create_app
from magnetar.base.metrics import Metrics
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Endpoint, PulsarEndpoints

ANY = object()
Step = tuple[
    str, str, Any, int, Any
]  # method, path behind /admin/v2, JSON body, status, JSON answer or part of it


def play(make_broker: Callable[[], Broker], steps: Sequence[Step]) -> None:
    """Send every step; a text as the answer is the `reason`, `ANY` is any, None is an empty body."""

    async def main() -> None:
        broker = make_broker()
        await broker.namespaces.load({"public/default"})
        transport = httpx.ASGITransport(
            create_app(broker.cases, Metrics(), PulsarEndpoints(Endpoint("", 6650)), Access.of(["test"]))
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for method, path, body, status, answer in steps:
                where = path if path.startswith("/lookup") else f"/admin/v2{path}"
                response = await client.request(method, where, **({} if body is None else {"json": body}))
                said = f"{method} {path} {body}: {response.status_code} {response.text}"
                assert response.status_code == status, said
                if answer is ANY:
                    continue
                if answer is None:
                    assert response.content == b"", said
                elif isinstance(answer, str) and status >= 400:
                    assert response.json()["reason"] == answer, said
                elif response.headers["content-type"].startswith("text/plain"):
                    assert response.text == answer, said
                elif isinstance(answer, dict):
                    assert {key: response.json().get(key) for key in answer} == answer, said
                else:
                    assert response.json() == answer, said

    asyncio.run(main())

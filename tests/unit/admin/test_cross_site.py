"""A web page in a developer's browser reaches the HTTP port; it may not do anything there.

A cross-site `text/plain` POST with a foreign Origin and Host had declared a pipeline.  Every route is walked, so a new
one is held to the same.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.applications import Starlette

from magnetar.admin.access import Access
from magnetar.admin.app import METHODS, create_app
from magnetar.admin.guard import PROBES
from magnetar.base.metrics import Metrics
from magnetar.broker.broker import Broker

MakeBroker = Callable[[], Broker]
JSON = "application/json"
CHANGING = frozenset(METHODS) - {"GET"}

# What a browser sends for a page of another site without asking the server first (a CORS preflight): the "simple"
# requests, and those of forms, images and links.  A body without a type is a Blob's.
BODIES: Mapping[str, dict[str, str]] = {
    "fetch with a text": {"content-type": "text/plain;charset=UTF-8"},
    "a form": {"content-type": "application/x-www-form-urlencoded"},
    "a form with files": {"content-type": "multipart/form-data; boundary=x"},
    "fetch with a Blob without a type": {},
    "a type that only contains the right one": {"content-type": "text/plain; application/json"},
}
PAGES: Mapping[str, dict[str, str]] = {
    "a page": {"origin": "http://evil.example"},
    "a page on another port of this machine": {"origin": "http://localhost:3000"},
    "a sandboxed frame, or a page without referrers": {"origin": "null"},
    "an image or a link": {"sec-fetch-site": "cross-site"},
    "a page of a neighbouring name": {"sec-fetch-site": "same-site"},
}


def routes(app: Starlette) -> Iterator[tuple[str, str]]:
    """(method, a path that fits) of every route, those of the framework included."""
    for route in app.routes:
        path = re.sub(r"\{domain:domain\}", "persistent", getattr(route, "path", ""))
        path = re.sub(r"\{[^}]*\}", "x", path)
        for method in sorted(getattr(route, "methods", None) or {"GET"}):
            yield method, path


class Answer(NamedTuple):
    status: int
    body: bytes

    def __str__(self) -> str:
        return f"{self.status} {self.body.decode()}"


class Page:
    """Sends requests to an application as they are, without a client, which takes ten times as long as the answer."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> Answer:
        length = {} if content is None else {"content-length": str(len(content))}
        sent = {"host": "localhost:8080", **length, **headers}
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "server": ("localhost", 8080),
            "client": ("127.0.0.1", 4711),
            "root_path": "",
        }
        request = [{"type": "http.request", "body": content or b"", "more_body": False}]
        said: list[Any] = []

        async def receive() -> Any:
            return request.pop() if request else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            said.append(message)

        await self._app(scope, receive, send)
        return Answer(said[0]["status"], b"".join(message.get("body", b"") for message in said[1:]))


def walk(make_broker: MakeBroker, check: Callable[[Page, str, str], Any]) -> int:
    """`check(page, method, path)` for every route; how many there were."""

    async def main() -> int:
        app = create_app(make_broker().cases, Metrics())
        page, walked = Page(app), 0
        for method, path in routes(app):
            await check(page, method, path)
            walked += 1
        return walked

    return asyncio.run(main())


@pytest.mark.parametrize("headers", BODIES.values(), ids=BODIES)
def test_no_changing_route_takes_a_body_that_a_page_may_send_unasked(
    make_broker: MakeBroker, headers: dict[str, str]
) -> None:
    changing = []
    form = headers.get("content-type", "").startswith("multipart/form-data")

    async def check(page: Page, method: str, path: str) -> None:
        if method in CHANGING:
            if form and path.startswith("/admin/v3/functions/"):
                return  # see the next test
            answer = await page.ask(method, path, headers, b"{}")
            text = headers.get("content-type", "").startswith("text/plain")
            if method == "PUT" and text and path.endswith("/partitions"):
                return  # no page sends a PUT without asking, and Pulsar takes this one
            assert answer.status == 415, f"{method} {path}: {answer}"
            assert "application/json" in json.loads(answer.body)["reason"]
            changing.append(path)

    assert walk(make_broker, check) > 150
    assert len(changing) > 90


def test_a_form_with_files_is_taken_of_a_tool_and_not_of_a_browser_that_names_no_page(
    make_broker: MakeBroker,
) -> None:
    walked = []

    async def check(page: Page, method: str, path: str) -> None:
        if method in CHANGING and path.startswith("/admin/v3/functions/"):
            form = {"content-type": "multipart/form-data; boundary=x"}
            for agent, refused in (("Mozilla/5.0", True), ("Pulsar-Java-v4.0.8", False)):
                answer = await page.ask(method, path, {"user-agent": agent, **form}, b"--x--")
                assert (answer.status == 403) == refused, f"{method} {path}: {answer}"
            walked.append(path)

    walk(make_broker, check)
    assert len(walked) > 10


@pytest.mark.parametrize("headers", PAGES.values(), ids=PAGES)
def test_no_route_answers_a_page_of_another_site(make_broker: MakeBroker, headers: dict[str, str]) -> None:
    async def check(page: Page, method: str, path: str) -> None:
        bodies: tuple[tuple[bytes | None, dict[str, str]], ...] = (
            (None, {}),
            (b"{}", {"content-type": JSON}),
        )
        for content, described in bodies:
            answer = await page.ask(method, path, {**headers, **described}, content)
            assert answer.status == 403, f"{method} {path}: {answer}"

    walk(make_broker, check)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "", "a@localhost.evil", "[::1"],
)
def test_no_route_answers_under_a_name_that_is_not_the_servers(make_broker: MakeBroker, host: str) -> None:
    """DNS rebinding: for its browser the page and the server are of one origin."""

    async def check(page: Page, method: str, path: str) -> None:
        sent = {"host": host, "content-type": JSON}
        answer = await page.ask(method, path, sent, b"{}")
        if path in PROBES and method == "GET":
            assert answer.status != 403
        else:
            assert answer.status == 403, f"{method} {path}: {answer}"

    walk(make_broker, check)


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("LOCALHOST.:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("10.1.2.3", True),
        ("Broker.Example.com:8080", True),
        ("example.com", False),
        ("0x7f.1", False),
        ("2130706433", False),
        ("", False),
    ],
)
def test_a_host_is_told_by_the_names_of_the_server(host: str, known: bool) -> None:
    assert Access.of(["broker.example.com."]).takes_host(host) is known
    assert Access.of(["*"]).takes_host(host) is True


def ask(
    make_broker: MakeBroker,
    access: Access,
    method: str,
    path: str,
    headers: dict[str, str],
    content: bytes | None,
) -> httpx.Response:
    async def main() -> httpx.Response:
        broker = make_broker()
        await broker.namespaces.load({"public/default"})
        transport = httpx.ASGITransport(create_app(broker.cases, Metrics(), access=access))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
            return await client.request(method, path, content=content, headers=headers)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({"content-type": JSON}, b"{}"),
        ({"content-type": "Application/JSON; charset=utf-8"}, b"{}"),
        ({"content-type": "application/vnd.partitioned-topic-metadata+json"}, b"{}"),
        ({"content-type": JSON, "content-length": "0"}, b""),  # pulsar-admin's Entity.entity("", JSON)
        ({"content-length": "0"}, b""),  # curl -X PUT
        ({}, None),
        ({"content-type": JSON, "origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}, b"{}"),
        ({"sec-fetch-site": "none"}, None),  # typed into the address bar
    ],
)
def test_what_programs_send_is_taken(
    make_broker: MakeBroker, headers: dict[str, str], content: bytes | None
) -> None:
    response = ask(make_broker, Access(), "PUT", "/admin/v2/namespaces/public/new", headers, content)
    assert response.status_code == 204, response.text


def test_an_origin_that_is_allowed_may_ask_after_a_preflight(make_broker: MakeBroker) -> None:
    access = Access.of([], ["https://console.example.com/"])
    page = {"origin": "https://console.example.com", "sec-fetch-site": "cross-site"}
    wants = {"access-control-request-method": "PUT", "access-control-request-headers": "content-type"}
    path = "/admin/v2/namespaces/public/new"
    preflight = ask(make_broker, access, "OPTIONS", path, page | wants, None)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == page["origin"]
    answer = ask(make_broker, access, "PUT", path, page | {"content-type": JSON}, b"{}")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, page["origin"])
    other = ask(make_broker, access, "OPTIONS", path, {"origin": "https://evil.example"} | wants, None)
    assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)
    text = ask(make_broker, access, "PUT", path, page | {"content-type": "text/plain"}, b"{}")
    assert text.status_code == 415


def test_a_server_without_a_token_has_no_worker() -> None:
    assert not Access().is_worker("Bearer ")
    assert not Access().is_worker("")
    assert Access.of([], worker_token="x").is_worker("bearer x")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"user-agent": "Mozilla/5.0 (X11)"}, True),
        ({"user-agent": "Mozilla/5.0 (X11)", "sec-fetch-site": "cross-site"}, True),
        ({"user-agent": "Mozilla/5.0 (X11)", "sec-fetch-site": "none"}, False),
        ({"user-agent": "Pulsar-Java-v4.0.8"}, False),
        ({"user-agent": ""}, False),
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/persistent/public/default/t/partitions?checkAllowAutoCreation=true",
        "/admin/v2/persistent/public/default/t/partitions?check%41llowAutoCreation=true",
        "/admin/v2/brokers/backlog-quota-check",
    ],
)
def test_no_image_changes_anything_by_an_address_to_which_browsers_say_little(
    make_broker: MakeBroker, path: str, headers: dict[str, str], refused: bool
) -> None:
    """`<img src="http://0.0.0.0:8080/...">`: neither Origin nor Sec-Fetch-Site is sent, and a topic was made."""
    response = ask(make_broker, Access(), "GET", path, {"host": "0.0.0.0:8080", **headers}, None)
    assert (response.status_code == 403) is refused, response.text


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("PUT", {"content-type": "text/plain"}, 204),
        ("PUT", {"content-type": "text/plain", "origin": "http://evil.example"}, 403),
        ("PUT", {"content-type": "text/plain", "host": "evil.example"}, 403),
        ("POST", {"content-type": "text/plain"}, 415),
    ],
)
def test_the_number_of_partitions_may_be_text(
    make_broker: MakeBroker, method: str, headers: dict[str, str], status: int
) -> None:
    path = "/admin/v2/persistent/public/default/t/partitions"
    assert ask(make_broker, Access(), method, path, headers, b"3").status_code == status

"""Every route of a running server, asked as clients with and without the rights that it takes.

The rows are those of `tests/authorization/rest.txt`, the columns those of `book.py`; who may what is the rule book's
answer.  The first right of a row lets a client in; the others are asked for what the route finds, and leave it out.
"""

import re
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from magnetar.admin.login import METRICS, OPEN_PATHS, REQUIRED
from magnetar.broker.security.model import ResourceType, group_resource, subscription_resource
from tests.unit.admin.authorized_routes import ASKS_NOTHING, LISTS, ROWS, THERE, request

from .book import NAMESPACE, SUPER, TENANT, TOPIC, Book, Client, Right, lines
from .ruled import Ruled, running

pytestmark = pytest.mark.xdist_group("http's matrix")
BOOK: Final = Book(subscription_resource(TOPIC, THERE["name"]))
LINES: Final = lines("rest")
CASES: Final = [
    (route, list(BOOK.clients([frozenset({right}) for right in line.rights])))
    for route, line in LINES.items()
]
WORLD: Final = {**THERE, "tenant": TENANT, "namespace": NAMESPACE.partition("/")[2]}
REFUSED: Final = " is not authorized to "
# What a client that may not see all is not shown.
HIDDEN: Final = {ResourceType.TOPIC: TOPIC, ResourceType.SUBSCRIPTION: f'"{THERE["name"]}"'}


class World:
    """A server with what requests are about; connections to it are kept."""

    def __init__(self, ruled: Ruled) -> None:
        self.ruled = ruled
        self._kept: dict[str, httpx.Client] = {}

    def client(self, name: str) -> httpx.Client:
        if name not in self._kept:
            self._kept[name] = self.ruled.http(name)
        return self._kept[name]

    def ask(self, route: str, name: str) -> httpx.Response:
        asked = request(route, WORLD)
        return self.client(name).request(
            asked.method, asked.path, params=asked.params, headers=asked.headers, content=asked.content
        )

    def furnish(self) -> None:
        """All that requests are about, made anew where one has removed it."""
        self.ruled.administer(self.client(SUPER))
        for route in (
            "PUT /admin/v2/resourcegroups/{group}",
            "PUT /admin/v2/namespaces/{tenant}/{namespace}",
            "PUT /admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}",
            "PUT /admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/subscription/{name:path}",
            "POST /admin/v2/schemas/{tenant}/{namespace}/{topic}/schema",
            "POST /magnetar/v1/pipelines",
            "POST /admin/v3/{connector:connector}/{tenant}/{namespace}/{name}",
        ):
            made = self.ask(route, SUPER)
            is_there = made.status_code == httpx.codes.CONFLICT or "already exists" in made.text
            assert made.is_success or is_there, (route, made.text)

    def close(self) -> None:
        for one in self._kept.values():
            one.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running(BOOK) as ruled:
        made = World(ruled)
        try:
            made.furnish()
            yield made
        finally:
            made.close()


def lacking(route: str, name: str) -> list[Right]:
    """A path that names no topic and no namespace is about a subscription wherever it is: a group."""
    group = group_resource(THERE["name"]) if "{" not in route else None
    return [
        right
        for right in LINES[route].rights
        if not BOOK.allows(name, right, to=group if right[1] is ResourceType.SUBSCRIPTION else None)
    ]


def is_refused(route: str, response: httpx.Response) -> bool:
    if route in LISTS:
        return bool(response.json() == LISTS[route])
    if route in ROWS:
        return [row["error"] for row in response.json()["partitions"]] == ["TOPIC_NOT_AUTHORIZED"]
    return REFUSED in response.text


def test_every_route_that_the_server_has_has_a_row(world: World) -> None:
    paths = world.client(SUPER).get("/openapi.json").json()["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    rows = {re.sub(r":\w+}", "}", route) for route in LINES}
    untold = {re.sub(r":\w+}", "}", route) for route in ASKS_NOTHING} - served
    assert rows == served | untold
    assert {route.split()[1] for route in untold} == {"/openapi.json", "/admin/{path}"}


@pytest.mark.parametrize(("route", "clients"), CASES, ids=[route for route, _ in CASES])
def test_who_may(world: World, route: str, clients: list[Client]) -> None:
    """Those that may not come first: what they ask changes nothing."""
    line = LINES[route]
    for client in sorted(clients, key=lambda one: -len(lacking(route, one.name))):
        missing = lacking(route, client.name)
        answer = world.ask(route, client.name)
        about = client, answer.status_code, answer.text[:1000]
        assert answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR, about
        if line.rights and line.rights[0] in missing:
            assert is_refused(route, answer), about
            assert answer.status_code == line.status, about
            if answer.is_error:
                operation, kind = line.rights[0]
                assert f"User:{client.name}{REFUSED}{operation.name} {kind.value} " in answer.text, about
        elif missing:
            hidden = [HIDDEN.get(kind) for _, kind in missing]
            is_shown = any(one is None or one in answer.text for one in hidden)
            assert is_refused(route, answer) or not is_shown, about
        else:
            assert not is_refused(route, answer), about
            assert REQUIRED not in answer.text, about
        if line.changes and answer.is_success:
            world.furnish()


@pytest.mark.parametrize("route", LINES)
def test_a_client_that_shows_nothing_gets_nothing(world: World, route: str) -> None:
    answer = world.ask(route, "")
    path = route.partition(" ")[2]
    if path in OPEN_PATHS:
        assert answer.is_success
    else:
        assert answer.status_code == httpx.codes.UNAUTHORIZED
        assert (f"User:ANONYMOUS{REFUSED}" if path in METRICS else REQUIRED) in answer.text

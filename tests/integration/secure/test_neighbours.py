"""What a role learns, by any route, of a namespace beside its own: the same as of one that there is not."""

import http.client
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import pytest

from magnetar.admin.app import ROUTERS
from magnetar.server.token_tool import make_token
from tests.unit.admin.authorized_routes import ASKS_NOTHING, FLAGS, request

from .test_secure import Safe, properties

pytestmark = pytest.mark.timeout(300)

THERE: Final = {
    "tenant": "acme",
    "namespace": "house",
    "topic": "vault",
    "name": "billing",
    "group": "golden",
    "cluster": "standalone",
    "broker": "1",
}
MISSING: Final = {
    **THERE,
    "tenant": "zilch",
    "namespace": "nowhere",
    "topic": "nought",
    "name": "nonesuch",
    "group": "leaden",
}
ADMIN: Final = "admin"
NEIGHBOUR: Final = (
    "neighbour"  # administers a tenant, and may do everything with the topics of a namespace beside
)


class House:
    """The server, and requests to it by role, exactly as they are written."""

    def __init__(self, safe: Safe) -> None:
        self._safe = safe
        address = urlsplit(properties(safe.folder / "client.conf")["webServiceUrl"])
        assert address.hostname is not None
        assert address.port is not None
        self._address = address.hostname, address.port
        self._trusting = ssl.create_default_context(cafile=str(safe.folder / "ca.pem"))

    def ask(
        self,
        role: str,
        method: str,
        path: str,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        token = self._safe.token
        if role != ADMIN:
            token = make_token(role, "", (self._safe.folder / "token.key").as_uri(), None, None, [])
        connection = http.client.HTTPSConnection(*self._address, timeout=30, context=self._trusting)
        try:
            connection.request(method, path, content, {"authorization": f"Bearer {token}", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def make(self, method: str, path: str, content: str | None = None) -> None:
        headers = {} if content is None else {"content-type": "application/json"}
        status, said = self.ask(ADMIN, method, path, content, headers)
        assert status in (200, 201, 204), (method, path, status, said)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    safe = Safe(tmp_path_factory.mktemp("neighbours") / "data")
    with safe.server:
        one = House(safe)
        tenant = '{"adminRoles": [%s], "allowedClusters": ["standalone"]}'
        one.make("PUT", "/admin/v2/tenants/acme", tenant % "")
        one.make("PUT", "/admin/v2/tenants/other", tenant % f'"{NEIGHBOUR}"')
        for namespace in ("acme/house", "acme/garden", "other/place"):
            one.make("PUT", f"/admin/v2/namespaces/{namespace}", "{}")
        one.make("PUT", "/admin/v2/resourcegroups/golden", '{"publishRateInMsgs": 1000}')
        topic = "/admin/v2/persistent/acme/house/vault"
        one.make("PUT", topic, "{}")
        one.make("PUT", f"{topic}/subscription/billing")
        schema = '{"type": "STRING", "schema": "", "properties": {}}'
        one.make("POST", "/admin/v2/schemas/acme/house/vault/schema", schema)
        rights = '["produce", "consume", "functions", "sources", "sinks", "packages"]'
        one.make("POST", f"/admin/v2/namespaces/acme/garden/permissions/{NEIGHBOUR}", rights)
        yield one
        assert "Traceback" not in safe.server.log


def as_missing(said: bytes) -> bytes:
    """An answer about what is there, as it would be about what is not."""
    for word in ("tenant", "namespace", "topic", "name", "group"):
        said = said.replace(THERE[word].encode(), MISSING[word].encode())
    return said


def test_no_route_tells_a_neighbour_what_there_is(house: House) -> None:
    def ask(route: str, world: dict[str, str]) -> tuple[int, bytes]:
        asked = request(route, world)
        query = urlencode({**asked.params, **FLAGS})
        return house.ask(NEIGHBOUR, asked.method, f"{asked.path}?{query}", asked.content, asked.headers)

    def everything() -> list[Any]:
        paths = ("tenants", "namespaces/acme", "namespaces/acme/house", "persistent/acme/house")
        more = ("persistent/acme/house/vault/subscriptions", "schemas/acme/house/vault/schemas")
        found = [house.ask(ADMIN, "GET", f"/admin/v2/{path}") for path in (*paths, *more)]
        assert {status for status, _ in found} == {200}
        return found

    before = everything()
    routes = {
        f"{method} {one.path}"
        for router in ROUTERS
        for one in router.routes
        for method in one.methods or ()
        if method != "HEAD"
    }
    told = {}
    for route in sorted(routes - ASKS_NOTHING.keys()):
        there, missing = ask(route, THERE), ask(route, MISSING)
        if (there[0], as_missing(there[1])) != missing:
            told[route] = there, missing
    assert told == {}
    assert everything() == before

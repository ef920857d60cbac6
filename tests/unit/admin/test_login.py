"""Who may ask over HTTP where clients have to show who they are."""

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from magnetar.admin.access import Access
from magnetar.admin.app import create_app
from magnetar.base.clock import SystemClock
from magnetar.base.metrics import Metrics
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.jobs.function_model import new_function
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import (
    Caller,
    Credentials,
    Identity,
    Operation,
    Principal,
    Resource,
    ResourceType,
)
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.upkeep.health import Health
from magnetar.broker.usecases.cluster import WITHHELD
from magnetar.testing.audit import MemoryAudit
from magnetar.testing.metadata import MemoryMetadataStore

CLUSTERS = "/admin/v2/clusters"
PIPELINES = "/magnetar/v1/pipelines"
WORKER_TOKEN = "4f" * 32


def method(credentials: Credentials) -> Identity:
    if not credentials.data.startswith(b"good-"):
        raise AuthenticationFailed("no")
    return Identity(credentials.data[5:].decode())


class Noting:
    """Allows everything, or nothing, and knows who asked."""

    tells_hosts_apart = False

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.may = True
        self.audit = MemoryAudit(with_logins=True)
        self.functions: Functions  # of the broker
        self.health: Health  # of the broker

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        self.callers.append(str(caller.principal))
        return self.may

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return True


Scenario = Callable[[httpx.AsyncClient, Noting], Coroutine[Any, Any, None]]


def with_http(
    scenario: Scenario, anonymous_role: str = "", asks_for_metrics: bool = False, *, asks: bool = True
) -> None:
    async def main() -> None:
        rules = Noting()
        methods = {"token": method, "basic": method}
        authentication = Authentication(methods, anonymous_role, frozenset(["proxy"])) if asks else None
        no_ledgers: Any = None
        broker = Broker(
            BrokerSettings(functions_enabled=True),
            no_ledgers,
            MemoryMetadataStore(),
            SystemClock(),
            Nodes([Node(1)]),
            rules,
            authentication,
            audit=rules.audit.audit,
        )
        rules.functions, rules.health = broker.functions, broker.health
        access = Access.of(["test"], ["https://console.test"], WORKER_TOKEN, asks_for_metrics)
        transport = httpx.ASGITransport(create_app(broker.cases, Metrics(), access=access))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            await scenario(http, rules)

    asyncio.run(main())


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def basic(text: bytes) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text).decode()}"}


@pytest.mark.parametrize(
    "headers",
    [
        bearer("good-alice"),
        {"authorization": "bearer  good-alice"},
        {**bearer("good-alice"), "x-pulsar-auth-method-name": "token"},
        basic(b"good-alice"),
        {**basic(b"good-alice"), "x-pulsar-auth-method-name": "basic"},
    ],
)
def test_role_that_is_shown_is_the_caller(headers: dict[str, str]) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await http.get("/admin/v2/tenants", headers=headers)).status_code == 200
        assert set(rules.callers) == {"User:alice"}

    with_http(scenario)


@pytest.mark.parametrize("anonymous_role", ["", "nemo"])
@pytest.mark.parametrize(
    "path",
    [
        CLUSTERS,
        "/lookup/v2/topic/persistent/a/b/c",
        "/admin/v2/brokers/ready",
        "/nothing",
        "/openapi.json",
        "/",
        "//metrics",
        "/health/",
        "/HEALTH",
    ],
)
@pytest.mark.parametrize(
    "headers",
    [
        bearer("bad"),
        bearer(""),
        {"authorization": ""},
        {"authorization": "good-alice"},
        {"authorization": "Digest good-alice"},
        {"authorization": "Basic ???"},
        {**bearer("good-alice"), "x-pulsar-auth-method-name": "basic"},
        {"x-pulsar-auth-method-name": "token"},
        {**bearer("good-alice"), "x-original-principal": "bob"},
        {"x-original-principal": "bob"},
        bearer("é".encode().decode("latin-1")),
        bearer(WORKER_TOKEN[:-1]),
    ],
)
def test_others_are_refused_before_any_route(path: str, headers: dict[str, str], anonymous_role: str) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        response = await http.get(
            path, headers=[(name.encode(), text.encode()) for name, text in headers.items()]
        )
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == 'Bearer, Basic realm="Magnetar"'
        assert "Authentication required" in response.text
        assert "alice" not in response.text
        assert rules.callers == []

    with_http(scenario, anonymous_role)


def test_two_authorizations_are_none() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        headers = [("authorization", "Bearer good-alice"), ("authorization", "Bearer good-bob")]
        assert (await http.get(CLUSTERS, headers=headers)).status_code == 401

    with_http(scenario)


def test_refusal_has_the_form_that_the_client_takes() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        page = await http.get(CLUSTERS)
        assert page.headers["content-type"].startswith("text/html")
        document = (await http.get(CLUSTERS, headers={"accept": "application/json"})).json()
        assert (document["status"], document["message"]) == ("401", "Authentication required")
        own = await http.get(PIPELINES)
        assert own.json() == {"error": "AUTHENTICATION_REQUIRED", "reason": "Authentication required"}

    with_http(scenario)


def test_client_that_shows_nothing_has_the_anonymous_role() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await http.get("/admin/v2/tenants")).status_code == 200
        assert set(rules.callers) == {"User:nemo"}

    with_http(scenario, "nemo")


def test_proxy_speaks_for_its_client() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        headers = {**bearer("good-proxy"), "x-original-principal": "alice"}
        assert (await http.get("/admin/v2/tenants", headers=headers)).status_code == 200
        assert set(rules.callers) == {"User:alice"}
        assert (await http.get("/admin/v2/tenants", headers=bearer("good-proxy"))).status_code == 401
        rules.callers.clear()
        headers = {**bearer("good-alice"), "x-original-principal": "alice"}
        assert (await http.get("/admin/v2/tenants", headers=headers)).status_code == 200
        assert set(rules.callers) == {"User:alice"}

    with_http(scenario)


def test_probes_and_numbers_are_for_all_clients() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        for path in PROBES:
            assert (await http.get(path)).status_code in (200, 503)

    with_http(scenario)


@pytest.mark.parametrize(
    "shown", ["Bearer stolen", "Bearer magnetar-pipeline.p.stolen", "Basic stolen", "Other x"]
)
def test_a_probe_is_answered_whatever_it_shows(shown: str) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        for path in PROBES:
            assert (await http.get(path, headers={"authorization": shown})).status_code in (200, 503)
        assert rules.callers == []

    with_http(scenario)


PROBES = ("/health", "/ready", "/status.html")
SENTENCE = "persistent://acme/house/t 0 cannot be read from /data/segments/7"


async def told(http: httpx.AsyncClient, headers: dict[str, str]) -> list[str]:
    """What is said of a server of which a part fails, and another part has a note."""
    answers = [await http.get(path, headers=headers) for path in PROBES]
    if headers:
        answers += [
            await http.get(f"/admin/v2/brokers/{one}", headers=headers) for one in ("health", "ready")
        ]
    assert {answer.status_code for answer in answers} == {503}
    return [answer.text for answer in answers]


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({}, True),
        (bearer("stolen"), True),
        (bearer("magnetar-pipeline.p.stolen"), True),
        (bearer("good-eve"), False),
    ],
    ids=["shows nothing", "is refused", "is no pipeline", "may not describe the cluster"],
)
def test_strangers_learn_what_fails_and_not_why(headers: dict[str, str], may: bool) -> None:
    """Sentences name topics of any tenant, and files of the server."""

    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        rules.may = may
        rules.health.register("storage", lambda: SENTENCE)
        rules.health.note("topics", lambda: SENTENCE)
        shown = headers if headers == bearer("good-eve") else {}
        for text in [
            *await told(http, shown),
            *[(await http.get(one, headers=headers)).text for one in PROBES],
        ]:
            assert SENTENCE not in text
            assert WITHHELD in text
        found = (await http.get("/health", headers=headers)).json()
        assert (found["status"], found["checks"]["storage"]) == ("failing", WITHHELD)
        assert (found["checks"]["tasks"], found["notes"]) == (None, {"topics": WITHHELD})

    with_http(scenario)


@pytest.mark.parametrize("asks", [True, False], ids=["with logins", "without"])
def test_who_may_describe_the_cluster_learns_why(asks: bool) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        rules.health.register("storage", lambda: SENTENCE)
        rules.health.note("topics", lambda: SENTENCE)
        assert all(SENTENCE in text for text in await told(http, bearer("good-alice") if asks else {}))
        assert set(rules.callers) == {"User:alice" if asks else "User:ANONYMOUS"}

    with_http(scenario, asks=asks)


@pytest.mark.parametrize(("asks", "status"), [(False, 200), (True, 401)])
def test_numbers_are_asked_for_as_the_settings_say(asks: bool, status: int) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await http.get("/metrics")).status_code == status

    with_http(scenario, asks_for_metrics=asks)


def test_worker_is_known_by_its_own_token_at_its_own_paths_alone() -> None:
    """With it any route was a super user's."""

    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await lease(http)).status_code == 200
        for path in (PIPELINES, CLUSTERS, "/magnetar/v1/worker", "/magnetar/v1/workers", "/metrics/"):
            status = (await http.get(path, headers=bearer(WORKER_TOKEN))).status_code
            assert status == 401, path
        assert rules.callers == []

    with_http(scenario)


async def lease(http: httpx.AsyncClient) -> httpx.Response:
    body = {"worker": "w", "host": "here", "pid": 7, "place": "here:/data"}
    return await http.post("/magnetar/v1/worker/lease", json=body, headers=bearer(WORKER_TOKEN))


async def token_of(http: httpx.AsyncClient, name: str) -> str:
    """What the worker gets for the query of a pipeline."""
    body = {"worker": "w", "epoch": (await lease(http)).json()["epoch"], "pipelines": [name, "no"]}
    answer = await http.post("/magnetar/v1/worker/tokens", json=body, headers=bearer(WORKER_TOKEN))
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert list(answer.json()["tokens"]) == [name]
    token: str = answer.json()["tokens"][name]
    return token


async def declare(http: httpx.AsyncClient, role: str) -> None:
    body = {"name": "p", "kind": "table", "config": {"topics": "t"}}
    made = await http.post(PIPELINES, json=body, headers=bearer(f"good-{role}"))
    assert made.json()["owner"] == f"User:{role}"


def test_a_query_is_the_owner_of_its_pipeline_where_queries_ask_and_nobody_elsewhere() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        await declare(http, "alice")
        query = bearer(await token_of(http, "p"))
        rules.callers.clear()
        offsets = {"partitions": [{"topic": "t", "partition": 0}]}
        assert (await http.post("/magnetar/v1/offsets", json=offsets, headers=query)).status_code == 200
        assert (await http.get("/magnetar/v1/topics", headers=query)).status_code == 200
        assert set(rules.callers) == {"User:alice"}
        rules.callers.clear()
        for path in (
            PIPELINES,
            f"{PIPELINES}/p",
            CLUSTERS,
            "/metrics",
            "/magnetar/v1/worker",
            "/",
        ):
            assert (await http.get(path, headers=query)).status_code == 401, path
        again = await http.post("/magnetar/v1/worker/tokens", json={}, headers=query)
        assert again.status_code == 401
        assert (await http.delete(f"{PIPELINES}/p", headers=query)).status_code == 401
        assert rules.callers == []
        lines = [one for one in map(json.loads, rules.audit.raw) if one.get("method") == "pipeline"]
        assert {(one["result"], one.get("principal")) for one in lines} >= {("accepted", "User:alice")}
        assert {one.get("proxy") for one in lines if one["result"] == "accepted"} == {"pipeline p"}

    with_http(scenario)


def test_a_querys_token_that_is_no_good_makes_no_anonymous_client_of_it() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        await declare(http, "alice")
        good = await token_of(http, "p")
        rules.callers.clear()
        for token in (good[:-1], good + "x", good.replace(".", "..", 1), "magnetar-pipeline."):
            answer = await http.get("/magnetar/v1/topics", headers=bearer(token))
            assert (answer.status_code, rules.callers) == (401, []), token
        await http.delete(f"{PIPELINES}/p?force=true", headers=bearer("good-alice"))
        rules.callers.clear()
        assert (await http.get("/magnetar/v1/topics", headers=bearer(good))).status_code == 401
        assert rules.callers == []

    with_http(scenario, anonymous_role="nemo")


def test_a_query_shows_its_token_in_vain_or_not_also_where_clients_need_not_log_in() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await http.get("/magnetar/v1/topics")).status_code == 200
        await http.post(PIPELINES, json={"name": "p", "kind": "table", "config": {"topics": "t"}})
        good = await token_of(http, "p")
        assert (await http.get("/magnetar/v1/topics", headers=bearer(good))).status_code == 200
        await http.delete(f"{PIPELINES}/p?force=true")
        rules.callers.clear()
        for token in (good, "magnetar-pipeline."):
            assert (await http.get("/magnetar/v1/topics", headers=bearer(token))).status_code == 401
        assert rules.callers == []

    with_http(scenario, asks=False)


@pytest.mark.parametrize("asks", [True, False])
def test_a_functions_process_has_nothing_to_ask_over_http(asks: bool) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        config = {"className": "f.process", "inputs": ["in"]}
        function = new_function("public", "default", "f", config, "f.py", Principal("User", "alice"))
        token = rules.functions.let_in(await rules.functions.create(function, b"code")).decode()
        for path in ("/magnetar/v1/topics", CLUSTERS):
            assert (await http.get(path, headers=bearer(token))).status_code == 401
        assert rules.callers == []
        (line, *_) = map(json.loads, rules.audit.raw)
        assert (line["method"], line["result"]) == ("function", "refused")

    with_http(scenario, "nemo", asks=asks)


def test_browser_may_ask_for_leave_and_guard_stands_in_front() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        asks = {
            "origin": "https://console.test",
            "access-control-request-method": "GET",
            "access-control-request-headers": "authorization",
        }
        leave = await http.options(CLUSTERS, headers=asks)
        assert leave.status_code == 200
        assert "authorization" in leave.headers["access-control-allow-headers"]
        other = {**bearer("good-alice"), "origin": "https://evil.test"}
        assert (await http.get(CLUSTERS, headers=other)).status_code == 403
        refused = await http.get(CLUSTERS, headers={"origin": "https://console.test"})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (
            401,
            "https://console.test",
        )

    with_http(scenario)


def test_a_token_counts_for_the_numbers_where_none_is_asked_for() -> None:
    """Rules may let its role read them, and not a client without one."""

    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await http.get("/metrics", headers=bearer("good-alice"))).status_code == 200
        assert set(rules.callers) == {"User:alice"}
        assert (await http.get("/metrics", headers=bearer("bad"))).status_code == 401

    with_http(scenario)


def test_passwords_are_looked_at_one_in_each_pass_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    # A look takes a millisecond or two: a hundred connections with wrong ones made all others wait for 0.4 s.
    passes = 0
    looked: list[int] = []

    def note(credentials: Credentials) -> Identity:
        looked.append(passes)
        raise AuthenticationFailed("no")

    async def scenario(http: httpx.AsyncClient, _: Noting) -> None:
        def count() -> None:
            nonlocal passes
            passes += 1
            asyncio.get_running_loop().call_soon(count)

        count()
        asking = [http.get(CLUSTERS, headers=basic(b"admin:wrong")) for _ in range(20)]
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {401}
        assert len(set(looked)) == len(looked) == 20

    monkeypatch.setitem(globals(), "method", note)
    with_http(scenario)


def test_logins_are_in_the_audit_log_and_one_like_another_is_counted() -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        for _ in range(3):
            await http.get(CLUSTERS, headers={**bearer("good-alice"), "user-agent": "probe"})
        for headers in bearer("stolen"), {"authorization": "Basic stolen"}, {}:
            assert (await http.get(CLUSTERS, headers=headers)).status_code == 401
        assert (await http.get("/health")).status_code in (200, 503)
        assert b"stolen" not in b"".join(rules.audit.raw)
        lines = rules.audit.take()
        assert [(line["result"], line.get("method"), line.get("count", 1)) for line in lines] == [
            ("accepted", "token", 1),
            ("refused", "token", 1),
            ("refused", None, 1),
            ("refused", None, 1),
            ("accepted", "token", 2),
        ]
        assert (lines[0]["principal"], lines[0]["client"]) == ("User:alice", "probe")
        assert (lines[0]["door"], lines[0]["listener"]) == ("http", "http")

    with_http(scenario)

"""Pipelines as tools and their worker see them over HTTP."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.base.masking import HIDDEN
from magnetar.broker.jobs.model import LEASE_S

from .test_cross_site import routes
from .world import NAME, WORKER_TOKEN, World, run

P = "/magnetar/v1/pipelines"
W = "/magnetar/v1/worker"
ME = {"worker": "w", "host": "here", "pid": 7, "place": "here:/data"}


@pytest.mark.parametrize("text", ["1e999", "-1e999", "NaN", "Infinity", '"\\ud800"', '{"\\udfff": 1}'])
def test_what_could_not_be_answered_again_is_not_taken(tmp_path: Path, text: str) -> None:
    """One such config, and the worker got 500 for its orders: no pipeline ran any more."""

    async def scenario(world: World) -> None:
        content = f'{{"name": "a", "kind": "query", "config": {{"source": {{"x": {text}}}}}}}'
        headers = {"content-type": "application/json"}
        refused = await world.http.post(P, content=content, headers=headers)
        assert refused.status_code == 400, refused.text
        assert "not JSON" in refused.json()["reason"]
        tenant = f'{{"adminRoles": [{text}], "allowedClusters": ["standalone"]}}'
        refused = await world.http.put("/admin/v2/tenants/t", content=tenant, headers=headers)
        assert refused.status_code == 400, refused.text
        epoch = (await world.ask("POST", f"{W}/lease", ME))["epoch"]
        orders = await world.ask("POST", f"{W}/orders", {**ME, "epoch": epoch})
        assert orders["pipelines"] == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("depth", [300, 900])
def test_what_is_nested_too_deep_to_be_shown_is_not_taken(tmp_path: Path, depth: int) -> None:
    """One such config: its pipeline was declared, and answered with a traceback from then on."""

    async def scenario(world: World) -> None:
        deep = "[" * depth + "]" * depth
        content = f'{{"name": "a", "kind": "query", "config": {{"x": {deep}}}}}'
        refused = await world.http.post(P, content=content, headers={"content-type": "application/json"})
        assert refused.status_code == 400, refused.text
        assert (await world.ask("GET", P))["pipelines"] == []

    run(tmp_path, scenario)


def test_a_pipeline_from_its_declaration_to_its_end(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        made = await world.ask("POST", P, {"name": "a", "kind": "table", "config": {"topic": "t"}}, 201)
        assert (made["state"], made["desired"], made["run"]) == ("CREATED", "RUNNING", 1)
        lease = await world.ask("POST", f"{W}/lease", ME)
        assert lease == {"epoch": 1, "lease_s": LEASE_S, "bootstrap": "127.0.0.1:9092", "table_roots": []}
        me = {**ME, "epoch": lease["epoch"]}
        orders = await world.ask("POST", f"{W}/orders", me)
        (spec,) = orders["pipelines"]
        assert spec["config"] == {"topic": "t"}
        assert spec["subscription"] == "pipeline-a"
        again = await world.ask("POST", f"{W}/orders", {**me, "version": orders["version"]})
        assert again == {"version": orders["version"], "pipelines": None}

        status = {
            "lag": 3,
            "lag_s": 2.5,
            "rows": 10,
            "rows_per_second": 1.5,
            "batches": 4,
            "errors": 2,
            "restarts": 1,
            "last_error": "OSError: no such host",
        }
        report = {"id": spec["id"], "run": 1, "state": "RUNNING", "status": status}
        about = {"master": "local[2]"}
        await world.ask("POST", f"{W}/report", {**me, "pipelines": {"a": report}, "about": about}, 204)
        listed = await world.ask("GET", P)
        assert listed["pipelines"] == [
            {
                "name": "a",
                "kind": "table",
                "owner": "User:ANONYMOUS",
                "desired": "RUNNING",
                "state": "RUNNING",
                "reason": "",
                **{name: value for name, value in status.items() if name != "batches"},
                "bytes": 0,
            }
        ]
        assert listed["worker"]["about"] == about
        assert (await world.ask("GET", f"{P}/a"))["status"] == {**status, "bytes": 0}
        assert await world.ask("GET", f"{P}/a/stats") == {**status, "bytes": 0}
        assert (await world.ask("GET", W))["worker"]["pid"] == 7
        lines = (await world.ask("GET", "/metrics")).text.splitlines()
        assert {
            'magnetar_pipelines{state="RUNNING"} 1.0',
            'magnetar_pipeline_lag{pipeline="a"} 3.0',
            'magnetar_pipeline_lag_seconds{pipeline="a"} 2.5',
            'magnetar_pipeline_rows_total{pipeline="a"} 10.0',
            'magnetar_pipeline_bytes_total{pipeline="a"} 0.0',
            'magnetar_pipeline_batches_total{pipeline="a"} 4.0',
            'magnetar_pipeline_errors_total{pipeline="a"} 2.0',
            'magnetar_pipeline_restarts_total{pipeline="a"} 1.0',
        } <= set(lines)

        assert (await world.ask("PUT", f"{P}/a/restart"))["state"] == "STARTING"
        assert (await world.ask("PUT", f"{P}/a/stop"))["desired"] == "STOPPED"
        assert (await world.ask("PUT", f"{P}/a/start"))["run"] == 3
        await world.ask("DELETE", f"{P}/a", status=202)
        assert (await world.ask("GET", f"{P}/a"))["state"] == "DELETING"
        await world.ask(
            "POST", f"{W}/report", {**me, "pipelines": {"a": {**report, "state": "STOPPED"}}}, 204
        )
        await world.ask("GET", f"{P}/a", status=404)
        await world.ask("POST", f"{W}/end", me, 204)
        assert (await world.ask("GET", W)) == {"worker": None}

    run(tmp_path, scenario)


def test_bytes_are_counted_when_a_pipelines_position_moves(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        made = await world.ask("POST", P, {"name": "a", "kind": "table"}, 201)
        epoch = (await world.ask("POST", f"{W}/lease", ME))["epoch"]
        await world.publish(10)
        size = sum(info.size_bytes for info in world.partition.log.ledgers)

        async def move(subscription: str, offset: int) -> None:
            positions = [{"topic": NAME.full, "partition": 0, "offset": offset}]
            await world.ask(
                "POST", "/magnetar/v1/positions", {"subscription": subscription, "positions": positions}
            )

        async def count() -> int:
            report = {"id": made["id"], "run": 1, "state": "RUNNING"}
            body = {**ME, "epoch": epoch, "pipelines": {"a": report}}
            await world.ask("POST", f"{W}/report", body, 204)
            counted: int = (await world.ask("GET", f"{P}/a/stats"))["bytes"]
            return counted

        await move("pipeline-a", 2)  # it begins there: nothing was read
        await move("a", 0)
        await move("a", 10)  # another subscription, whose name is the pipeline's
        assert await count() == 0
        await move("pipeline-a", 7)
        assert await count() == pytest.approx(size / 2, abs=2)
        await move("pipeline-a", 7)
        await move("pipeline-a", 3)  # it does not move back
        await move("pipeline-a", 10)
        assert await count() == pytest.approx(size * 0.8, abs=2)
        await world.ask("DELETE", f"{P}/a?force=true", status=204)
        made.update(await world.ask("POST", P, {"name": "a", "kind": "table"}, 201))
        assert await count() == 0

    run(tmp_path, scenario)


def test_without_a_worker_a_pipeline_is_deleted_at_once(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{P}?start=false", {"name": "a", "kind": "table"}, 201)
        assert (await world.ask("GET", f"{P}/a"))["desired"] == "STOPPED"
        await world.ask("DELETE", f"{P}/a", status=204)
        assert (await world.ask("GET", P)) == {"pipelines": [], "worker": None}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", P, {"name": "a/b", "kind": "table"}, 422),
        ("POST", P, {"name": "a", "kind": "No Kind"}, 422),
        ("POST", P, {"kind": "table"}, 400),
        ("POST", P, {"name": "a", "kind": "table", "config": {"path": "/etc/cron.d/x"}}, 422),
        ("POST", P, {"name": 7, "kind": "table"}, 400),
        ("POST", P, {"name": "a", "kind": "table", "config": []}, 400),
        ("POST", P, {"name": "there", "kind": "table"}, 409),
        ("GET", f"{P}/no", None, 404),
        ("GET", f"{P}/no/stats", None, 404),
        ("PUT", f"{P}/no/start", None, 404),
        ("DELETE", f"{P}/no", None, 404),
        ("POST", f"{W}/lease", {**ME, "worker": "v", "place": "there:/data"}, 409),
        ("POST", f"{W}/lease", {**ME, "worker": "x" * 101}, 400),
        ("POST", f"{W}/lease", {**ME, "pid": True}, 400),
        ("POST", f"{W}/lease", {**ME, "place": "x" * 5001}, 400),
        ("POST", f"{W}/orders", {**ME, "epoch": 2}, 409),
        ("POST", f"{W}/orders", {**ME, "epoch": -1}, 400),
        ("POST", f"{W}/report", {**ME, "epoch": 1, "pipelines": {"there": {}}}, 422),
        ("POST", f"{W}/report", {**ME, "epoch": 1, "pipelines": []}, 400),
        ("POST", f"{W}/end", {**ME, "epoch": 2}, 409),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, method: str, path: str, body: Any, status: int
) -> None:
    async def scenario(world: World) -> None:
        made = await world.ask("POST", P, {"name": "there", "kind": "table"}, 201)
        await world.ask("POST", f"{W}/lease", ME)
        if body and isinstance(body.get("pipelines"), dict):
            body["pipelines"]["there"]["id"] = made["id"]
        answer = await world.ask(method, path, body, status)
        assert answer["reason"]
        assert "\n" not in answer["reason"]

    run(tmp_path, scenario)


SECRETS = {
    "topics": "t",
    "address": "s3://someone:pass-in-url@lake/table?sig=signed-part",
    "storage_options": {"AWS_SECRET_ACCESS_KEY": "key-of-the-store", "AWS_REGION": "region-of-mine"},
    "source": {"kafka.sasl.jaas.config": "password=in-a-line", "subscribe": "t"},
    "list": [{"api_token": "deep-token"}, {"key": 12345678}],
}
WORDS = (
    "pass-in-url",
    "signed-part",
    "key-of-the-store",
    "region-of-mine",
    "in-a-line",
    "deep-token",
    "12345678",
)


def test_secrets_of_a_configuration_are_for_the_worker_alone(tmp_path: Path) -> None:
    """Every route is walked, as a user and as a client that guesses the worker's name; `storage_options` was shown."""

    async def scenario(world: World) -> None:
        made = await world.ask("POST", P, {"name": "x", "kind": "table", "config": SECRETS}, 201)
        assert made["config"]["storage_options"] == {"AWS_SECRET_ACCESS_KEY": HIDDEN, "AWS_REGION": HIDDEN}
        assert made["config"]["topics"] == "t"
        me = {**ME, "epoch": (await world.ask("POST", f"{W}/lease", ME))["epoch"]}
        (spec,) = (await world.ask("POST", f"{W}/orders", me))["pipelines"]
        assert spec["config"] == SECRETS  # the worker needs them
        status = {"last": ["key-of-the-store was wrong"], "deep-token": 1}
        said = {
            "id": spec["id"],
            "run": 1,
            "state": "FAILED",
            "reason": "401 for pass-in-url",
            "status": status,
        }
        await world.ask("POST", f"{W}/report", {**me, "pipelines": {"x": said}, "about": {}}, 204)
        shown = await world.ask("GET", f"{P}/x")
        assert (shown["reason"], shown["status"]["last"]) == (f"401 for {HIDDEN}", [f"{HIDDEN} was wrong"])

        app: Any = world.http._transport.app  # type: ignore[attr-defined]
        answered = 0
        del world.http.headers["authorization"]
        for method, path in sorted(routes(app), key=lambda row: row[0] == "DELETE"):
            body = {**me, "version": "", "name": "y", "kind": "table", "config": {}}
            sent = {} if method == "GET" else {"json": body}
            answer = await world.http.request(method, path, **sent)  # type: ignore[arg-type]
            text = answer.text + str(answer.headers)
            assert not [word for word in (*WORDS, me["worker"] * 40) if word in text], (
                f"{method} {path}: {text}"
            )
            answered += answer.status_code < 400
        assert answered > 20

    run(tmp_path, scenario)


@pytest.mark.parametrize("what", ["lease", "orders", "report", "end"])
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", f"Bearer {WORKER_TOKEN[:-1]}", f"Basic {WORKER_TOKEN}", "Bearer \xff"],
)
def test_no_client_passes_for_the_worker_without_its_token(
    tmp_path: Path, what: str, authorization: str | None
) -> None:
    """Any client could take a free lease, and what GET showed was enough to pass for the holder."""

    async def scenario(world: World) -> None:
        held = {
            **ME,
            "epoch": (await world.ask("POST", f"{W}/lease", ME))["epoch"],
            "pipelines": {},
            "about": {},
        }
        shown = (await world.ask("GET", W))["worker"]
        assert shown == (await world.ask("GET", P))["worker"]
        assert not {"worker", "epoch", "place"} & set(shown)
        before = world.broker.pipelines.lease.holder
        sent = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
        world.http.headers = httpx.Headers(sent)
        answer = await world.ask("POST", f"{W}/{what}", held, 401)
        assert answer["error"] == "NOT_THE_WORKER"
        assert world.broker.pipelines.lease.holder is before

    run(tmp_path, scenario)


def test_what_was_masked_is_not_taken_for_the_secret(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        made = await world.ask("POST", P, {"name": "a", "kind": "table", "config": SECRETS}, 201)
        again = {"name": "b", "kind": "table", "config": made["config"]}
        answer = await world.ask("POST", P, again, 422)
        assert "give the secret itself" in answer["reason"]

    run(tmp_path, scenario)

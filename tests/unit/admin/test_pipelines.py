"""Pipelines as tools and their worker see them over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.worker_lease import LEASE_S

from .world import World, run

P = "/magnetar/v1/pipelines"
W = "/magnetar/v1/worker"
ME = {"worker": "w", "host": "here", "pid": 7, "place": "here:/data"}


def test_a_pipeline_from_its_declaration_to_its_end(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        made = await world.ask("POST", P, {"name": "a", "kind": "table", "config": {"topic": "t"}}, 201)
        assert (made["state"], made["desired"], made["run"]) == ("CREATED", "RUNNING", 1)
        lease = await world.ask("POST", f"{W}/lease", ME)
        assert lease == {"epoch": 1, "lease_s": LEASE_S, "bootstrap": "127.0.0.1:9092"}
        me = {**ME, "epoch": lease["epoch"]}
        orders = await world.ask("POST", f"{W}/orders", me)
        (spec,) = orders["pipelines"]
        assert spec["config"] == {"topic": "t"}
        assert spec["subscription"] == "pipeline-a"
        again = await world.ask("POST", f"{W}/orders", {**me, "version": orders["version"]})
        assert again == {"version": orders["version"], "pipelines": None}

        status = {"lag": 3, "rows": 10, "rows_per_second": 1.5}
        report = {"id": spec["id"], "run": 1, "state": "RUNNING", "status": status}
        about = {"master": "local[2]"}
        await world.ask("POST", f"{W}/report", {**me, "pipelines": {"a": report}, "about": about}, 204)
        listed = await world.ask("GET", P)
        assert listed["pipelines"] == [
            {"name": "a", "kind": "table", "desired": "RUNNING", "state": "RUNNING", "reason": "", **status}
        ]
        assert listed["worker"]["about"] == about
        assert (await world.ask("GET", f"{P}/a"))["status"] == status
        assert await world.ask("GET", f"{P}/a/stats") == status
        assert (await world.ask("GET", W))["worker"]["pid"] == 7
        lines = (await world.ask("GET", "/metrics")).text.splitlines()
        assert {
            'magnetar_pipelines{state="RUNNING"} 1.0',
            'magnetar_pipeline_lag{pipeline="a"} 3.0',
            'magnetar_pipeline_rows_total{pipeline="a"} 10.0',
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

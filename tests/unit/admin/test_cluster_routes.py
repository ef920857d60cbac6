"""Clusters, of which there is one, and settings that change while the server runs, as pulsar-admin asks for them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .world import Scenario, World, run

Play = Callable[[Scenario], None]
C = "/admin/v2/clusters"
B = "/admin/v2/brokers/configuration"


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "elsewhere", {"serviceUrl": "http://a:1"}, 404),
        ("POST", "standalone", {"serviceUrl": "http://elsewhere:1"}, 501),
        ("DELETE", "elsewhere", None, 404),
        ("DELETE", "standalone", None, 412),
        ("GET", "elsewhere/peers", None, 404),
        ("POST", "standalone/peers", [], 204),
        ("POST", "standalone/peers", ["elsewhere"], 412),
        ("POST", "standalone/peers", ["standalone"], 412),
        ("POST", "standalone/peers", {"a": 1}, 400),
        ("GET", "standalone/namespaceIsolationPolicies", None, 404),
        ("GET", "standalone/namespaceIsolationPolicies/one", None, 404),
        ("GET", "elsewhere/failureDomains", None, 404),
        ("POST", "standalone/failureDomains/one", {"brokers": []}, 501),
    ],
)
def test_what_there_is_no_second_cluster_for(
    play: Play, method: str, path: str, body: Any, status: int
) -> None:
    async def scenario(world: World) -> None:
        await world.ask(method, f"{C}/{path}", body, status)

    play(scenario)


def test_a_cluster_keeps_the_addresses_that_it_has(play: Play) -> None:
    async def scenario(world: World) -> None:
        addresses = await world.ask("GET", f"{C}/standalone")
        await world.ask("POST", f"{C}/standalone", {**addresses, "brokerClientTlsEnabled": False})
        assert await world.ask("GET", f"{C}/standalone") == addresses

    play(scenario)


def test_there_are_no_peers_and_no_failure_domains(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert (await world.ask("GET", f"{C}/standalone/peers")).content == b""
        assert await world.ask("GET", f"{C}/standalone/failureDomains") == {}

    play(scenario)


def test_settings_change_while_the_server_runs(play: Play) -> None:
    async def scenario(world: World) -> None:
        names = await world.ask("GET", B)
        assert "max.connections" in names
        assert await world.ask("GET", f"{B}/values") == {}
        await world.ask("POST", f"{B}/max.connections/7")
        await world.ask("POST", f"{B}/max.connections.per.ip.overrides/10.0.0.1:3,10.0.0.2:4")
        overrides = {"max.connections.per.ip.overrides": "10.0.0.1:3,10.0.0.2:4"}
        assert await world.ask("GET", f"{B}/values") == {"max.connections": "7", **overrides}
        assert world.broker.broker_configs.of_all()["max.connections"] == "7"
        await world.ask("DELETE", f"{B}/max.connections")
        assert await world.ask("GET", f"{B}/values") == overrides

    play(scenario)


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("POST", "data.dir/x", "Can't update non-dynamic configuration"),
        ("DELETE", "data.dir", "Can't delete non-dynamic configuration"),
        ("POST", "max.connections/many", "Invalid value many for configuration max.connections"),
    ],
)
def test_settings_that_cannot_be_changed(play: Play, method: str, path: str, reason: str) -> None:
    async def scenario(world: World) -> None:
        refusal = await world.ask(method, f"{B}/{path}", status=412)
        assert refusal["reason"].startswith(reason)

    play(scenario)

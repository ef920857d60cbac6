"""Replicators over HTTP: the paths, what they take, and what they answer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.masking import HIDDEN
from magnetar.broker.policy.model import Region

from .world import NAME, N, T, World, run

R = f"{N}/replicator"
BODY = {
    "replicatorPolicies": {
        "replicationProperties": {"bootstrap.servers": "kafka:9092", "ssl.ca.pem": "PEM"},
        "topicNameMapping": {"t": "copy"},
    },
    "authParamData": {"sasl.username": "u", "sasl.password": "a-well-kept-secret"},
}


def test_a_replicator_from_its_configuration_to_its_end(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert await world.ask("GET", R) == {}
        await world.ask("POST", f"{R}/Kafka/us-west1", BODY, 204)
        assert await world.ask("GET", R) == {
            "Kafka": {
                "us-west1": {
                    "replicationProperties": {"bootstrap.servers": "kafka:9092", "ssl.ca.pem": "PEM"},
                    "authParamStorePluginName": "sealed",
                    "topicNameMapping": {"t": "copy"},
                    "owner": "User:ANONYMOUS",
                    "hasCredentials": True,
                }
            }
        }
        await world.publish(3)
        (shown,) = (await world.ask("GET", f"{T}/replicator"))["Kafka"].values()
        assert shown.pop("pipeline").startswith("replicator.Kafka.us-west1.t-")
        assert shown == {
            "target": "copy",
            "subscription": "pulsar.repl.Kafka.us-west1",
            "state": "Starting",
            "lastError": "no worker runs: `magnetar worker` starts one",
            "msgBacklog": 3,
            "connectedConsumers": 0,
            "heldByDispatchRate": False,
            "msgRateOut": 0.0,
            "msgOutCounter": 0,
            "bytesOutCounter": 0,
            "lag": None,
            "lagSeconds": None,
            "errors": 0,
            "restarts": 0,
            "reportedMs": None,
        }
        for action, state in (("Stop", "Stopped"), ("start", "Starting"), ("Restart", "Starting")):
            await world.ask("POST", f"{T}/replicator/Kafka/{action}", {}, 204)
            assert (await world.ask("GET", f"{T}/replicator"))["Kafka"]["us-west1"]["state"] == state
        await world.subscribed("pulsar.repl.Kafka.us-west1")
        assert (await world.ask("GET", f"{T}/replicator"))["Kafka"]["us-west1"]["connectedConsumers"] == 1
        await world.ask("DELETE", f"{T}/replicator/Kafka?region=us-west1", status=204)
        assert await world.ask("GET", f"{T}/replicator") == {}
        await world.ask("PUT", f"{T}/replicator/Kafka", {}, 204)
        await world.ask("PUT", f"{T}/replicator/Kafka", {}, 400)
        await world.ask("DELETE", f"{R}/Kafka/us-west1", status=204)
        assert await world.ask("GET", R) == {}
        await world.ask("PUT", f"{T}/replicator/Kafka", {}, 404)

    run(tmp_path, scenario)


def test_a_replicators_consumer_does_not_keep_a_topic_from_being_deleted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{R}/Kafka/us-west1", BODY, 204)
        client = await world.subscribed("pulsar.repl.Kafka.us-west1")
        other = await world.subscribed("pulsar.repl.Kafka.elsewhere")
        await world.ask("DELETE", T, status=412)
        other.leave()
        await world.ask("DELETE", T, status=204)
        assert not client.is_closed
        assert await world.ask("GET", "/magnetar/v1/pipelines") == {"pipelines": [], "worker": None}

    run(tmp_path, scenario)


def test_no_answer_has_a_credential(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{R}/Kafka/us-west1", BODY, 204)
        for path in (R, f"{T}/replicator", "/magnetar/v1/pipelines", N):
            assert "well-kept" not in (await world.http.get(path)).text
        (row,) = (await world.ask("GET", "/magnetar/v1/pipelines"))["pipelines"]
        shown = await world.ask("GET", f"/magnetar/v1/pipelines/{row['name']}")
        assert shown["config"]["credentials"] == {"sasl.username": HIDDEN, "sasl.password": HIDDEN}
        assert not [line for line in world.door.audit.take() if "well-kept" in str(line)]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("Kinesis2/r", BODY, 412, "there is no replicator of the type 'Kinesis2'"),
        ("Kafka/a.b", BODY, 412, "the region 'a.b'"),
        ("Kafka/r", {"replicatorPolicies": []}, 400, "replicatorPolicies must be an object"),
        (
            "Kafka/r",
            {"replicatorPolicies": {"topicNameMapping": "t"}},
            400,
            "topicNameMapping must be an object",
        ),
        ("Kafka/r", {**BODY, "authParamData": "x"}, 400, "authParamData must be an object"),
        ("Kafka/r", {"replicatorPolicies": {"authParamStorePluginName": 7}}, 400, "must be a text"),
        ("Kafka/r", {}, 412, "must name 1 to 1000 topics"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    tmp_path: Path, path: str, body: Any, status: int, why: str
) -> None:
    async def scenario(world: World) -> None:
        assert why in (await world.ask("POST", f"{R}/{path}", body, status))["reason"]
        assert await world.ask("GET", R) == {}

    run(tmp_path, scenario)


def test_what_is_not_there_is_404(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("DELETE", f"{R}/Kafka/r", status=404)
        for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/Stop")):
            await world.ask(method, f"{T}/replicator/Kafka{path}", {}, 404)
            missing = T.replace("default/t", "default/missing")
            await world.ask(method, f"{missing}/replicator/Kafka{path}", {}, 404)
        await world.ask("GET", "/admin/v2/namespaces/public/none/replicator", status=404)
        await world.ask("POST", f"{T}/replicator/Kafka/Explode", {}, 412)
        await world.ask("GET", f"{T}-partition-0/replicator", status=405)

    run(tmp_path, scenario)


def test_a_property_that_may_be_secret_is_masked(tmp_path: Path) -> None:
    """A provider of another package may take it, where ours ask for credentials."""

    async def scenario(world: World) -> None:
        await world.ask("POST", f"{R}/Kafka/us-west1", BODY, 204)
        region = Region("Kafka", "us-west1")
        (config,) = world.broker.namespaces.replicators("public/default").values()
        other = replace(config, properties={"api.token": "a-well-kept-secret", "url": "http://u:pw@host"})
        await world.broker.namespaces.set_replicator("public/default", region, other)
        shown = (await world.ask("GET", R))["Kafka"]["us-west1"]["replicationProperties"]
        assert shown == {"api.token": HIDDEN, "url": f"http://{HIDDEN}@host"}

    run(tmp_path, scenario)


def test_each_change_is_in_the_audit_log_without_what_is_secret(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.door.audit.take()
        await world.ask("POST", f"{R}/Kafka/us-west1", BODY, 204)
        await world.ask("POST", f"{T}/replicator/Kafka/Stop", {}, 204)
        await world.ask("DELETE", f"{T}/replicator/Kafka", status=204)
        await world.ask("PUT", f"{T}/replicator/Kafka", {}, 204)
        await world.ask("DELETE", f"{R}/Kafka/us-west1", status=204)
        lines = world.door.audit.take()
        assert [(one["operation"], one["resource"]) for one in lines] == [
            ("replicator.add_config", "public/default"),
            ("replicator.update", NAME.full),
            ("replicator.deregister", NAME.full),
            ("replicator.register", NAME.full),
            ("replicator.remove_config", "public/default"),
        ]
        assert lines[0]["details"] == {"replicator": "Kafka", "region": "us-west1"}
        assert lines[1]["details"]["action"] == "Stop"

    run(tmp_path, scenario)

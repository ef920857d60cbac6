"""Linked topics over HTTP: the paths, what they take, and what they answer."""

import asyncio
from pathlib import Path
from typing import Any

from magnetar.admin.in_flight import OF_ONE_BYTES_MAX
from magnetar.admin.routes import links
from magnetar.broker.schemas.model import SchemaType
from magnetar.broker.security.model import ANONYMOUS, Principal
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand
from tests.unit.broker.linked_batches import copied
from tests.unit.broker.linked_entries import sent

from .world import N, World, run

L = "/magnetar/v1/links"
BYTES = {"content-type": "application/octet-stream"}
BODY: dict[str, Any] = {
    "source": "kafka://host:9092",
    "origin": "cluster/topic",
    "partitions": 2,
    "configs": {"retention.ms": "1000", "no.such": "1"},
}


PULSAR: dict[str, Any] = {"source": "pulsar://host:6650/a/b/c", "origin": "there", "partitions": 1}


async def send(world: World, query: str, content: bytes = b"", status: int = 200) -> Any:
    response = await world.http.post(f"{L}/orders/records?{query}", content=content, headers=BYTES)
    assert response.status_code == status, response.text
    return response.json()


def test_a_link_from_its_declaration_to_its_end(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert await world.ask("GET", L) == {"links": []}
        declared = await world.ask("PUT", f"{L}/orders", BODY)
        assert declared["partitions"] == [
            {"partition": index, "log_start": 0, "end": 0, "new": True, "position": None}
            for index in range(2)
        ]
        assert declared["left_out"].keys() == {"no.such"}
        assert await send(world, "partition=1&begin=40", bytes(copied(42, 2)) + bytes(copied(50))) == {
            "end": 51
        }
        assert await send(world, "partition=1&end=60") == {"end": 60}
        declared = await world.ask("PUT", f"{L}/persistent:%2F%2Fpublic%2Fdefault%2Forders", BODY)
        found = declared["partitions"][1]
        assert found == {"partition": 1, "log_start": 40, "end": 60, "new": False, "position": None}
        row = {"group": "g", "partition": 1, "offset": 45}
        done = await world.ask("POST", f"{L}/orders/positions", {"positions": [row, {**row, "partition": 7}]})
        assert [one["error"] for one in done["positions"]] == [None, "UNKNOWN_TOPIC_OR_PARTITION"]
        await world.ask("POST", f"{L}/orders/report", {"lag": 3, "error": "slow"}, 204)
        (shown,) = (await world.ask("GET", L))["links"]
        assert shown == {
            "topic": "persistent://public/default/orders",
            "source": "kafka://host:9092",
            "created_ms": world.door.clock.now_ms(),
            "lag": 3,
            "error": "slow",
            "reported_ms": world.door.clock.now_ms(),
        }
        await world.ask("DELETE", f"{L}/orders", status=204)
        assert await world.ask("GET", L) == {"links": []}
        refused = await send(world, "partition=1", bytes(copied(60)), 404)
        assert refused["error"] == "LINK_NOT_FOUND"
        refused = await world.ask("PUT", f"{L}/orders", BODY, 409)
        assert refused["error"] == "TOPIC_EXISTS"

    run(tmp_path, scenario)


def test_bad_requests_get_one_sentence_and_change_nothing(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        wrong: tuple[dict[str, Any], ...] = (
            {"partitions": 0},
            {"partitions": "1"},
            {"partitions": None},
            {"source": ""},
            {"source": "a\nb"},
            {"origin": "x" * 2000},
            {"configs": []},
            {"configs": {"a": 1}},
            {"configs": {str(number): "1" for number in range(300)}},
            {"partitioned": 1},
        )
        for bad in wrong:
            await world.ask("PUT", f"{L}/orders", {**BODY, **bad}, 400)
        assert world.broker.links.all() == []
        refused = await world.ask("PUT", f"{L}/t", BODY, 409)
        assert refused["error"] == "TOPIC_EXISTS"
        await world.ask("PUT", f"{L}/orders", BODY)
        assert (await send(world, "partition=0&end=-1", status=400))["error"] == "BAD_REQUEST"
        assert (await send(world, "end=1", status=400))["error"] == "BAD_REQUEST"
        assert (await send(world, "partition=2", status=404))["error"] == "UNKNOWN_TOPIC"
        assert (await send(world, "partition=0", b"no batch", 422))["error"] == "INVALID_RECORD"
        await send(world, "partition=0", bytes(copied(0, 5)))
        assert (await send(world, "partition=0", bytes(copied(4, 2)), 409))["error"] == "OFFSETS_DIFFER"
        assert (await send(world, "partition=0&after=6&end=7", b"", 409))["error"] == "OFFSETS_DIFFER"
        response = await world.http.post(
            f"{L}/orders/records?partition=0", content=b"x", headers={"content-type": "text/plain"}
        )
        assert response.status_code == 415
        response = await world.http.post(f"{L}/orders/report", content=b"x", headers=BYTES)
        assert response.status_code == 400
        assert (
            world.broker.topics.get(world.broker.kafka_topics.name("orders")).partition(0).log.next_offset
            == 5
        )

    run(tmp_path, scenario)


async def send_entries(world: World, query: str, content: bytes = b"", status: int = 200) -> Any:
    response = await world.http.post(f"{L}/orders/entries?{query}", content=content, headers=BYTES)
    assert response.status_code == status, response.text
    return response.json()


def test_a_link_to_a_cluster_of_pulsar_s(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        body = {**PULSAR, "partitioned": False}
        declared = await world.ask("PUT", f"{L}/orders", body)
        assert (declared["partitions"][0]["position"], declared["schemas"]) == (None, 0)
        assert await send_entries(world, "partition=0") == {"position": None}
        assert await send_entries(world, "partition=0", sent((5, 0), (5, 1))) == {"position": "5:1"}
        assert await send_entries(world, "partition=0&after=5:1", sent((6, 0))) == {"position": "6:0"}
        refused = await send_entries(world, "partition=0&after=6:1", sent((6, 2)), 409)
        assert refused["error"] == "OFFSETS_DIFFER"
        rows = [{"type": 4, "data": "IiI=", "properties": {"a": "b"}, "name": "n"}, None]
        added = await world.ask("POST", f"{L}/orders/schemas", {"first": 0, "schemas": rows})
        assert added == {"schemas": 2}
        row = {"subscription": "s", "partition": 0, "mark_delete": "5:-1", "acknowledged": [["5:0", "5:1"]]}
        wanted = {"subscriptions": [row, {**row, "partition": 7}]}
        done = await world.ask("POST", f"{L}/orders/subscriptions", wanted)
        assert [one["error"] for one in done["subscriptions"]] == [None, "UNKNOWN_TOPIC"]
        declared = await world.ask("PUT", f"{L}/orders", body)
        assert (declared["partitions"][0]["position"], declared["schemas"]) == ("6:0", 2)
        stats = await world.ask("GET", "/admin/v2/persistent/public/default/orders/stats")
        assert stats["subscriptions"]["s"]["msgBacklog"] == 2
        moved = {"subscriptions": [{**row, "mark_delete": "5:0"}]}
        await world.ask("POST", f"{L}/orders/subscriptions", moved)
        noted = [one["operation"] for one in world.door.audit.take() if one.get("resource") == "s"]
        assert noted == ["subscription.create", "subscription.skip"]

    run(tmp_path, scenario)


def test_bad_requests_about_entries_get_one_sentence_and_change_nothing(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{L}/orders", PULSAR)
        for query in ("after=5", "after=5:-2", "after=-1:0", "after=x:y", f"after=0:{1 << 63}"):
            assert (await send_entries(world, f"partition=0&{query}", status=400))["error"] == "BAD_REQUEST"
        refused = await send_entries(world, "partition=0", b"no entry", 422)
        assert refused["error"] == "INVALID_RECORD"
        for schemas in (None, 5, ["x"], [{"type": 99}], [{"type": "AVRO"}], [{"type": 4, "data": "?"}]):
            await world.ask("POST", f"{L}/orders/schemas", {"first": 0, "schemas": schemas}, 400)
        await world.ask("POST", f"{L}/orders/schemas", {"schemas": []}, 400)
        await world.ask(
            "POST", f"{L}/orders/schemas", {"first": 0, "schemas": [{"type": 4, "properties": []}]}, 400
        )
        row: dict[str, Any] = {"subscription": "s", "partition": 0, "mark_delete": "5:1"}
        for bad in (
            {"subscription": ""},
            {"mark_delete": None},
            {"mark_delete": "5:x"},
            {"acknowledged": [["5:1"]]},
            {"acknowledged": [["5:1", 7]]},
            {"acknowledged": "all"},
            {"properties": {"a": 1}},
        ):
            wanted = {"subscriptions": [{**row, **bad}]}
            await world.ask("POST", f"{L}/orders/subscriptions", wanted, 400)
        declared = await world.ask("PUT", f"{L}/orders", PULSAR)
        assert (declared["partitions"][0]["new"], declared["schemas"]) == (True, 0)

    run(tmp_path, scenario)


def test_a_producer_of_pulsar_is_refused_until_the_topic_is_cut_loose(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{L}/orders", BODY)
        client = await world.door.connected()
        topic = "persistent://public/default/orders-partition-0"
        refused = await client.ask(
            pb.CommandProducer(topic=topic, producer_id=1, request_id=1), BaseCommand.ERROR
        )
        assert refused.error == pb.NotAllowedError
        assert "linked" in refused.message
        await world.ask("DELETE", f"{L}/orders", status=204)
        command = pb.CommandProducer(topic=topic, producer_id=1, request_id=2)
        await client.ask(command, BaseCommand.PRODUCER_SUCCESS)

    run(tmp_path, scenario)


def test_a_linked_topic_has_the_schemas_of_its_source_alone(tmp_path: Path) -> None:
    """A schema that came first from a client here took the number that messages of the source name."""

    async def scenario(world: World) -> None:
        schemas = "/admin/v2/schemas/public/default/orders/schema"
        await world.ask("PUT", f"{L}/orders", {**PULSAR, "partitioned": False})
        client = await world.door.connected()
        topic = "persistent://public/default/orders"
        own = pb.Schema(name="String", schema_data=b"", type=pb.Schema.String)
        subscribe = pb.CommandSubscribe(
            topic=topic,
            subscription="s",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            request_id=1,
            schema=own,
        )
        await client.ask(subscribe, BaseCommand.SUCCESS)
        made = await client.ask(
            pb.CommandGetOrCreateSchema(topic=topic, request_id=2, schema=own),
            BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        )
        assert made.error_code == pb.NotAllowedError
        for number, name in enumerate((topic, f"non-{topic}"), 3):  # both of this name have one history
            command = pb.CommandProducer(topic=name, producer_id=number, request_id=number, schema=own)
            assert (await client.ask(command, BaseCommand.ERROR)).error == pb.NotAllowedError
        body = {"type": "STRING", "schema": "", "properties": {}}
        assert "linked" in (await world.ask("POST", schemas, body, 403))["reason"]
        rows = [{"type": SchemaType.INT32, "data": "", "properties": {}, "name": "n"}]
        assert await world.ask("POST", f"{L}/orders/schemas", {"first": 0, "schemas": rows}) == {"schemas": 1}
        for query in ("", "?force=true"):
            await world.ask("DELETE", schemas + query, status=403)
        assert (await world.ask("GET", schemas))["type"] == "INT32"
        await world.ask("DELETE", f"{L}/orders", status=204)
        assert await world.ask("DELETE", schemas) == {"version": 1}
        assert await world.ask("POST", schemas, body) == {"version": {"version": 2}}

    run(tmp_path, scenario)


def test_a_name_with_schemas_does_not_become_a_copy_whose_schemas_have_numbers(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        schemas = "/admin/v2/schemas/public/default/orders/schema"
        await world.ask("POST", schemas, {"type": "STRING", "schema": "", "properties": {}})
        refused = await world.ask("PUT", f"{L}/orders", PULSAR, 409)
        assert refused["error"] == "INCOMPATIBLE_SCHEMA"
        await world.ask("DELETE", schemas + "?force=true")
        assert (await world.ask("PUT", f"{L}/orders", PULSAR))["schemas"] == 0

    run(tmp_path, scenario)


async def passing(world: World, work: "asyncio.Future[Any]") -> Any:
    """Let time pass until the work is done."""
    while not work.done():
        await asyncio.sleep(0.005)
        world.door.clock.advance(0.5)
    return await work


def test_a_topics_publish_rate_holds_for_its_link(tmp_path: Path) -> None:
    """Who may make topics in a namespace wrote into it as much as it liked."""

    async def scenario(world: World) -> None:
        rate = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 0}
        await world.ask("POST", f"{N}/publishRate", rate, 204)
        await world.ask("PUT", f"{L}/orders", BODY)
        topic = world.broker.topics.get(world.broker.kafka_topics.name("orders"))
        first, second = topic.partition(0), topic.partition(1)
        await send(world, "partition=0&end=1000", bytes(copied(0, 30)))
        assert first.owed_s() == 2.0  # records count, and not the offsets of gaps
        await send(world, "partition=1", bytes(copied(0, 200)))
        assert second.owed_s() == 19.0
        work = asyncio.ensure_future(send(world, "partition=1", bytes(copied(200)), 503))
        assert (await passing(world, work))["error"] == "CROWDED"
        for _ in range(2):  # what is there already is dropped
            work = asyncio.ensure_future(send(world, "partition=1", bytes(copied(200))))
            assert await passing(world, work) == {"end": 201}
        world.door.clock.advance(60)
        await send(world, "partition=1", bytes(copied(0, 200)))
        assert second.owed_s() == 0
        await world.ask("PUT", f"{L}/more", {**PULSAR, "partitioned": False})
        entries = sent(*((5, number) for number in range(200)))
        for status in (200, 503):
            response = asyncio.ensure_future(
                world.http.post(f"{L}/more/entries?partition=0", content=entries, headers=BYTES)
            )
            assert (await passing(world, response)).status_code == status

    run(tmp_path, scenario)


def test_bodies_have_a_limit_each_and_together(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{L}/orders", BODY)
        await send(world, "partition=0", bytes(links.BATCHES_BYTES_MAX + 1), 413)
        ann, bob, me = (Principal("User", name) for name in ("ann", "bob", ANONYMOUS.name))
        half, appended = OF_ONE_BYTES_MAX, world.context.appended
        with appended.holding(ann, half):
            assert await send(world, "partition=0", bytes(copied(0))) == {"end": 1}
            with appended.holding(bob, half):
                assert (await send(world, "partition=0", bytes(copied(1)), 503))["error"] == "CROWDED"
        with appended.holding(me, half):
            assert (await send(world, "partition=0", bytes(copied(1)), 503))["error"] == "CROWDED"
        assert await send(world, "partition=0", bytes(copied(1))) == {"end": 2}
        assert not appended._sizes

    run(tmp_path, scenario)

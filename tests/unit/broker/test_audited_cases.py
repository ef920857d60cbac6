"""What use cases leave in the audit log besides one line for each request, and what they keep out of it.

Which verb has which line is in `tests/authorization/`.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.policy.errors import InvalidConfig, InvalidPolicy
from magnetar.broker.policy.model import AlterOperation, ConfigChange
from magnetar.broker.security.model import Caller, Principal
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.usecases.quotas import QuotaChange
from magnetar.broker.usecases.scram import ScramUpsertion
from magnetar.testing.pulsar import PulsarDoor, running_door
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

ALICE = Caller(Principal("User", "alice"), "10.0.0.9")
TOPIC = "persistent://public/default/t"
AVRO = pb.Schema(
    name="", type=pb.Schema.Avro, schema_data=b'{"type":"record","name":"R","fields":[],"doc":"secret-doc"}'
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[PulsarDoor], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[PulsarDoor], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with running_door(tmp_path) as door:
                await scenario(door)

        asyncio.run(main())

    return run


Run = Callable[[Callable[[PulsarDoor], Coroutine[Any, Any, None]]], None]


def subscribing(*, durable: bool, **fields: Any) -> pb.CommandSubscribe:
    values: dict[str, Any] = {
        "topic": TOPIC,
        "subscription": "s",
        "subType": "Shared",
        "consumer_id": 1,
        "request_id": 1,
    }
    return pb.CommandSubscribe(**values | fields, durable=durable)


def told(door: PulsarDoor, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(line.get(key) for key in keys) for line in door.audit.take()]


async def made(door: PulsarDoor, name: str = TOPIC) -> None:
    await door.broker.cases.pulsar_topics.create(ALICE, TopicName.parse(name))
    door.audit.take()


def test_a_topic_and_a_schema_that_come_with_a_client_have_lines_once(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        for number in (1, 2):
            client = await door.connected()
            command = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=number, schema=AVRO)
            await client.ask(command, BaseCommand.PRODUCER_SUCCESS)
        assert told(door, "operation", "resource", "details", "client") == [
            ("topic.create", TOPIC, {"automatic": True}, "test"),
            ("schema.add", TOPIC, {"version": 0}, "test"),
        ]
        client = await door.connected()
        subscribes = pb.CommandSubscribe(
            topic=f"{TOPIC}2", subscription="s", subType="Shared", consumer_id=1, request_id=1, schema=AVRO
        )
        await client.ask(subscribes, BaseCommand.SUCCESS)
        assert told(door, "operation", "resource") == [
            ("topic.create", f"{TOPIC}2"),
            ("schema.add", f"{TOPIC}2"),
            ("subscription.create", "s"),
        ]

    run(scenario)


def test_a_subscription_that_comes_with_a_consumer_has_a_line_once(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        for number in (1, 2):  # the second one joins it
            client = await door.connected()
            await client.ask(subscribing(durable=True, consumer_id=number), BaseCommand.SUCCESS)
        assert told(door, "operation", "result", "resource", "topic", "details", "client") == [
            ("subscription.create", "done", "s", TOPIC, {"automatic": True}, "test")
        ]
        client.leave()
        client = await door.connected()
        await client.ask(subscribing(durable=False, subscription="reader"), BaseCommand.SUCCESS)
        assert not door.audit.raw, "nothing is stored of a reader"

    run(scenario)


def test_a_subscription_that_comes_with_a_producer_has_a_line_once(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        for number in (1, 2):
            client = await door.connected()
            command = pb.CommandProducer(
                topic=TOPIC, producer_id=number, request_id=1, initial_subscription_name="dead"
            )
            await client.ask(command, BaseCommand.PRODUCER_SUCCESS)
        assert told(door, "operation", "resource", "topic", "details") == [
            ("subscription.create", "dead", TOPIC, {"automatic": True})
        ]

    run(scenario)


def test_a_subscription_that_is_made_for_a_consumer_who_has_no_room_has_a_line(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        await door.broker.namespaces.change("public/default", lambda _: {"max_consumers_per_topic": 1})
        client = await door.connected()
        await client.ask(subscribing(durable=True), BaseCommand.SUCCESS)
        door.audit.take()
        await client.ask(
            subscribing(durable=True, subscription="late", consumer_id=2, request_id=2), BaseCommand.ERROR
        )
        assert told(door, "operation", "resource") == [("subscription.create", "late")]

    run(scenario)


def test_a_topic_that_is_made_with_a_subscription_has_its_own_line(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        cases = door.broker.cases
        assert await cases.subscriptions.create(ALICE, TOPIC, "s")
        assert told(door, "operation", "resource", "topic") == [
            ("topic.create", TOPIC, None),
            ("subscription.create", "s", TOPIC),
        ]
        assert not await cases.subscriptions.create(ALICE, TOPIC, "s")
        assert not door.audit.take(), "it was there: nothing has changed"

    run(scenario)


def test_what_is_only_tried_out_has_no_line_but_a_failure_has(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        configs = door.broker.cases.configs
        good = [ConfigChange("retention.ms", AlterOperation.SET, "1000")]
        await configs.alter_topic(ALICE, "t", good, validate_only=True)
        assert not door.audit.take()
        await configs.alter_topic(ALICE, "t", good, validate_only=False)
        bad = [ConfigChange("retention.ms", AlterOperation.SET, "x")]
        with pytest.raises(InvalidConfig):
            await configs.alter_topic(ALICE, "t", bad, validate_only=False)
        assert told(door, "operation", "result", "error", "details") == [
            ("topic.configs", "done", None, {"set": {"retention.ms": "1000"}, "removed": []}),
            ("topic.configs", "failed", "INVALID_CONFIG", {"set": {"retention.ms": "x"}, "removed": []}),
        ]

    run(scenario)


def test_topics_of_one_request_have_a_line_each(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        topics = door.broker.cases.topics
        counts: Counter[str] = Counter()
        mutations = door.broker.cases.quotas.meter(ALICE, None).mutations(is_strict=True)
        planned = [
            topics.plan(ALICE, NewTopic(TopicName.parse(f"{TOPIC}{number}"), 3, 1), counts, mutations)
            for number in range(3)
        ]
        assert not door.audit.raw
        await topics.create(planned)
        assert told(door, "operation", "resource") == [
            ("topic.create", f"{TOPIC}{number}") for number in range(3)
        ]
        assert door.audit.handed_over_count == 3

    run(scenario)


def test_users_of_scram_are_named_without_what_they_log_in_by(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        wanted = [
            ScramUpsertion("bob", "SCRAM-SHA-256", 4096, b"SALT-SALT", b"SALTED-PASSWORD"),
            ScramUpsertion("eve", "SCRAM-SHA-256", 1, b"SALT-SALT", b"SALTED-PASSWORD"),
        ]
        await door.broker.cases.scram.alter(ALICE, [("SCRAM-SHA-256", "carol")], wanted)
        written = b"".join(door.audit.raw)
        assert b"SALT" not in written
        assert told(door, "operation", "resource_type", "resource", "result", "error") == [
            ("scram.delete", "user", "carol", "failed", "NOT_FOUND"),
            ("scram.set", "user", "bob", "done", None),
            ("scram.set", "user", "eve", "failed", "UNACCEPTABLE"),
        ]

    run(scenario)


def test_quotas_are_told_where_they_are_changed(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        changes = [
            QuotaChange([("user", None)], [("producer_byte_rate", 5.0), ("consumer_byte_rate", None)]),
            QuotaChange([("user", "bob")], [("producer_byte_rate", -5.0)]),
        ]
        quotas = door.broker.cases.quotas
        await quotas.alter(ALICE, changes, validate_only=True)
        assert not door.audit.take()
        await quotas.alter(ALICE, changes, validate_only=False)
        assert told(door, "operation", "resource_type", "result", "details") == [
            (
                "quotas.set",
                "cluster",
                "done",
                {
                    "entity": {"user": None},
                    "set": {"producer_byte_rate": 5.0},
                    "removed": ["consumer_byte_rate"],
                },
            ),
            (
                "quotas.set",
                "cluster",
                "failed",
                {"entity": {"user": "bob"}, "set": {"producer_byte_rate": -5.0}, "removed": []},
            ),
        ]

    run(scenario)


def test_policies_are_told_without_the_values_of_properties(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        cases = door.broker.cases
        policies = cases.policies
        namespace = "public/default"
        await policies.change_namespace(
            ALICE,
            namespace,
            lambda has: {**has, "message_ttl_in_seconds": 60, "properties": {"a": "value-a"}},
        )
        await policies.change_namespace(ALICE, namespace, lambda has: {**has, "message_ttl_in_seconds": None})
        await policies.add_topic_properties(ALICE, TopicName.parse(TOPIC), {"b": "value-b"})
        assert b"value-" not in b"".join(door.audit.raw)
        assert told(door, "operation", "details") == [
            (
                "namespace.policies",
                {"set": {"message_ttl_in_seconds": 60, "properties": ["a"]}, "removed": []},
            ),
            ("namespace.policies", {"set": {}, "removed": ["message_ttl_in_seconds"]}),
            ("topic.policies", {"properties": ["b"]}),
        ]

    run(scenario)


def test_offsets_from_outside_of_a_group_are_counted_and_those_of_members_are_not_told(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        offsets = door.broker.cases.offsets
        for _ in range(10):
            await offsets.commit(ALICE, CommitRequest("g", [OffsetToCommit(TOPIC, 0, 0)]))
        await offsets.commit(ALICE, CommitRequest("g", [OffsetToCommit(TOPIC, 0, 0)], "member", 1))
        assert told(door, "operation", "resource", "topic", "count") == [
            ("group.set_offsets", "g", TOPIC, None),
            ("group.set_offsets", "g", TOPIC, 9),
        ]

    run(scenario)


def test_a_pipeline_is_told_without_its_configuration(run: Run) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await made(door)
        config = {"topic": TOPIC, "options": {"password": "hunter2"}}
        await door.broker.cases.pipelines.create(ALICE, "p", "table", config, start=False)
        assert b"hunter2" not in b"".join(door.audit.raw)
        (line,) = [json.loads(one) for one in door.audit.raw]
        assert (line["operation"], line["resource_type"], line["details"]) == (
            "pipeline.create",
            "pipeline",
            {"kind": "table", "start": False},
        )

    run(scenario)


@pytest.mark.parametrize("properties", [5, ["value-a"], "value-a", {"value": {"a": ["value-a"]}}])
def test_policies_that_are_none_fail_as_they_would_without_a_log(run: Run, properties: Any) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]

    async def scenario(door: PulsarDoor) -> None:
        for policies in {"properties": properties}, {"retention_policies": deep}:
            with pytest.raises(InvalidPolicy):
                await door.broker.cases.namespaces.create(ALICE, "public/bad", policies)
        assert b"value-a" not in b"".join(door.audit.raw)
        for result, error in told(door, "result", "error"):
            assert result == "failed"
            assert error in ("INVALID_POLICY", "MALFORMED_POLICY")

    run(scenario)

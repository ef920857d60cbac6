"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords as a client sees them.

The codes and texts were compared with Apache Kafka 4.3.1's answers to the same requests.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from magnetar.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

Run = Callable[..., None]


async def create(
    client: Any, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> dict[str, CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), 1000, validate_only)
    response = await client.ask("create_topics", version, request)
    return {row.name: row for row in response.topics}


async def made(
    client: Any, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None
) -> Topic:
    topics = client.broker.topics
    new = NewTopic(client.broker.kafka_topics.name(name), partition_count, -1, None, configs or {})
    await topics.create([topics.plan(new)])
    found: Topic = topics.get(new.name)
    return found


def codes(rows: dict[str, Any]) -> dict[str, str]:
    return {name: ErrorCode(row.error_code).name for name, row in rows.items()}


def by_hand(*replicas: tuple[int, list[int]]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(index, nodes) for index, nodes in replicas]


def test_very_many_topics_leave_turns_to_others(with_broker: Run) -> None:
    """To check ten thousand, which a request may name, was one turn of the loop."""

    async def scenario(client: Any) -> None:
        names = [f"t{number}" for number in range(1_500)]
        before = client.service.large.turns
        rows = await create(client, *[CreatableTopic(name, 1, 1) for name in names], validate_only=True)
        assert client.service.large.turns - before == 15
        assert set(rows) == set(names)
        assert set(codes(rows).values()) == {"NONE"}

    with_broker(scenario)


def test_created_topic_comes_back_with_id_numbers_and_settings(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        configs = [CreatableTopicConfig("retention.ms", "1000")]
        row = (await create(client, CreatableTopic("t", -1, -1, [], configs)))["t"]
        topic = client.broker.topics.get(client.broker.kafka_topics.name("t"))
        assert (row.error_code, row.error_message) == (ErrorCode.NONE, None)
        assert row.topic_id == topic.topic_id
        assert (row.num_partitions, row.replication_factor) == (4, 1)
        assert row.configs is not None
        settings = {config.name: (config.value, config.config_source) for config in row.configs}
        assert settings["retention.ms"] == ("1000", 1)
        assert settings["cleanup.policy"] == ("delete", 5)
        assert topic.config.retention_ms == 1000

    with_broker(scenario, partition_count_default=4)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_and_refuses(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        assert codes(await create(client, CreatableTopic("t", 1, 1), version=version)) == {"t": "NONE"}
        again = await create(client, CreatableTopic("t", 1, 1), version=version)
        assert again["t"].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert again["t"].error_message == "Topic 't' already exists."
        assert again["t"].configs == []  # null would end the Java client

    with_broker(scenario)


def test_each_topic_of_a_request_is_judged_by_itself(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        rows = await create(
            client,
            CreatableTopic("good", 1, 1),
            CreatableTopic("bad name", 1, 1),
            CreatableTopic("", 1, 1),
            CreatableTopic("x" * 250, 1, 1),
            CreatableTopic("no-partitions", 0, 1),
            CreatableTopic("minus-two", -2, 1),
            CreatableTopic("no-replicas", 1, 0),
            CreatableTopic("three-replicas", 1, 3),
            CreatableTopic("unknown-config", 1, 1, [], [CreatableTopicConfig("nope", "1")]),
            CreatableTopic("bad-config", 1, 1, [], [CreatableTopicConfig("retention.ms", "x")]),
            CreatableTopic("null-config", 1, 1, [], [CreatableTopicConfig("retention.ms", None)]),
        )
        assert codes(rows) == {
            "good": "NONE",
            "bad name": "INVALID_TOPIC_EXCEPTION",
            "": "INVALID_TOPIC_EXCEPTION",
            "x" * 250: "INVALID_TOPIC_EXCEPTION",
            "no-partitions": "INVALID_PARTITIONS",
            "minus-two": "INVALID_PARTITIONS",
            "no-replicas": "INVALID_REPLICATION_FACTOR",
            "three-replicas": "INVALID_REPLICATION_FACTOR",
            "unknown-config": "INVALID_CONFIG",
            "bad-config": "INVALID_CONFIG",
            "null-config": "INVALID_CONFIG",
        }
        assert [topic.name.local for topic in client.broker.topics] == ["good"]
        assert all(row.error_message for name, row in rows.items() if name != "good")

    with_broker(scenario)


async def limit_topics(client: Any, limit: int) -> None:
    await client.broker.namespaces.change("public/default", lambda _: {"max_topics_per_namespace": limit})


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_namespace_takes_the_topics_of_a_request_for_which_it_has_room(
    with_broker: Run, validate_only: bool
) -> None:
    async def scenario(client: Any) -> None:
        await limit_topics(client, 5)
        rows = await create(
            client,
            CreatableTopic("three", 3, 1),
            CreatableTopic("three-more", 3, 1),
            CreatableTopic("two", -1, -1, by_hand((0, [1]), (1, [1]))),
            CreatableTopic("one", 1, 1),
            CreatableTopic("tenant/elsewhere/any", 9, 1),
            validate_only=validate_only,
        )
        assert codes(rows) == {
            "three": "NONE",
            "three-more": "POLICY_VIOLATION",
            "two": "NONE",
            "one": "POLICY_VIOLATION",
            "tenant/elsewhere/any": "NONE",
        }
        assert rows["one"].error_message == "Exceed maximum number of topics in namespace."
        assert rows["one"].topic_id == bytes(16)
        there = {topic.name.local for topic in client.broker.topics}
        assert there == (set() if validate_only else {"three", "two", "any"})

    with_broker(scenario)


def test_metadata_makes_no_topic_too_many(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await limit_topics(client, 3)
        wanted = [MetadataRequestTopic(name=name) for name in ("a", "b")]
        response = await client.ask("metadata", 12, MetadataRequest(wanted, True))
        assert codes({row.name: row for row in response.topics}) == {"a": "NONE", "b": "POLICY_VIOLATION"}
        again = await client.ask("metadata", 12, MetadataRequest(wanted[:1], True))
        assert codes({row.name: row for row in again.topics}) == {"a": "NONE"}
        assert [topic.name.local for topic in client.broker.topics] == ["a"]

    with_broker(scenario, partition_count_default=2)


def test_manual_assignments_are_checked_as_kafka_checks_them(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        rows = await create(
            client,
            CreatableTopic("good", -1, -1, by_hand((1, [2, 1]), (0, [1, 2]))),
            CreatableTopic("with-numbers", 1, 1, by_hand((0, [1]))),
            CreatableTopic("gap", -1, -1, by_hand((0, [1]), (2, [1]))),
            CreatableTopic("twice", -1, -1, by_hand((0, [1]), (0, [1]))),
            CreatableTopic("stranger", -1, -1, by_hand((0, [7]))),
            CreatableTopic("repeated", -1, -1, by_hand((0, [1, 1]))),
            CreatableTopic("empty", -1, -1, by_hand((0, []))),
            CreatableTopic("uneven", -1, -1, by_hand((0, [1]), (1, [1, 2]))),
        )
        refused = {name: code for name, code in codes(rows).items() if code != "INVALID_REPLICA_ASSIGNMENT"}
        assert refused == {"good": "NONE", "with-numbers": "INVALID_REQUEST"}
        topic = client.broker.topics.get(client.broker.kafka_topics.name("good"))
        assert topic.replicas == [[1, 2], [2, 1]]

    with_broker(scenario, node_count=2)


def test_topic_named_twice_is_refused_whatever_its_spelling(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        full = "persistent://public/default/u"
        rows = await create(
            client,
            CreatableTopic("t", 1, 1),
            CreatableTopic("t", 2, 1),
            CreatableTopic("u", 1, 1),
            CreatableTopic(full, 1, 1),
        )
        assert codes(rows) == dict.fromkeys(("t", "u", full), "INVALID_REQUEST")
        assert len(client.broker.topics) == 0

    with_broker(scenario)


def test_validate_only_answers_and_makes_nothing(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        rows = await create(client, CreatableTopic("t", 2, 1), CreatableTopic("u", 0, 1), validate_only=True)
        assert codes(rows) == {"t": "NONE", "u": "INVALID_PARTITIONS"}
        assert len(client.broker.topics) == 0

    with_broker(scenario)


def test_a_thousand_topics_are_one_commit(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        before = client.metadata.commit_count
        rows = await create(client, *(CreatableTopic(f"t{index}", 1, 1) for index in range(1000)))
        assert {row.error_code for row in rows.values()} == {ErrorCode.NONE}
        assert client.metadata.commit_count == before + 1
        assert len(client.broker.topics) == 1000

    with_broker(scenario)


def test_request_for_too_many_partitions_is_refused_whole(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        at_the_limit = await create(client, CreatableTopic("t", 10_000, 1), validate_only=True)
        assert codes(at_the_limit) == {"t": "NONE"}
        rows = await create(client, CreatableTopic("t", 10_000, 1), CreatableTopic("u", 1, 1))
        assert codes(rows) == {"t": "POLICY_VIOLATION", "u": "POLICY_VIOLATION"}

    with_broker(scenario)


def test_failed_commit_is_told_for_every_topic_of_it(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        client.metadata.fail_next = 1
        rows = await create(client, CreatableTopic("t", 1, 1), CreatableTopic("u", 0, 1))
        assert codes(rows) == {"t": "KAFKA_STORAGE_ERROR", "u": "INVALID_PARTITIONS"}
        assert len(client.broker.topics) == 0
        assert codes(await create(client, CreatableTopic("t", 1, 1))) == {"t": "NONE"}

    with_broker(scenario)


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


async def delete(client: Any, *states: DeleteTopicState, version: int = 6) -> list[tuple[str | None, str]]:
    request = DeleteTopicsRequest(list(states), [], 1000)
    if version < 6:
        request = DeleteTopicsRequest([], [state.name or "" for state in states], 1000)
    response = await client.ask("delete_topics", version, request)
    return [(row.name, ErrorCode(row.error_code).name) for row in response.responses]


@pytest.mark.parametrize("version", range(1, 7))
def test_deleted_by_name_in_every_version(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        answers = await delete(client, DeleteTopicState("t"), DeleteTopicState("nope"), version=version)
        assert answers == [("t", "NONE"), ("nope", "UNKNOWN_TOPIC_OR_PARTITION")]
        assert len(client.broker.topics) == 0

    with_broker(scenario)


def test_deleted_by_id_and_told_its_name(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        answers = await delete(
            client,
            DeleteTopicState(None, topic.topic_id),
            DeleteTopicState(None, b"\1" * 16),
            DeleteTopicState(None),
            DeleteTopicState("both", b"\2" * 16),
        )
        assert answers == [
            ("t", "NONE"),
            (None, "UNKNOWN_TOPIC_ID"),
            (None, "INVALID_REQUEST"),
            ("both", "INVALID_REQUEST"),
        ]

    with_broker(scenario)


def test_topic_named_by_name_and_id_at_once_stays(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        answers = await delete(client, DeleteTopicState("t"), DeleteTopicState(None, topic.topic_id))
        assert [code for _, code in answers] == ["INVALID_REQUEST", "INVALID_REQUEST"]
        assert await delete(client, DeleteTopicState("t"), DeleteTopicState("t")) == [
            ("t", "INVALID_REQUEST")
        ]
        assert len(client.broker.topics) == 1

    with_broker(scenario)


def test_committed_offsets_go_with_the_topic(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        key = CursorKey("group", topic.name.full, 0)
        await client.broker.cursors.commit({key: Cursor()})
        await delete(client, DeleteTopicState("t"))
        assert client.broker.cursors.get(key) is None

    with_broker(scenario)


def test_two_deletions_at_once_delete_once_and_spare_the_next_topic_of_that_name(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        client.metadata.hold()
        both = [asyncio.create_task(delete(client, DeleteTopicState("t"))) for _ in range(2)]
        await asyncio.sleep(0)
        client.metadata.release()
        answers = sorted([(await one)[0][1] for one in both])
        assert answers == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
        again = await made(client, "t")
        assert client.broker.topics.find(again.name) is again

    with_broker(scenario)


# --- CreatePartitions ------------------------------------------------------------------------------------------------


async def grow(
    client: Any, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> dict[str, tuple[str, Any]]:
    request = CreatePartitionsRequest(list(topics), 1000, validate_only)
    response = await client.ask("create_partitions", 3, request)
    return {row.name: (ErrorCode(row.error_code).name, row.error_message) for row in response.results}


def test_partitions_are_added_and_every_topic_is_answered(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        for name in ("t", "same", "fewer", "many"):
            await made(client, name, 3)
        answers = await grow(
            client,
            CreatePartitionsTopic("t", 5, None),
            CreatePartitionsTopic("same", 3, None),
            CreatePartitionsTopic("fewer", 1, None),
            CreatePartitionsTopic("many", 20_000, None),
            CreatePartitionsTopic("nope", 3, None),
        )
        assert answers == {
            "t": ("NONE", None),
            "same": ("INVALID_PARTITIONS", "Topic already has 3 partition(s)."),
            "fewer": (
                "INVALID_PARTITIONS",
                "The topic fewer currently has 3 partition(s); 1 would not be an increase.",
            ),
            "many": ("INVALID_PARTITIONS", "A topic has at most 10000 partitions, not 20000."),
            "nope": ("UNKNOWN_TOPIC_OR_PARTITION", "The topic nope does not exist."),
        }
        assert client.broker.topics.get(client.broker.kafka_topics.name("t")).partition_count == 5

    with_broker(scenario)


def test_new_partitions_can_be_assigned_by_hand(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", 1)

        async def assign(count: int, *nodes: list[int], validate_only: bool = False) -> str:
            wanted = CreatePartitionsTopic("t", count, [CreatePartitionsAssignment(one) for one in nodes])
            return (await grow(client, wanted, validate_only=validate_only))["t"][0]

        assert await assign(2, [9]) == "INVALID_REPLICA_ASSIGNMENT"
        assert await assign(2, []) == "INVALID_REPLICA_ASSIGNMENT"
        assert await assign(2, [1], [2]) == "INVALID_REPLICA_ASSIGNMENT"
        assert await assign(2, [1, 2]) == "INVALID_REPLICA_ASSIGNMENT"  # the topic has one replica each
        assert await assign(2, [2], validate_only=True) == "NONE"
        assert topic.partition_count == 1
        assert await assign(2, [2]) == "NONE"
        assert topic.replicas[1] == [2]

    with_broker(scenario, node_count=2)


def test_changes_of_one_topic_at_the_same_time_do_not_lose_one_another(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", 1)
        answers = await asyncio.gather(
            *(grow(client, CreatePartitionsTopic("t", count, None)) for count in (2, 3, 4))
        )
        assert [answer["t"][0] for answer in answers] == ["NONE", "NONE", "NONE"]
        assert topic.partition_count == 4

    with_broker(scenario)


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


async def delete_records(client: Any, topic: str, index: int, offset: int, **where: int) -> tuple[str, int]:
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])], 1000)
    row = (await client.ask("delete_records", 2, request, **where)).topics[0].partitions[0]
    return ErrorCode(row.error_code).name, row.low_watermark


def test_log_start_moves_to_any_offset_and_to_the_end(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        await client.append(topic.partition(0), 10)
        assert await delete_records(client, "t", 0, 4) == ("NONE", 4)  # inside a batch
        assert await delete_records(client, "t", 0, 2) == ("NONE", 4)  # never back
        assert topic.partition(0).log.log_start == 4
        assert await delete_records(client, "t", 0, 11) == ("OFFSET_OUT_OF_RANGE", -1)
        assert await delete_records(client, "t", 0, -2) == ("OFFSET_OUT_OF_RANGE", -1)
        assert await delete_records(client, "t", 0, -1) == ("NONE", 10)
        await client.append(topic.partition(0), 1)
        assert topic.partition(0).log.high_watermark == 11

    with_broker(scenario)


def test_records_are_deleted_where_the_partition_is_led_and_the_policy_allows(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        other = 3 - topic.replicas[0][0]
        leader = topic.replicas[0][0]
        assert (await delete_records(client, "t", 0, 0, node_id=other))[0] == "NOT_LEADER_OR_FOLLOWER"
        assert (await delete_records(client, "t", 1, 0, node_id=leader))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert (await delete_records(client, "u", 0, 0, node_id=leader))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
        compacted = await made(client, "c", configs={"cleanup.policy": "compact"})
        assert await delete_records(client, "c", 0, 0, node_id=compacted.replicas[0][0]) == (
            "POLICY_VIOLATION",
            -1,
        )

    with_broker(scenario, node_count=2)


def test_a_topic_that_was_made_under_an_internal_name_stays_what_it_is(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        rows = await create(client, CreatableTopic("__consumer_offsets", 1, 1))
        assert codes(rows) == {"__consumer_offsets": "NONE"}
        client.broker.kafka_topics.internal._in_use["__consumer_offsets"] = lambda: True
        client.broker.kafka_topics.internal._in_use["__transaction_state"] = lambda: True
        [shown] = client.broker.kafka_topics.internal.present()
        assert (shown.name.local, shown.is_internal) == ("__transaction_state", True)
        found = client.broker.kafka_topics.get("__consumer_offsets")
        assert (found.is_internal, found.partition_count) == (False, 1)
        await client.append(found.partition(0), 3)
        rows = await create(client, CreatableTopic("__transaction_state", 1, 1))
        assert codes(rows) == {"__transaction_state": "TOPIC_ALREADY_EXISTS"}
        assert [topic.name.local for topic in client.broker.topics] == ["__consumer_offsets"]

    with_broker(scenario)

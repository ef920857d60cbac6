"""What admin tools ask about the cluster; answers compared with Apache Kafka 4.3.1's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from magnetar.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from magnetar.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_producers import DescribeProducersRequest
from magnetar.wire.kafka.messages.describe_producers import TopicRequest as ProducersOf
from magnetar.wire.kafka.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from magnetar.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from magnetar.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

Run = Callable[..., None]


async def made(client: Any, name: str, partition_count: int = 1) -> Topic:
    topics = client.broker.topics
    new = NewTopic(client.broker.kafka_topics.name(name), partition_count)
    await topics.create([topics.plan(new)])
    found: Topic = topics.get(new.name)
    return found


@pytest.mark.parametrize("version", range(3))
def test_cluster_is_its_nodes(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        response = await client.ask("describe_cluster", version, DescribeClusterRequest())
        assert (response.cluster_id, response.controller_id) == ("abc", 1)
        assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [
            (1, "127.0.0.1", 9001),
            (2, "127.0.0.1", 9002),
        ]
        assert response.cluster_authorized_operations == -(1 << 31)
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await client.ask("describe_cluster", version, asked)
        assert response.cluster_authorized_operations == 8096  # a broker's without an authorizer

    with_broker(scenario, node_count=2, cluster_id="abc")


@pytest.mark.parametrize(
    ("kind", "code"), [(2, "MISMATCHED_ENDPOINT_TYPE"), (5, "UNSUPPORTED_ENDPOINT_TYPE")]
)
def test_only_brokers_can_be_asked_for(with_broker: Run, kind: int, code: str) -> None:
    async def scenario(client: Any) -> None:
        response = await client.ask("describe_cluster", 1, DescribeClusterRequest(endpoint_type=kind))
        assert ErrorCode(response.error_code).name == code
        assert response.error_message

    with_broker(scenario)


@pytest.mark.parametrize("version", range(3))
def test_quorum_is_the_controller_alone(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        asked = DescribeQuorumRequest(
            [
                DescribeQuorumTopic("__cluster_metadata", [DescribeQuorumPartition(n) for n in (0, 1)]),
                DescribeQuorumTopic("other", [DescribeQuorumPartition(0)]),
            ]
        )
        response = await client.ask("describe_quorum", version, asked)
        (metadata, beyond), (other,) = (topic.partitions for topic in response.topics)
        assert (metadata.error_code, metadata.leader_id) == (0, 1)
        assert [voter.replica_id for voter in metadata.current_voters] == [1]
        assert metadata.observers == []
        for row in (beyond, other):
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert row.current_voters == []
        nodes = [
            (node.node_id, [(each.host, each.port) for each in node.listeners]) for node in response.nodes
        ]
        assert nodes == ([(1, [("127.0.0.1", 9001)])] if version >= 2 else [])

    with_broker(scenario, node_count=2)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_show_stored_bytes_and_the_volume(with_broker: Run, tmp_path: Path, version: int) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", 2)
        await made(client, "u")
        await client.append(topic.partition(0), 10)

        async def sizes(wanted: list[DescribableLogDirTopic] | None) -> dict[tuple[str, int], int]:
            response = await client.ask("describe_log_dirs", version, DescribeLogDirsRequest(wanted))
            [directory] = response.results
            assert (directory.error_code, directory.log_dir) == (ErrorCode.NONE, str(tmp_path))
            if version >= 4:
                assert 0 < directory.usable_bytes <= directory.total_bytes
            return {
                (one.name, partition.partition_index): partition.partition_size
                for one in directory.topics
                for partition in one.partitions
            }

        stored = topic.partition(0).log.size_bytes
        assert stored > 0
        assert await sizes(None) == {("t", 0): stored, ("t", 1): 0, ("u", 0): 0}
        assert topic.opened(1) is None  # asking opens nothing
        unknown = DescribableLogDirTopic("nope", [0])
        assert await sizes([DescribableLogDirTopic("t", [0, 9]), unknown]) == {("t", 0): stored}
        assert await sizes([]) == {}

    with_broker(scenario)


def test_a_node_lists_the_replicas_it_has(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", 2)
        for node_id in (1, 2):
            response = await client.ask("describe_log_dirs", 4, DescribeLogDirsRequest(None), node_id)
            [row] = response.results[0].topics
            mine = [index for index, nodes in enumerate(topic.replicas) if node_id in nodes]
            assert [one.partition_index for one in row.partitions] == mine
            assert len(mine) == 1

    with_broker(scenario, node_count=2)


def test_replicas_stay_in_the_one_directory(with_broker: Run, tmp_path: Path) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")

        async def move(path: str, name: str, index: int) -> str:
            topics = [AlterReplicaLogDirTopic(name, [index])]
            request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, topics)])
            row = (await client.ask("alter_replica_log_dirs", 2, request)).results[0].partitions[0]
            return ErrorCode(row.error_code).name

        assert await move(str(tmp_path), "t", 0) == "NONE"
        assert await move(str(tmp_path), "t", 1) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await move(str(tmp_path), "u", 0) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await move("/elsewhere", "t", 0) == "LOG_DIR_NOT_FOUND"

    with_broker(scenario)


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------------

Page = tuple[dict[str, list[int]], tuple[str, int] | None]


async def page(
    client: Any, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Page:
    request = DescribeTopicPartitionsRequest(
        [TopicRequest(name) for name in names], limit, None if cursor is None else Cursor(*cursor)
    )
    response = await client.ask("describe_topic_partitions", 0, request)
    found = {row.name: [one.partition_index for one in row.partitions] for row in response.topics}
    after = response.next_cursor
    return found, None if after is None else (after.topic_name, after.partition_index)


def test_pages_follow_the_names_and_the_cursor(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "b", 3)
        await made(client, "a", 4)
        names = ["b", "nope", "a", "zzz"]
        assert await page(client, names) == ({"a": [0, 1, 2, 3], "b": [0, 1, 2], "nope": [], "zzz": []}, None)
        assert await page(client, names, 2) == ({"a": [0, 1]}, ("a", 2))
        assert await page(client, names, 2, ("a", 2)) == ({"a": [2, 3]}, ("b", 0))
        assert await page(client, names, 5) == ({"a": [0, 1, 2, 3], "b": [0]}, ("b", 1))
        assert await page(client, names, 2, ("b", 1)) == ({"b": [1, 2]}, ("nope", 0))
        assert await page(client, names, 2, ("a", 55)) == ({"a": [], "b": [0, 1]}, ("b", 2))
        assert await page(client, names, -3) == ({"a": [0]}, ("a", 1))
        assert await page(client, [], 3, ("aa", 0)) == ({"b": [0, 1, 2]}, None)

    with_broker(scenario)


def test_no_page_is_larger_than_the_limit(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t", 2001)
        found, after = await page(client, [], 1_000_000)
        assert len(found["t"]) == 2000
        assert after == ("t", 2000)

    with_broker(scenario)


@pytest.mark.parametrize("cursor", [("elsewhere", 0), ("t", -1)])
def test_bad_cursor_is_an_invalid_request_for_every_topic(with_broker: Run, cursor: tuple[str, int]) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        request = DescribeTopicPartitionsRequest([TopicRequest("t")], 10, Cursor(*cursor))
        [row] = (await client.ask("describe_topic_partitions", 0, request)).topics
        assert (row.error_code, row.partitions) == (ErrorCode.INVALID_REQUEST, [])

    with_broker(scenario)


def test_described_topic_has_id_leader_and_permissions(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        request = DescribeTopicPartitionsRequest([TopicRequest("t"), TopicRequest("bad name")], 10, None)
        bad, row = (await client.ask("describe_topic_partitions", 0, request)).topics
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (row.topic_id, row.topic_authorized_operations) == (topic.topic_id, 3576)
        [partition] = row.partitions
        assert partition.leader_id == topic.replicas[0][0]
        assert partition.isr_nodes == partition.replica_nodes == topic.replicas[0]
        assert partition.eligible_leader_replicas == partition.last_known_elr == []

    with_broker(scenario)


@pytest.mark.parametrize("version", [8, 10, 13])
def test_metadata_says_what_is_allowed_when_it_is_asked(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        names = [MetadataRequestTopic(name=name) for name in ("t", "bad name")]
        for wanted in (names, None):
            request = MetadataRequest(wanted, False, version <= 10, True)
            response = await client.ask("metadata", version, request)
            allowed = {row.name: row.topic_authorized_operations for row in response.topics}
            assert allowed == {"t": 3576} | ({} if wanted is None else {"bad name": -(1 << 31)})
            assert response.cluster_authorized_operations == (8096 if version <= 10 else -(1 << 31))
        silent = await client.ask("metadata", version, MetadataRequest(names))
        assert {row.topic_authorized_operations for row in silent.topics} == {-(1 << 31)}

    with_broker(scenario)


# --- producers, elections, reassignments -----------------------------------------------------------------------------


def test_idempotent_producers_are_shown_with_their_last_sequence(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        await client.append(topic.partition(0), 3)
        await client.append(topic.partition(0), 5, producer_id=77)
        request = DescribeProducersRequest([ProducersOf("t", [0, 9]), ProducersOf("bad name", [0])])
        described, refused = (await client.ask("describe_producers", 0, request)).topics
        here, nowhere = described.partitions
        [producer] = here.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 0, 4)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
        assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    with_broker(scenario)


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_ever_needed(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        wanted = [TopicPartitions("t", [0, 9]), TopicPartitions("nope", [0])]
        response = await client.ask("elect_leaders", version, ElectLeadersRequest(0, wanted, 1000))
        rows = [
            (result.topic, one.partition_id, ErrorCode(one.error_code).name)
            for result in response.replica_election_results
            for one in result.partition_result
        ]
        assert rows == [
            ("t", 0, "ELECTION_NOT_NEEDED"),
            ("t", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
            ("nope", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        everything = await client.ask("elect_leaders", version, ElectLeadersRequest(0, None, 1000))
        assert (everything.error_code, everything.replica_election_results) == (ErrorCode.NONE, [])

    with_broker(scenario)


def test_unknown_kind_of_election_is_an_invalid_request(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        request = ElectLeadersRequest(5, [TopicPartitions("t", [0])], 1000)
        response = await client.ask("elect_leaders", 2, request)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert (
            response.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST
        )

    with_broker(scenario)


def test_nothing_is_being_reassigned(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        request = ListPartitionReassignmentsRequest(1000, None)
        response = await client.ask("list_partition_reassignments", 0, request)
        assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, None, [])

    with_broker(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_can_be_asked_to_be_where_it_is_and_nowhere_else(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        here = list(topic.replicas[0])

        async def move(name: str, index: int, replicas: list[int] | None) -> str:
            topics = [ReassignableTopic(name, [ReassignablePartition(index, replicas)])]
            request = AlterPartitionReassignmentsRequest(topics=topics)
            response = await client.ask("alter_partition_reassignments", version, request)
            assert response.error_code == ErrorCode.NONE
            [answered] = response.responses
            [row] = answered.partitions
            assert (answered.name, row.partition_index) == (name, index)
            assert (row.error_message is None) is (row.error_code == ErrorCode.NONE)
            return ErrorCode(row.error_code).name

        assert await move("t", 0, here) == "NONE"
        assert await move("t", 0, [*here, 77]) == "INVALID_REPLICA_ASSIGNMENT"
        assert await move("t", 0, []) == "INVALID_REPLICA_ASSIGNMENT"
        assert await move("t", 0, None) == "NO_REASSIGNMENT_IN_PROGRESS"
        assert await move("t", 1, here) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await move("u", 0, None) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert list(topic.replicas[0]) == here

    with_broker(scenario)

"""What Kafka clients hear of a cluster of brokers: who leads, and that they have asked the wrong one."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.cluster.ownership.records import put_record, record_path
from magnetar.metadata.store import Versioned
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from magnetar.wire.kafka.messages.join_group import JoinGroupRequest
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .world import NAMESPACE, Cluster, Member, append, batch, cluster, run

T = "persistent://public/default/t"
P0 = f"{T}-partition-0"
NO_HINT = (-1, -1)


async def made(world: Cluster, partition_count: int = 1) -> tuple[Member, Member]:
    """A topic, the owner of its first partition, and another broker."""
    await world.brokers[0].make(T, partition_count)
    return world.owner(P0), world.other(P0)


async def produce(member: Member, version: int) -> tuple[Any, Any]:
    """The row of the partition, and the whole response."""
    data = PartitionProduceData(0, batch())
    topic = TopicProduceData("t", member.topic(T).topic_id, [data])
    response = await member.ask("produce", version, ProduceRequest(acks=-1, topic_data=[topic]))
    ((row,),) = [one.partition_responses for one in response.responses]
    return row, response


def fetching(member: Member, wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic("t", member.topic(T).topic_id, [wanted])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[topic])


async def fetch(member: Member, version: int, request: FetchRequest) -> tuple[Any, Any]:
    response = await member.ask("fetch", version, request)
    ((row,),) = [one.partitions for one in response.responses]
    return row, response


def hint(row: Any, response: Any) -> tuple[tuple[int, int], set[tuple[int, str, int]]]:
    """The leader that a row names, and the addresses of nodes."""
    named = row.current_leader
    leader = NO_HINT if named is None else (named.leader_id, named.leader_epoch)
    return leader, {(node.node_id, node.host, node.port) for node in response.node_endpoints}


def addresses(world: Cluster) -> set[tuple[int, str, int]]:
    return {(one.node.node_id, one.host, 9092) for one in world.brokers}


@run
async def test_metadata_names_the_owner_as_leader_and_the_generation_as_its_epoch() -> None:
    async with cluster(3) as world:
        await made(world, 8)
        leaders = set()
        for asked in world.brokers:
            response = await asked.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name="t")]))
            assert {(one.node_id, one.host, one.port) for one in response.brokers} == addresses(world)
            (topic,) = response.topics
            assert len(topic.partitions) == 8
            for row in topic.partitions:
                name = f"{T}-partition-{row.partition_index}"
                owner, record = world.owner(name), world.record(name)
                assert (row.error_code, row.leader_id, row.leader_epoch) == (
                    ErrorCode.NONE,
                    owner.node.node_id,
                    record.generation,
                )
                assert row.replica_nodes == row.isr_nodes == [owner.node.node_id]
                leaders.add(row.leader_id)
        assert len(leaders) > 1


@run
async def test_a_partition_whose_bundle_no_broker_owns_has_no_leader() -> None:
    async with cluster(2) as world:
        _, asked = await made(world)
        record = world.record(P0)
        put = put_record(record.bundle, "", record.generation)
        asked.seat.view.learn(record_path(record.bundle), Versioned(put.value, record.version + 1))
        response = await asked.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name="t")]))
        (row,) = response.topics[0].partitions
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        response = await asked.ask(
            "describe_topic_partitions", 0, DescribeTopicPartitionsRequest([TopicRequest("t")], 10)
        )
        (row,) = response.topics[0].partitions
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        row, response = await produce(asked, 12)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert hint(row, response) == (NO_HINT, set())


@run
async def test_an_owner_names_no_leader_while_its_bundle_goes() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        await append(owner.topic(T).partition(0))
        world.ledgers.automatic = False
        producing = asyncio.ensure_future(produce(owner, 12))
        await world.turn()
        await world.ask_to_hand_over(P0, other)
        await world.until(lambda: not owner.seat.serves(NAMESPACE, P0))
        response = await owner.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name="t")]))
        assert response.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        world.ledgers.automatic = True
        world.ledgers.write()
        row, _ = await producing
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 1)
        await world.settle()
        response = await owner.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name="t")]))
        assert response.topics[0].partitions[0].leader_id == other.node.node_id


@run
async def test_descriptions_of_partitions_name_the_owner_page_by_page() -> None:
    async with cluster(2) as world:
        await made(world, 3)
        request = DescribeTopicPartitionsRequest([TopicRequest("t")], 2)
        response = await world.brokers[1].ask("describe_topic_partitions", 0, request)
        for index, row in enumerate(response.topics[0].partitions):
            name = f"{T}-partition-{index}"
            assert row.leader_id == world.owner(name).node.node_id
            assert row.leader_epoch == world.record(name).generation
        assert response.next_cursor.partition_index == 2


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_batch_at_the_wrong_broker_is_refused_with_the_owner(version: int) -> None:
    @run
    async def scenario() -> None:
        async with cluster(2) as world:
            owner, other = await made(world)
            row, _ = await produce(owner, version)
            assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
            row, response = await produce(other, version)
            assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            if version >= 10:
                leader = (owner.node.node_id, world.record(P0).generation)
                assert hint(row, response) == (leader, addresses(world))
            assert owner.topic(T).partition(0).log.next_offset == 1

    scenario()


@pytest.mark.parametrize("version", [11, 12, 15, 16, 18])
def test_a_fetch_from_the_wrong_broker_is_refused_with_the_owner(version: int) -> None:
    @run
    async def scenario() -> None:
        async with cluster(2) as world:
            owner, other = await made(world)
            await append(owner.topic(T).partition(0))
            row, _ = await fetch(owner, version, fetching(owner))
            assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 1)
            row, response = await fetch(other, version, fetching(other, wait_ms=60_000))
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = (owner.node.node_id, world.record(P0).generation)
            if version >= 16:
                assert hint(row, response) == (leader, addresses(world))
            elif version >= 12:
                assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == leader

    scenario()


@run
async def test_offsets_are_looked_up_at_the_owner() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        await append(owner.topic(T).partition(0))
        request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
        for asked, code, offset in (
            (owner, ErrorCode.NONE, 1),
            (other, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ):
            (topic,) = (await asked.ask("list_offsets", 7, request)).topics
            assert (topic.partitions[0].error_code, topic.partitions[0].offset) == (code, offset)


@run
async def test_ends_of_epochs_are_asked_of_the_owner_and_each_generation_is_one() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        first = world.record(P0).generation
        await append(owner.topic(T).partition(0))
        await world.hand_over(P0, other)
        await append(other.topic(T).partition(0))

        async def end_of(asked: Member, epoch: int) -> tuple[int, int, int]:
            wanted = OffsetForLeaderPartition(0, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [wanted])])
            (topic,) = (await asked.ask("offset_for_leader_epoch", 4, request)).topics
            row = topic.partitions[0]
            return row.error_code, row.leader_epoch, row.end_offset

        assert await end_of(other, first) == (ErrorCode.NONE, first, 1)
        assert await end_of(other, first + 1) == (ErrorCode.NONE, first + 1, 2)
        assert (await end_of(owner, first))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@run
async def test_a_client_that_knows_an_older_generation_has_to_ask_again() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        generation = world.record(P0).generation
        await append(owner.topic(T).partition(0))
        await world.hand_over(P0, other)
        request = fetching(other)
        request.topics[0].partitions[0].current_leader_epoch = generation
        row, _ = await fetch(other, 15, request)
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert row.current_leader.leader_epoch == generation + 1


@run
async def test_a_fetch_that_waits_is_answered_when_its_partition_goes() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        await append(owner.topic(T).partition(0))
        waiting = asyncio.ensure_future(fetch(owner, 16, fetching(owner, wait_ms=10_000_000, offset=1)))
        await world.turn()
        assert not waiting.done()
        await world.hand_over(P0, other)
        await world.until(waiting.done)
        row, response = waiting.result()
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert hint(row, response) == (NO_HINT, set()), "the next owner was not known yet"
        row, response = await produce(owner, 12)
        assert hint(row, response)[0] == (other.node.node_id, world.record(P0).generation)
        row, _ = await produce(other, 12)
        assert row.base_offset == 1


@pytest.mark.parametrize("kind", [0, 1])
def test_groups_and_transactional_ids_have_no_coordinator_yet(kind: int) -> None:
    @run
    async def scenario() -> None:
        async with cluster(2) as world:
            for asked in world.brokers:
                request = FindCoordinatorRequest(key="g", key_type=kind)
                response = await asked.ask("find_coordinator", 3, request)
                assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                joined = await asked.ask("join_group", 5, JoinGroupRequest("g", 10_000, 10_000, ""))
                assert joined.error_code == ErrorCode.NOT_COORDINATOR

    scenario()


@run
async def test_nodes_are_the_brokers_that_are_alive() -> None:
    async with cluster(3) as world:
        first, second, third = world.brokers
        await world.end_session(third)
        response = await first.ask("metadata", 12, MetadataRequest([]))
        assert [one.node_id for one in response.brokers] == [1, 2]
        assert response.controller_id == 1
        first.seat.nodes.by_id[2].advertised.clear()  # it has not the listener of this client
        response = await first.ask("metadata", 12, MetadataRequest([]))
        assert [one.node_id for one in response.brokers] == [1]
        assert second.seat.nodes.by_id.keys() == {1, 2}

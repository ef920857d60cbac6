"""What clients of Pulsar 5 (V5) are told of topics, which are not scalable here: layouts, and when they change."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.lane import TEXTS_PER_PIECE
from magnetar.base.names import TopicName
from magnetar.broker.security.model import Caller, Operation, Resource
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.protocols.pulsar.handlers import scalable
from magnetar.protocols.pulsar.layouts import HASHES, UPDATE_DELAY_S, LayoutWatcher, hash_range
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

WithDoor = Callable[..., None]
TOPIC: Final = "persistent://public/default/t"
NAME: Final = TopicName.parse(TOPIC)
STREAM: Final = pb.CommandScalableTopicSubscribe.STREAM


async def looked_up(client: PulsarClient, topic: str = TOPIC, session_id: int = 1) -> Any:
    command = pb.CommandScalableTopicLookup(session_id=session_id, topic=topic)
    found = await client.ask(command, BaseCommand.SCALABLE_TOPIC_UPDATE)
    assert found.session_id == session_id
    return found


async def assigned(
    client: PulsarClient, topic: str = TOPIC, kind: "pb.CommandScalableTopicSubscribe.ConsumerType" = STREAM
) -> Any:
    command = pb.CommandScalableTopicSubscribe(
        request_id=3, topic=topic, subscription="s", consumer_name="c", consumer_id=7, consumer_type=kind
    )
    found = await client.ask(command, BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE)
    assert found.request_id == 3
    return found


def segments(dag: Any) -> list[tuple[int, int, int, str]]:
    assert all(one.state == pb.SegmentInfoProto.ACTIVE for one in dag.segments)
    return [(one.segment_id, one.hash_start, one.hash_end, one.legacy_topic_name) for one in dag.segments]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10_000, HASHES])
def test_ranges_have_each_hash_once_in_order(count: int) -> None:
    ranges = [hash_range(index, count) for index in range(count)]
    assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])]
    assert all(first <= last for first, last in ranges)
    assert ranges[-1][1] == HASHES - 1


@pytest.mark.parametrize(
    ("topic", "full"),
    [
        (TOPIC, TOPIC),
        ("t", TOPIC),
        (f"{TOPIC}-partition-2", f"{TOPIC}-partition-2"),
        ("persistent://public/default/new", "persistent://public/default/new"),
    ],
)
def test_what_is_not_partitioned_is_one_segment(with_door: WithDoor, topic: str, full: str) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, 3 if "partition" in topic else 0)
        found = await looked_up(await door.connected(), topic)
        assert not found.HasField("error")
        assert found.resolved_topic_name == full.replace("persistent://", "topic://")
        assert found.dag.epoch == 0
        assert segments(found.dag) == [(0, 0, 65535, full)]

    with_door(scenario)


def test_each_partition_is_a_segment_of_its_number(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, 2)
        client = await door.connected()
        found = await looked_up(client)
        assert segments(found.dag) == [
            (0, 0, 32767, NAME.partition_name(0)),
            (1, 32768, 65535, NAME.partition_name(1)),
        ]
        stream = await assigned(client)
        assert [one.segment_topic for one in stream.assignment.segments] == [
            NAME.partition_name(0),
            NAME.partition_name(1),
        ]
        assert found.dag.epoch == stream.assignment.layout_epoch == 2

    with_door(scenario)


def test_the_client_is_told_that_it_may_ask(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        connected = await door.client().connect()
        assert connected.feature_flags.supports_scalable_topics
        assert connected.feature_flags.supports_tc_metadata_discovery

    with_door(scenario)


def test_a_long_layout_is_one_message_with_turns_of_the_loop_in_it(with_door: WithDoor) -> None:
    count = 2 * TEXTS_PER_PIECE + 1

    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, count)
        client = await door.connected()
        before = door.service.lane.pieces
        client.say(pb.CommandScalableTopicLookup(session_id=1, topic=TOPIC))
        await door.service.tasks.ended()
        assert door.service.lane.pieces - before > 2
        ((_, found, _),) = client.received
        assert [one.legacy_topic_name for one in found.dag.segments] == [
            NAME.partition_name(index) for index in range(count)
        ]
        assert found.dag.epoch == count

    with_door(scenario)


def test_partitions_that_are_added_are_told_once(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, 1)
        client = await door.connected()
        await looked_up(client)
        await assigned(client)
        await door.broker.pulsar_topics.create(TopicName.parse(f"{TOPIC}-other"), 3)
        await door.broker.pulsar_topics.grow(NAME, 2)
        await door.broker.pulsar_topics.grow(NAME, 3)
        client.received.clear()
        door.clock.advance(UPDATE_DELAY_S)
        await door.service.tasks.ended()
        by_kind = {kind: body for kind, body, _ in client.received}
        assert len(client.received) == len(by_kind) == 2
        layout = by_kind[BaseCommand.SCALABLE_TOPIC_UPDATE]
        assert (layout.session_id, layout.dag.epoch, len(layout.dag.segments)) == (1, 3, 3)
        stream = by_kind[BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE]
        assert (stream.consumer_id, len(stream.assignment.segments)) == (7, 3)

    with_door(scenario)


class Rules:
    """An authorizer that allows everything, until it denies everything."""

    denies = False

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return not self.denies


@pytest.mark.parametrize("end", ["close", "leave", "right"])
def test_nothing_is_told_any_more_behind_the_end(with_door: WithDoor, end: str) -> None:
    rules = Rules()

    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, 1)
        client = await door.connected()
        await looked_up(client)
        client.received.clear()
        match end:
            case "close":
                client.say(pb.CommandScalableTopicClose(session_id=1))
            case "leave":
                client.leave()
            case _:
                rules.denies = True
        await door.broker.pulsar_topics.grow(NAME, 2)
        door.clock.advance(UPDATE_DELAY_S)
        await door.service.tasks.ended()
        assert not client.received
        assert len(door.broker.topics.observers) == (end == "right")

    with_door(scenario, authorizer=rules)


def test_other_topics_cost_who_watches_a_layout_nothing(
    with_door: WithDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client may watch ten thousand layouts, and all of them heard of every topic in one turn of the loop."""
    heard: list[list[str]] = []

    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, 1)
        client = await door.connected()
        monkeypatch.setattr(LayoutWatcher, "changed", lambda self, gone, came: heard.append(came))
        await looked_up(client)
        for other in (f"{NAME.local}2", f"{NAME.local}-partition-x", "u"):
            name = TopicName(NAME.tenant, NAME.namespace, other)
            await door.broker.pulsar_topics.create(name, 2)
            await door.broker.pulsar_topics.delete(name)
        assert heard == []
        await door.broker.pulsar_topics.grow(NAME, 2)
        assert heard == [[NAME.partition_name(1)]]

    with_door(scenario)


def test_a_change_while_the_first_answer_is_made_is_told_behind_it(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(NAME, 1)
        client = await door.connected()
        async with door.service.lane.piece():  # the answer waits for its turn
            client.say(pb.CommandScalableTopicLookup(session_id=1, topic=TOPIC))
            await asyncio.sleep(
                0
            )  # a turn of the loop: partitions are counted, and the layout is to be encoded
            assert len(door.broker.topics.observers) == 1
            await door.broker.pulsar_topics.grow(NAME, 2)
        await door.service.tasks.ended()
        door.clock.advance(UPDATE_DELAY_S)
        await door.service.tasks.ended()
        assert [body.dag.epoch for _, body, _ in client.received] == [1, 2]

    with_door(scenario)


def test_a_look_up_that_is_closed_at_once_leaves_nothing(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(pb.CommandScalableTopicLookup(session_id=1, topic=TOPIC))
        client.say(pb.CommandScalableTopicClose(session_id=1))
        await door.service.tasks.ended()
        assert not client.received
        assert len(door.broker.topics.observers) == 0

    with_door(scenario)


def test_what_a_look_up_creates_is_not_told_twice(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        policy = {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 2,
        }
        await door.broker.namespaces.change(
            "public/default", lambda policies: {**policies, "autoTopicCreationOverride": policy}
        )
        client = await door.connected()
        assert (await looked_up(client)).dag.epoch == 2
        client.received.clear()
        door.clock.advance(UPDATE_DELAY_S)
        await door.service.tasks.ended()
        assert not client.received

    with_door(scenario)


@pytest.mark.parametrize(
    ("topic", "error", "text"),
    [
        (
            "topic://public/default/t",
            ServerError.TopicNotFound,
            "Scalable topic not found: topic://public/default/t",
        ),
        ("non-persistent://public/default/t", ServerError.NotAllowedError, "non-persistent"),
        ("persistent://public/missing/t", ServerError.TopicNotFound, "Namespace not found"),
        (f"{TOPIC}-partition-0", ServerError.TopicNotFound, "not found"),
        ("a/b", ServerError.InvalidTopicName, "a/b"),
    ],
)
def test_what_cannot_be_used_is_refused_in_the_answer(
    with_door: WithDoor, topic: str, error: int, text: str
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for found in (await looked_up(client, topic), await assigned(client, topic)):
            assert found.error == error
            assert text in found.message
        assert not client.session.layouts
        assert len(door.broker.topics.observers) == 0

    with_door(scenario)


def test_a_group_of_checkpoint_consumers_is_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        found = await assigned(await door.connected(), kind=pb.CommandScalableTopicSubscribe.CHECKPOINT)
        assert found.error == ServerError.NotAllowedError

    with_door(scenario)


def test_a_client_that_wants_the_scalable_topics_of_a_namespace_is_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        command = pb.CommandWatchScalableTopics(watch_id=5, namespace="public/default")
        found = await client.ask(command, BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE)
        assert (found.watch_id, found.error) == (5, ServerError.NotAllowedError)
        client.say(pb.CommandWatchScalableTopicsClose(watch_id=5))
        client.say(pb.CommandPing())
        await client.hear(BaseCommand.PONG)

    with_door(scenario)


def test_one_connection_watches_so_many_layouts(with_door: WithDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalable, "WATCHED_MAX", 2)

    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for session_id in (1, 2, 2):  # the same one again replaces itself
            assert not (await looked_up(client, session_id=session_id)).HasField("error")
        assert (await looked_up(client, session_id=3)).error == ServerError.NotAllowedError
        client.say(pb.CommandScalableTopicClose(session_id=1))
        assert not (await looked_up(client, session_id=3)).HasField("error")

    with_door(scenario)


def test_the_coordinator_of_transactions_is_here(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await client.ask(
            pb.CommandWatchTcAssignments(watch_id=4), BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE
        )
        assert (found.watch_id, found.snapshot.parallelism) == (4, 1)
        (only,) = found.snapshot.assignments
        assert (only.tc_id, only.broker_service_url) == (0, "pulsar://broker.example:6650")

    with_door(scenario)


def test_without_transactions_there_is_no_coordinator(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await client.ask(
            pb.CommandWatchTcAssignments(watch_id=4), BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE
        )
        assert found.HasField("error")
        assert found.message == "Transactions are not enabled."

    with_door(scenario, transactions=TransactionSettings(transaction_coordinator_enabled=False))

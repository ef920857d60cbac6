"""SUBSCRIBE to CLOSE_CONSUMER: which consumers get in, what flows to them, what they hear unasked, and how they end."""

import asyncio

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_subscriptions import FAILOVER_DELAY_MS
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandConnect,
    CommandFlow,
    CommandPartitionedTopicMetadata,
    CommandUnsubscribe,
    KeySharedMeta,
    KeySharedMode,
    KeyValue,
    MessageMetadata,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_consuming import (
    FAILOVER,
    FULL,
    KEY_SHARED,
    NO_ID,
    SHARED,
    TOPIC,
    WithDoor,
    acknowledgement,
    consuming,
    entries,
    messages,
    one,
    publish,
    quiet,
    refused,
    subscribe,
    subscription,
)

# SUBSCRIBE


def test_success_comes_before_the_first_message_and_the_message_carries_the_entry(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        (message_id,) = await publish(client)
        await subscribe(client)
        message, entry = await client.hear_entry(BaseCommand.MESSAGE)
        assert (message.consumer_id, message.redelivery_count, list(message.ack_set)) == (1, 0, [])
        assert one(message) == message_id
        assert message.message_id.partition == -1
        assert not message.HasField("consumer_epoch")
        assert entry == frame_entry(
            MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"12345678"
        )

    with_door(scenario)


def test_subscription_properties_are_kept_with_the_subscription(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client, subscription_properties=[KeyValue(key="owner", value="tests")])
        cursor = door.broker.cursors.get(CursorKey("s", FULL, 0))
        assert cursor is not None
        assert door.broker.subscriptions.properties(cursor) == {"owner": "tests"}

    with_door(scenario)


def test_messages_of_a_partition_say_which(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(TopicName.parse("t"), 3)
        client = await door.connected()
        topic = TOPIC + "-partition-2"
        await publish(client, topic=topic)
        await subscribe(client, topic=topic)
        (message,) = await messages(client, 1)
        assert message.message_id.partition == 2

    with_door(scenario)


def test_nothing_is_delivered_that_was_not_asked_for(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 3)
        await subscribe(client, permits=0)
        await quiet(client)
        for permits in (0, (1 << 32) - 1):
            client.say(CommandFlow(consumer_id=1, messagePermits=permits))
        client.say(CommandFlow(consumer_id=77, messagePermits=10))
        await quiet(client)
        client.say(CommandFlow(consumer_id=1, messagePermits=2))
        await messages(client, 2)
        await quiet(client)

    with_door(scenario)


def test_what_is_delivered_in_one_go_leaves_in_one_write(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 20)
        await subscribe(client, permits=0)
        client.writes.clear()
        client.say(CommandFlow(consumer_id=1, messagePermits=100))
        await messages(client, 20)
        assert client.writes == [20]

    with_door(scenario)


def test_why_a_consumer_is_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client)
        assert await refused(client) == (ServerError.ConsumerBusy, "Exclusive consumer is already connected")
        assert (await refused(client, subType=SHARED))[0] == ServerError.ConsumerBusy
        assert (await refused(client, subscription=""))[0] == ServerError.NotAllowedError
        code, text = await refused(client, topic="persistent://public/default/x", force_topic_creation=False)
        assert (code, "x" in text) == (ServerError.TopicNotFound, True)
        assert (await refused(client, topic="persistent://no/such/x"))[0] == ServerError.TopicNotFound
        assert (await refused(client, topic="a/b"))[0] == ServerError.InvalidTopicName
        code, _ = await refused(client, subscription="s2", subType=SHARED, read_compacted=True)
        assert code == ServerError.NotAllowedError
        code, text = await refused(client, durable=False)
        assert (code, text) == (
            ServerError.NotAllowedError,
            "Durable subscription with the same name already exists.",
        )
        assert list(client.session.consumers) == [1], "nothing is left of those that were refused"

    with_door(scenario)


def test_ranges_that_overlap_are_an_assign_error(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        meta = KeySharedMeta(keySharedMode=KeySharedMode.STICKY)
        meta.hashRanges.add(start=0, end=100)
        await subscribe(client, subType=KEY_SHARED, keySharedMeta=meta)
        code, _ = await refused(client, subType=KEY_SHARED, keySharedMeta=meta)
        assert code == ServerError.ConsumerAssignError

    with_door(scenario)


def test_the_same_consumer_again_is_answered_as_before(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client)
        await subscribe(client, permits=0, request_id=5)
        partition = door.broker.topics.get(TopicName.parse("t")).partition(0)
        assert len(door.broker.subscriptions.of(partition)[0].consumers) == 1

    with_door(scenario)


def test_one_that_closes_while_its_subscription_is_opened_leaves_nothing(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client)
        door.metadata.hold()
        client.say(subscription(1, request_id=1))
        await asyncio.sleep(0.01)
        client.say(subscription(1, request_id=2))
        error = await client.hear(BaseCommand.ERROR)
        assert (error.request_id, error.error) == (2, ServerError.ServiceNotReady)
        client.say(CommandCloseConsumer(consumer_id=1, request_id=3))
        assert (await client.hear(BaseCommand.SUCCESS)).request_id == 3
        door.metadata.release()
        await subscribe(client, consumer_id=2)

    with_door(scenario)


def test_a_connection_that_breaks_while_it_subscribes_leaves_the_subscription_free(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, other = await door.connected(), await door.connected()
        await publish(client)
        door.metadata.hold()
        client.say(subscription(1, request_id=1))
        await asyncio.sleep(0.01)
        client.leave()
        door.metadata.release()
        await door.service.tasks.ended()
        await subscribe(other)

    with_door(scenario)


def test_a_broken_connection_gives_its_messages_to_the_others(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, other = await door.connected(), await door.connected()
        await publish(client, 4)
        await subscribe(client, subType=SHARED)
        await messages(client, 4)
        await subscribe(other, subType=SHARED, consumer_name="other")
        client.leave()
        assert entries(await messages(other, 4)) == [0, 1, 2, 3]

    with_door(scenario)


# Closing, unsubscribing


def test_closing_is_a_success_even_of_what_is_unknown(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, _ = await consuming(door, 2)
        for request_id in (5, 6):
            close = CommandCloseConsumer(consumer_id=1, request_id=request_id)
            assert (await client.ask(close, BaseCommand.SUCCESS)).request_id == request_id
        await subscribe(client)
        assert entries(await messages(client, 2)) == [0, 1]

    with_door(scenario)


def test_unsubscribing_is_for_the_only_consumer(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client, 1, subType=SHARED)
        await subscribe(client, 2, subType=SHARED)
        error = await client.ask(CommandUnsubscribe(consumer_id=1, request_id=4), BaseCommand.ERROR)
        assert (error.request_id, error.error) == (4, ServerError.ConsumerBusy)
        unsubscribe = CommandUnsubscribe(consumer_id=1, request_id=5, force=True)
        client.say(unsubscribe)
        closed = await client.hear(BaseCommand.CLOSE_CONSUMER)
        assert (closed.consumer_id, closed.request_id) == (2, NO_ID)
        assert (await client.hear(BaseCommand.SUCCESS)).request_id == 5
        assert door.broker.cursors.get(CursorKey("s", FULL, 0)) is None
        error = await client.ask(CommandUnsubscribe(consumer_id=1, request_id=6), BaseCommand.ERROR)
        assert error.request_id == 6

    with_door(scenario)


# What a consumer hears unasked


def test_failover_consumers_are_told_when_they_ask_for_messages_and_old_clients_never(
    with_door: WithDoor,
) -> None:
    """Not right behind SUCCESS: Go's client does not know the consumer yet, and heard of some partitions only."""

    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client, 1, subType=FAILOVER, permits=0, priority_level=1)
        await quiet(client)
        client.say(CommandFlow(consumer_id=1, messagePermits=1))
        change = await client.hear(BaseCommand.ACTIVE_CONSUMER_CHANGE)
        assert (change.consumer_id, change.is_active) == (1, True)
        client.say(CommandFlow(consumer_id=1, messagePermits=1))
        await quiet(client)
        other = await door.connected()
        await subscribe(other, 0, subType=FAILOVER, permits=0)  # takes over
        await quiet(client)
        door.clock.advance(FAILOVER_DELAY_MS / 1000)
        change = await client.hear(BaseCommand.ACTIVE_CONSUMER_CHANGE)
        assert (change.consumer_id, change.is_active) == (1, False)
        await quiet(client)
        old = await door.connected(version=11)
        await subscribe(old, 2, subType=FAILOVER)
        await quiet(old)

    with_door(scenario)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_failover_consumer_that_asks_for_nothing_is_told_all_the_same(
    with_door: WithDoor, is_left: bool
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client, 1, subType=FAILOVER, permits=0, priority_level=1)
        if is_left:
            await client.ask(CommandCloseConsumer(consumer_id=1, request_id=5), BaseCommand.SUCCESS)
        else:
            await subscribe(client, 0, subType=FAILOVER, permits=0)
        door.clock.advance(1.0)
        if not is_left:  # what holds until then; the other one takes over in the same moment
            for expected in ((1, True), (1, False), (0, True)):
                change = await client.hear(BaseCommand.ACTIVE_CONSUMER_CHANGE)
                assert (change.consumer_id, change.is_active) == expected
        await quiet(client)

    with_door(scenario)


def test_a_client_that_gives_up_waiting_for_a_topic_that_is_made_harms_no_other(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        name = TopicName.parse("made")
        door.metadata.hold()
        topics = door.broker.pulsar_topics
        making = asyncio.ensure_future(topics.open(name.full))
        await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(topics.open(name.full)) for _ in range(2)]
        ensuring = asyncio.ensure_future(door.broker.topics.ensure(name))
        await asyncio.sleep(0.01)
        waiting.pop(0).cancel()
        ensuring.cancel()
        await asyncio.sleep(0.01)
        door.metadata.release()
        assert await making is await waiting[0]

    with_door(scenario)


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_client_that_comes_while_another_one_makes_the_topic_gets_it(
    with_door: WithDoor, partitions: int
) -> None:
    """A dead letter topic's consumer came just before its producer, and got TopicNotFound."""
    name = "t-s-DLQ"

    async def scenario(door: PulsarDoor) -> None:
        if partitions:
            creation = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
            await door.broker.namespaces.change(
                "public/default", lambda _: {"autoTopicCreationOverride": creation}
            )
        clients = [await door.connected() for _ in range(3)]
        lookup = CommandPartitionedTopicMetadata(topic=name, request_id=7)
        door.metadata.hold()
        for number, client in enumerate(clients):
            if partitions:
                client.say(lookup)
            else:
                client.say(subscription(1, topic=name, subscription=f"s{number}"))
        await asyncio.sleep(0.01)
        door.metadata.release()
        for client in clients:
            if partitions:
                found = await client.hear(BaseCommand.PARTITIONED_METADATA_RESPONSE)
                assert (found.partitions, found.HasField("error")) == (partitions, False)
            else:
                assert (await client.hear(BaseCommand.SUCCESS)).request_id == 101

    with_door(scenario)


@pytest.mark.parametrize(
    ("version", "is_told"),
    [("Pulsar-Java-v4.0.8", True), ("Pulsar-CPP-v4.2.0", False), ("Pulsar Go 0.21", False), ("", False)],
)
def test_the_end_of_a_topic_is_told_only_to_clients_that_know_the_command(
    with_door: WithDoor, version: str, is_told: bool
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        await client.ask(CommandConnect(client_version=version, protocol_version=21), BaseCommand.CONNECTED)
        await publish(client)
        await subscribe(client)
        (message,) = await messages(client, 1)
        await door.broker.topics.terminate(door.broker.topics.get(TopicName.parse("t")))
        await client.hear(BaseCommand.CLOSE_PRODUCER)
        client.say(acknowledgement(one(message)))
        if is_told:
            assert (await client.hear(BaseCommand.REACHED_END_OF_TOPIC)).consumer_id == 1
        await quiet(client)
        await subscribe(client, 2, subscription="late", initialPosition=0, permits=0)
        if is_told:
            assert (await client.hear(BaseCommand.REACHED_END_OF_TOPIC)).consumer_id == 2
        await quiet(client)

    with_door(scenario)


def test_a_stop_tells_consumers_that_they_are_closed(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, _ = await consuming(door, 2)
        client.session.finish()
        await asyncio.sleep(0.01)
        assert [kind for kind, *_ in client.received if kind == BaseCommand.CLOSE_CONSUMER]
        assert client.is_closed

    with_door(scenario)

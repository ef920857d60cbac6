"""SUBSCRIBE to CLOSE_CONSUMER on the wire: what is answered, in which order, and what is never sent."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandConnect,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSend,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMeta,
    KeySharedMode,
    KeyValue,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

WithDoor = Callable[..., None]
TOPIC = "persistent://public/default/t"
FULL = TopicName.parse("t").full
NO_ID = (1 << 64) - 1
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)


async def subscribe(client: PulsarClient, consumer_id: int = 1, permits: int = 100, **fields: Any) -> None:
    command = CommandSubscribe(
        **{
            "topic": TOPIC,
            "subscription": "s",
            "subType": EXCLUSIVE,
            "consumer_id": consumer_id,
            "request_id": 100 + consumer_id,
            "consumer_name": f"c{consumer_id}",
            "initialPosition": CommandSubscribe.Earliest,
            **fields,
        }
    )
    success = await client.ask(command, BaseCommand.SUCCESS)
    assert success.request_id == command.request_id
    if permits:
        client.say(CommandFlow(consumer_id=consumer_id, messagePermits=permits))


async def refused(client: PulsarClient, **fields: Any) -> tuple["ServerError", str]:
    command = CommandSubscribe(
        **{"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 9, "request_id": 9, **fields}
    )
    error = await client.ask(command, BaseCommand.ERROR)
    assert error.request_id == 9
    return error.error, error.message


async def publish(
    client: PulsarClient, count: int = 1, messages: int = 1, **fields: Any
) -> list[MessageIdData]:
    """`count` entries by a producer of their own; their ids."""
    producer_id = 1000 + len(client.session.producers)
    topic = fields.pop("topic", TOPIC)
    command = CommandProducer(topic=topic, producer_id=producer_id, request_id=1)
    await client.ask(command, BaseCommand.PRODUCER_SUCCESS)
    ids = []
    for number in range(count):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, **fields)
        if messages > 1:
            metadata.num_messages_in_batch = messages
        send = CommandSend(producer_id=producer_id, sequence_id=number, num_messages=messages)
        client.say(send, frame_entry(metadata, b"12345678" * messages))
        ids.append((await client.hear(BaseCommand.SEND_RECEIPT)).message_id)
    return ids


async def messages(client: PulsarClient, count: int) -> list[Any]:
    return [await client.hear(BaseCommand.MESSAGE) for _ in range(count)]


async def quiet(client: PulsarClient) -> None:
    """All that can happen now has happened, and the client was told nothing of it."""
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert client.received == []


def mark_delete(door: PulsarDoor, subscription: str = "s") -> int:
    cursor = door.broker.cursors.get(CursorKey(subscription, FULL, 0))
    assert cursor is not None
    return cursor.mark_delete


def one(message: Any) -> MessageIdData:
    return MessageIdData(ledgerId=message.message_id.ledgerId, entryId=message.message_id.entryId)


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
        client.say(
            CommandSubscribe(
                topic=TOPIC, subscription="s", subType=CommandSubscribe.Exclusive, consumer_id=1, request_id=1
            )
        )
        await asyncio.sleep(0.01)
        client.say(
            CommandSubscribe(
                topic=TOPIC, subscription="s", subType=CommandSubscribe.Exclusive, consumer_id=1, request_id=2
            )
        )
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
        client.say(
            CommandSubscribe(
                topic=TOPIC, subscription="s", subType=CommandSubscribe.Exclusive, consumer_id=1, request_id=1
            )
        )
        await asyncio.sleep(0.01)
        client.leave()
        door.metadata.release()
        await asyncio.wait(set(door.service.tasks))
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
        assert [one.message_id.entryId for one in await messages(other, 4)] == [0, 1, 2, 3]

    with_door(scenario)


# ACK


def test_an_acknowledgement_is_answered_only_when_it_asks(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 3)
        await subscribe(client)
        first, _, third = await messages(client, 3)
        client.say(
            CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[one(first), one(first)])
        )
        await quiet(client)
        assert mark_delete(door) == 1
        ack = CommandAck(consumer_id=1, ack_type=CommandAck.Cumulative, message_id=[one(third)], request_id=7)
        response = await client.ask(ack, BaseCommand.ACK_RESPONSE)
        assert (response.consumer_id, response.request_id, response.HasField("error")) == (1, 7, False)
        assert mark_delete(door) == 3

    with_door(scenario)


def test_unknown_ids_and_consumers_in_acknowledgements_change_nothing(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 2)
        await subscribe(client)
        strange = [
            MessageIdData(ledgerId=ledger, entryId=entry)
            for ledger in (0, 99, NO_ID)
            for entry in (0, 99, NO_ID)
        ]
        ack = CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=strange, request_id=7)
        assert not (await client.ask(ack, BaseCommand.ACK_RESPONSE)).HasField("error")
        ack.consumer_id = 5
        response = await client.ask(ack, BaseCommand.ACK_RESPONSE)
        assert response.error == ServerError.ConsumerNotFound
        client.say(CommandAck(consumer_id=5, ack_type=CommandAck.Individual, message_id=strange))
        assert mark_delete(door) == 0

    with_door(scenario)


def test_transactions_are_refused_in_the_answer_they_always_get(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client)
        await subscribe(client)
        (message,) = await messages(client, 1)
        ack = CommandAck(
            consumer_id=1,
            ack_type=CommandAck.Individual,
            message_id=[one(message)],
            request_id=7,
            txnid_most_bits=1,
            txnid_least_bits=2,
        )
        response = await client.ask(ack, BaseCommand.ACK_RESPONSE)
        assert (response.error, response.txnid_least_bits) == (ServerError.NotAllowedError, 2)
        assert mark_delete(door) == 0

    with_door(scenario)


def test_a_part_of_a_batch_comes_again_with_an_ack_set(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, messages=70)
        await subscribe(client, subType=SHARED)
        (message,) = await messages(client, 1)
        part = one(message)
        part.ack_set.extend([-2, -1])  # all but the first
        client.say(CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[part]))
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[one(message)]))
        (again,) = await messages(client, 1)
        assert list(again.ack_set) == [-2, 63]
        assert again.redelivery_count == 1
        assert mark_delete(door) == 1

    with_door(scenario)


# Redelivery


def test_an_epoch_is_given_back_with_what_was_asked_for_again(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 3)
        await subscribe(client, consumer_epoch=0)
        assert {message.consumer_epoch for message in await messages(client, 3)} == {0}
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=1))
        again = await messages(client, 3)
        assert [message.message_id.entryId for message in again] == [0, 1, 2]
        assert {message.consumer_epoch for message in again} == {1}

    with_door(scenario)


def test_only_what_a_consumer_holds_is_given_again(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 4)
        await subscribe(client, 1, subType=SHARED, permits=2)
        mine = await messages(client, 2)
        await subscribe(client, 2, subType=SHARED, permits=2)
        theirs = await messages(client, 2)
        wanted = [one(message) for message in [*theirs, mine[1]]]
        wanted.append(MessageIdData(ledgerId=9999, entryId=1))
        client.say(CommandFlow(consumer_id=1, messagePermits=10))
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=wanted))
        (again,) = await messages(client, 1)
        assert (again.consumer_id, again.message_id.entryId) == (1, mine[1].message_id.entryId)
        await quiet(client)

    with_door(scenario)


# Closing, unsubscribing


def test_closing_is_a_success_even_of_what_is_unknown(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 2)
        await subscribe(client)
        await messages(client, 2)
        for request_id in (5, 6):
            close = CommandCloseConsumer(consumer_id=1, request_id=request_id)
            assert (await client.ask(close, BaseCommand.SUCCESS)).request_id == request_id
        await subscribe(client)
        assert [message.message_id.entryId for message in await messages(client, 2)] == [0, 1]

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


# SEEK, GET_LAST_MESSAGE_ID


def test_a_seek_closes_the_consumer_first_and_succeeds_then(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        ids = await publish(client, 5)
        await subscribe(client)
        await messages(client, 5)
        client.say(CommandSeek(consumer_id=1, request_id=8, message_id=ids[2]))
        closed = await client.hear(BaseCommand.CLOSE_CONSUMER)
        assert (closed.consumer_id, closed.request_id) == (1, NO_ID)
        assert (await client.hear(BaseCommand.SUCCESS)).request_id == 8
        client.say(CommandFlow(consumer_id=1, messagePermits=10))
        await quiet(client)
        await subscribe(client)
        assert [message.message_id.entryId for message in await messages(client, 3)] == [2, 3, 4]

    with_door(scenario)


def test_a_seek_to_nothing_or_by_nobody_is_an_error(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client)
        for command in (CommandSeek(consumer_id=1, request_id=8), CommandSeek(consumer_id=2, request_id=8)):
            error = await client.ask(command, BaseCommand.ERROR)
            assert (error.request_id, error.error) == (8, ServerError.MetadataError)

    with_door(scenario)


def test_the_last_message_id_and_the_mark_delete_position(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client)
        ask = CommandGetLastMessageId(consumer_id=1, request_id=3)
        answer = await client.ask(ask, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
        assert (answer.request_id, answer.last_message_id.entryId) == (3, NO_ID)
        ids = await publish(await door.connected(), 2, messages=4)
        await messages(client, 2)
        ack = CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[ids[0]], request_id=1)
        await client.ask(ack, BaseCommand.ACK_RESPONSE)
        answer = await client.ask(ask, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
        last, done = answer.last_message_id, answer.consumer_mark_delete_position
        assert (last.ledgerId, last.entryId, last.batch_index, last.partition) == (ids[1].ledgerId, 1, 3, -1)
        assert (done.ledgerId, done.entryId) == (ids[0].ledgerId, 0)

    with_door(scenario)


def test_non_persistent_topics_have_neither(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client, topic="non-persistent://public/default/n")
        for command in (
            CommandSeek(consumer_id=1, request_id=8, message_publish_time=0),
            CommandGetLastMessageId(consumer_id=1, request_id=8),
        ):
            assert (await client.ask(command, BaseCommand.ERROR)).error == ServerError.NotAllowedError

    with_door(scenario)


# What is told unasked


def test_failover_consumers_are_told_after_their_success_and_old_clients_never(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client, 1, subType=FAILOVER, permits=0)
        change = await client.hear(BaseCommand.ACTIVE_CONSUMER_CHANGE)
        assert (change.consumer_id, change.is_active) == (1, True)
        old = await door.connected(version=11)
        await subscribe(old, 2, subType=FAILOVER, permits=0)
        await quiet(old)

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
        client.say(CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[one(message)]))
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
        client = await door.connected()
        await publish(client, 2)
        await subscribe(client)
        await messages(client, 2)
        client.session.finish()
        await asyncio.sleep(0.01)
        assert [kind for kind, *_ in client.received if kind == BaseCommand.CLOSE_CONSUMER]
        assert client.is_closed

    with_door(scenario)


# Slow peers


def test_a_peer_that_takes_nothing_is_sent_no_messages_until_it_does(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await subscribe(client)
        client.session.peer_is_slow(True)
        producer = await door.connected()
        await publish(producer, 5)
        await quiet(client)
        client.session.peer_is_slow(False)
        assert len(await messages(client, 5)) == 5

    with_door(scenario)


# CONSUMER_STATS


def test_consumer_stats(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 5)
        await subscribe(client, subType=SHARED, permits=3)
        first, *_ = await messages(client, 3)
        ack = CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[one(first)], request_id=1)
        await client.ask(ack, BaseCommand.ACK_RESPONSE)
        ask = CommandConsumerStats(request_id=6, consumer_id=1)
        stats = await client.ask(ask, BaseCommand.CONSUMER_STATS_RESPONSE)
        assert (stats.request_id, stats.consumerName, stats.type) == (6, "c1", "Shared")
        assert (stats.unackedMessages, stats.msgBacklog, stats.availablePermits) == (2, 4, 0)
        assert stats.msgRateOut == 3.0
        ask.consumer_id = 7
        stats = await client.ask(ask, BaseCommand.CONSUMER_STATS_RESPONSE)
        assert stats.error_code == ServerError.ConsumerNotFound

    with_door(scenario)


def test_a_position_survives_a_broken_connection(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, 3)
        await subscribe(client)
        first, *_ = await messages(client, 3)
        client.say(CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[one(first)]))
        client.leave()
        again = await door.connected()
        await subscribe(again)
        assert [one.message_id.entryId for one in await messages(again, 2)] == [1, 2]

    with_door(scenario)

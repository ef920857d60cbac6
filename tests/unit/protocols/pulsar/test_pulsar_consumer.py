"""ACK, redelivery, SEEK and statistics on the wire: what is answered, in which order, and what is never sent."""

from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    MessageIdData,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_consuming import (
    NO_ID,
    SHARED,
    WithDoor,
    acknowledgement,
    consuming,
    entries,
    mark_delete,
    messages,
    one,
    publish,
    quiet,
    subscribe,
)

# ACK


def test_an_acknowledgement_is_answered_only_when_it_asks(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, (first, _, third) = await consuming(door, 3)
        client.say(acknowledgement(one(first), one(first)))
        await quiet(client)
        assert mark_delete(door) == 1
        ack = acknowledgement(one(third), ack_type=CommandAck.Cumulative, request_id=7)
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
        ack = acknowledgement(*strange, request_id=7)
        assert not (await client.ask(ack, BaseCommand.ACK_RESPONSE)).HasField("error")
        ack.consumer_id = 5
        response = await client.ask(ack, BaseCommand.ACK_RESPONSE)
        assert response.error == ServerError.ConsumerNotFound
        client.say(acknowledgement(*strange, consumer_id=5))
        assert mark_delete(door) == 0

    with_door(scenario)


def test_a_part_of_a_batch_comes_again_with_an_ack_set(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, (message,) = await consuming(door, 1, messages_each=70, subType=SHARED)
        part = one(message)
        part.ack_set.extend([-2, -1])  # all but the first
        client.say(acknowledgement(part))
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
        assert entries(again) == [0, 1, 2]
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
        assert entries(await messages(client, 3)) == [2, 3, 4]

    with_door(scenario)


def test_a_seek_to_nothing_or_without_a_consumer_is_an_error(with_door: WithDoor) -> None:
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
        ack = acknowledgement(ids[0], request_id=1)
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
        ack = acknowledgement(one(first), request_id=1)
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
        client, (first, *_) = await consuming(door, 3)
        client.say(acknowledgement(one(first)))
        client.leave()
        again = await door.connected()
        await subscribe(again)
        assert entries(await messages(again, 2)) == [1, 2]

    with_door(scenario)

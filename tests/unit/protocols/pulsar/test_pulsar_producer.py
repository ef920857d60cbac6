"""PRODUCER and CLOSE_PRODUCER: which producers may publish, and what is left of one that may no longer."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.ledger.cursor_store import CursorKey
from magnetar.protocols.pulsar.session import PROBE_S
from magnetar.testing.pulsar import TIMEOUT_S, PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandFlow,
    CommandPartitionedTopicMetadata,
    CommandPong,
    CommandProducer,
    CommandSubscribe,
    EncryptionKeys,
    ProducerAccessMode,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_producing import (
    TOPIC,
    WithDoor,
    entry,
    partition_of,
    produce,
    producing,
    refused,
    send,
    set_policies,
    topic_of,
)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (TOPIC, ServerError.TopicNotFound),
        (TOPIC + "-partition-3", ServerError.TopicNotFound),
        ("persistent://public/default/other-partition-0", ServerError.TopicNotFound),
        ("persistent://public/nowhere/t", ServerError.TopicNotFound),
        ("no/topic", ServerError.InvalidTopicName),
    ],
)
def test_a_topic_that_cannot_be_published_to_is_refused(
    with_door: WithDoor, topic: str, error: "ServerError"
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(TopicName.parse("t"), 3)
        client = await door.connected()
        assert (await refused(client, topic=topic))[0] == error
        assert not client.session.producers
        await produce(client, topic=TOPIC + "-partition-0")

    with_door(scenario)


def test_closing_is_answered_after_the_last_receipt(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        for number in range(5):
            send(client, number)
        client.say(CommandCloseProducer(producer_id=1, request_id=8))
        for number in range(5):
            assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == number
        assert (await client.hear(BaseCommand.SUCCESS)).request_id == 8
        assert not client.session.producers
        assert not len(door.broker.producers.of(partition_of(door)))
        again = await client.ask(CommandCloseProducer(producer_id=1, request_id=9), BaseCommand.SUCCESS)
        assert again.request_id == 9

    with_door(scenario)


async def unload(door: PulsarDoor) -> None:
    await door.broker.unload(partition_of(door))


async def delete(door: PulsarDoor) -> None:
    await door.broker.delete_topic(topic_of(door))


async def heard(client: PulsarClient, last: int) -> list[int]:
    """The types of all commands up to this one, which are not removed."""
    kinds: list[int] = []
    async with asyncio.timeout(TIMEOUT_S):
        while last not in kinds:
            await asyncio.sleep(0.001)
            kinds = [kind for kind, *_ in client.received]
    return kinds


@pytest.mark.parametrize("goes", [unload, delete], ids=lambda goes: goes.__name__)
def test_closing_is_answered_after_the_last_receipt_though_the_topic_goes(
    with_door: WithDoor, goes: Callable[[PulsarDoor], Awaitable[None]]
) -> None:
    """Its client waited for half a minute, and sent again what was stored."""

    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        for number in (1, 2):
            send(client, number)
        client.say(CommandCloseProducer(producer_id=1, request_id=8))
        await goes(door)
        receipt, success = BaseCommand.SEND_RECEIPT, BaseCommand.SUCCESS
        assert await heard(client, success) == [receipt, receipt, success]
        assert (await client.hear(success)).request_id == 8
        assert not client.session.producers

    with_door(scenario)


def test_closing_is_answered_after_a_message_that_is_refused_with_its_topic(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        send(client, 0)
        partition_of(door).is_terminated = True
        send(client, 1)
        client.say(CommandCloseProducer(producer_id=1, request_id=8))
        success = BaseCommand.SUCCESS
        assert await heard(client, success) == [BaseCommand.SEND_RECEIPT, success]
        assert (await client.hear(success)).request_id == 8

    with_door(scenario)


def test_closing_before_it_is_open_leaves_nothing_behind(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=1))
        success = await client.ask(CommandCloseProducer(producer_id=1, request_id=2), BaseCommand.SUCCESS)
        assert success.request_id == 2
        await door.service.tasks.ended()
        await asyncio.sleep(0)
        assert not client.received
        assert not len(door.broker.producers.of(partition_of(door)))

    with_door(scenario)


def test_a_connection_that_breaks_while_it_opens_leaves_nothing_behind(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=1, producer_name="p"))
        client.leave()
        await door.service.tasks.ended()
        await produce(await door.connected(), producer_name="p")

    with_door(scenario)


def test_an_id_is_one_producers(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        first = await produce(client)
        again = await produce(client)
        assert again.producer_name == first.producer_name
        error, _ = await refused(client, topic=TOPIC + "2")
        assert error == ServerError.ServiceNotReady

    with_door(scenario)


def test_names_clash_over_connections(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        one, other = await door.connected(), await door.connected()
        await produce(one, producer_name="p")
        other.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=9, producer_name="p"))
        await one.hear(BaseCommand.PING)
        one.say(CommandPong())
        refusal = await other.hear(BaseCommand.ERROR)
        assert refusal.error == ServerError.ProducerBusy
        assert refusal.message == "Producer with name 'p' is already connected to topic"
        one.leave()
        await produce(other, producer_name="p")

    with_door(scenario)


def test_access_modes_reach_the_client(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        alone, waiting, third = [await door.connected() for _ in range(3)]
        exclusive = await produce(alone, producer_access_mode=ProducerAccessMode.Exclusive)
        assert (exclusive.producer_ready, exclusive.topic_epoch) == (True, 0)
        error, _ = await refused(third, producer_access_mode=ProducerAccessMode.Exclusive)
        assert error == ServerError.ProducerFenced
        queued = await produce(waiting, producer_access_mode=ProducerAccessMode.WaitForExclusive)
        assert not queued.producer_ready
        alone.leave()
        ready = await waiting.hear(BaseCommand.PRODUCER_SUCCESS)
        assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (queued.request_id, True, 1)
        fencing = await produce(third, producer_access_mode=ProducerAccessMode.ExclusiveWithFencing)
        assert fencing.topic_epoch == 2
        assert (await waiting.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1
        error, _ = await refused(waiting, producer_access_mode=ProducerAccessMode.Exclusive, topic_epoch=1)
        assert error == ServerError.ProducerFenced

    with_door(scenario)


def test_encryption_is_held_to_where_the_policy_wants_it(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, encryption_required=True)
        client = await door.connected()
        error, text = await refused(client)
        assert (error, text) == (ServerError.MetadataError, f"Encryption is required in {TOPIC}")
        await produce(client, encrypted=True)
        send(client, 0)
        send(client, 1, entry(1, encryption_keys=[EncryptionKeys(key="k", value=b"v")]))
        refusal = await client.hear(BaseCommand.SEND_ERROR)
        assert (refusal.sequence_id, refusal.error) == (0, ServerError.MetadataError)
        assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == 1

    with_door(scenario)


def test_the_policies_limit_of_producers_holds(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, max_producers_per_topic=1)
        client = await producing(door)
        error, text = await refused(client, producer_id=2)
        assert (error, text) == (ServerError.ProducerBusy, "Topic reached max producers limit")

    with_door(scenario)


def test_a_deleted_topics_producers_are_sent_away(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door, producer_access_mode=ProducerAccessMode.Exclusive)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        await door.broker.delete_topic(topic_of(door))
        assert (await client.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1
        again = await produce(client, producer_access_mode=ProducerAccessMode.Exclusive)
        assert again.topic_epoch == 0, "it is another topic"
        send(client, 1)
        await client.hear(BaseCommand.SEND_RECEIPT)
        assert partition_of(door).log.next_offset == 1

    with_door(scenario)


def test_a_terminated_topic_takes_no_producers(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        await door.broker.topics.terminate(topic_of(door))
        assert (await client.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1
        send(client, 0)  # on its way: its client reconnects and sends it again, and is refused then
        assert (await refused(client, producer_id=2))[0] == ServerError.TopicTerminatedError
        assert client.received == []

    with_door(scenario)


def test_a_producer_gets_its_receipts_before_it_is_told_of_a_termination(with_door: WithDoor) -> None:
    """Sends before, while and after: Pulsar's Go client takes nothing but a closed producer for a termination."""

    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        send(client, 0)
        terminated = asyncio.ensure_future(door.broker.topics.terminate(topic_of(door)))
        send(client, 1)
        partition_of(door).is_terminated = True  # as in the middle of it: no producer has heard of it
        send(client, 2)
        await terminated
        send(client, 3)
        receipt, closed = BaseCommand.SEND_RECEIPT, BaseCommand.CLOSE_PRODUCER
        assert [kind for kind, *_ in client.received] == [receipt, receipt, closed]
        for sequence_id in (0, 1):
            assert (await client.hear(receipt)).sequence_id == sequence_id
        assert (await client.hear(closed)).producer_id == 1
        assert (await refused(client, producer_id=1))[0] == ServerError.TopicTerminatedError
        assert client.received == []
        assert partition_of(door).log.high_watermark == 2

    with_door(scenario)


def test_no_producer_or_consumer_makes_a_topic_too_many(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, max_topics_per_namespace=1)
        client = await producing(door)
        refusal = (ServerError.NotAllowedError, "Exceed maximum number of topics in namespace.")
        other = "persistent://public/default/other"
        assert await refused(client, producer_id=2, topic=other) == refusal
        subscribe = CommandSubscribe(
            topic=other, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=7
        )
        error = await client.ask(subscribe, BaseCommand.ERROR)
        assert (error.error, error.message) == refusal
        parts = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
        await set_policies(door, autoTopicCreationOverride=parts)
        metadata = CommandPartitionedTopicMetadata(topic=other, request_id=8)
        answer = await client.ask(metadata, BaseCommand.PARTITIONED_METADATA_RESPONSE)
        assert (answer.error, answer.message) == refusal
        assert [topic.name.full for topic in door.broker.topics] == [TOPIC]
        await produce(client, 2)  # the one that is there goes on

    with_door(scenario)


def test_a_producer_brings_a_subscription_along(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door, initial_subscription_name="kept")
        partition = partition_of(door)
        assert door.broker.subscriptions.names(partition) == ["kept"]
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        await produce(client, 2, initial_subscription_name="kept")
        cursor = door.broker.cursors.get(CursorKey("kept", TOPIC, 0))
        assert cursor is not None
        assert (cursor.mark_delete, cursor.holds_data) == (0, True)
        await set_policies(door, autoSubscriptionCreationOverride={"allowAutoSubscriptionCreation": False})
        assert (await refused(client, producer_id=3, initial_subscription_name="no"))[0] == (
            ServerError.NotAllowedError
        )
        await produce(client, 3, initial_subscription_name="kept")

    with_door(scenario)


def test_non_persistent_topics_take_producers_too(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(
            door, topic="non-persistent://public/default/t", initial_subscription_name="no"
        )
        send(client, 0)
        receipt = await client.hear(BaseCommand.SEND_RECEIPT)
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)

    with_door(scenario)


def test_one_that_waits_and_is_fenced_is_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        alone, waiting, fencing = [await door.connected() for _ in range(3)]
        await produce(alone)
        queued = await produce(waiting, producer_access_mode=ProducerAccessMode.WaitForExclusive)
        assert not queued.producer_ready
        await produce(fencing, producer_access_mode=ProducerAccessMode.ExclusiveWithFencing)
        error = await waiting.hear(BaseCommand.ERROR)
        assert (error.request_id, error.error) == (queued.request_id, ServerError.ProducerFenced)
        assert (await alone.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1

    with_door(scenario)


def test_a_name_that_a_dead_connection_holds_is_free_after_some_seconds(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        cut, back = await door.connected(), await door.connected()
        await produce(cut, producer_name="p")
        back.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=1, producer_name="p"))
        await cut.hear(BaseCommand.PING)
        door.clock.advance(PROBE_S)
        assert cut.is_closed
        assert (await back.hear(BaseCommand.PRODUCER_SUCCESS)).producer_name == "p"

    with_door(scenario)


def test_a_connection_that_has_ended_is_freed_at_once(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        await produce(client, 2)
        for number in range(10):
            send(client, number)
            await client.hear(BaseCommand.SEND_RECEIPT)
        await client.ask(CommandCloseProducer(producer_id=2, request_id=8), BaseCommand.SUCCESS)
        subscribe = CommandSubscribe(
            topic=TOPIC,
            subscription="s",
            subType=CommandSubscribe.Shared,
            consumer_id=1,
            request_id=9,
            initialPosition=CommandSubscribe.Earliest,
        )
        await client.ask(subscribe, BaseCommand.SUCCESS)
        client.say(CommandFlow(consumer_id=1, messagePermits=100))
        await client.hear(BaseCommand.MESSAGE)
        gone: list[weakref.ref[Any]] = [
            weakref.ref(client.session),
            weakref.ref(client.session.producers[1]),
        ]
        gc.collect()
        gc.disable()
        try:
            client.leave()
            del client.session, client  # as a connection lets go of its session
            door.clock.advance(60)  # the clock of tests keeps cancelled timers until they are due
            other = await door.connected()
            await produce(other)
            send(other, 0)  # the store keeps the callback of its last write until the next one
            await other.hear(BaseCommand.SEND_RECEIPT)
            await asyncio.sleep(0)
            assert [reference() for reference in gone] == [None, None], "something still knows it"
        finally:
            gc.enable()

    with_door(scenario)

"""PRODUCER, SEND, CLOSE_PRODUCER: who may publish, what is told in which order, what becomes of an entry."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.names import TopicName
from magnetar.broker.partition import Partition
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.protocols.pulsar.session import PROBE_S
from magnetar.storage.store import Done
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.entry import EntryView, frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandFlow,
    CommandPong,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSubscribe,
    EncryptionKeys,
    MessageMetadata,
    ProducerAccessMode,
    ServerError,
)

WithDoor = Callable[..., None]
TOPIC = "persistent://public/default/t"
NO_ID = (1 << 64) - 1


def entry(sequence_id: int, payload: bytes = b"payload", **fields: Any) -> bytes:
    return frame_entry(
        MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000, **fields),
        payload,
    )


async def produce(client: PulsarClient, producer_id: int = 1, **fields: Any) -> CommandProducerSuccess:
    command = CommandProducer(
        **{"topic": TOPIC, "producer_id": producer_id, "request_id": 50 + producer_id, **fields}
    )
    success: CommandProducerSuccess = await client.ask(command, BaseCommand.PRODUCER_SUCCESS)
    assert success.request_id == command.request_id
    return success


async def refused(client: PulsarClient, **fields: Any) -> tuple["ServerError", str]:
    command = CommandProducer(**{"topic": TOPIC, "producer_id": 1, "request_id": 9, **fields})
    error = await client.ask(command, BaseCommand.ERROR)
    assert error.request_id == 9
    return error.error, error.message


def send(client: PulsarClient, sequence_id: int, data: bytes | None = None, **fields: Any) -> None:
    command = CommandSend(**{"producer_id": 1, "sequence_id": sequence_id, "num_messages": 1, **fields})
    client.say(command, entry(sequence_id) if data is None else data)


def partition_of(door: PulsarDoor, index: int = 0) -> Partition:
    topic = door.broker.topics.find(TopicName.parse("t"))
    assert topic is not None
    return topic.partition(index)


async def stored(partition: Partition) -> list[Entry]:
    found: list[Entry] = []
    offset = 0
    while offset < partition.log.high_watermark:
        found += await partition.log.read(offset, 1 << 20)
        offset = found[-1].last_offset + 1
    return found


def test_what_is_sent_is_stored_as_it_came_and_receipts_say_where(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        success = await produce(client)
        assert success.producer_name.startswith("magnetar-")
        assert success.last_sequence_id == -1
        assert success.producer_ready
        sizes = [10, 20_000, 300, 100_000]
        entries = [entry(number, bytes(size)) for number, size in enumerate(sizes)]
        for number, data in enumerate(entries):
            send(client, number, data, highest_sequence_id=number)
        positions = []
        for number in range(len(sizes)):
            receipt = await client.hear(BaseCommand.SEND_RECEIPT)
            assert (receipt.producer_id, receipt.sequence_id) == (1, number)
            assert receipt.highest_sequence_id == number
            assert receipt.message_id.partition == -1
            positions.append((receipt.message_id.ledgerId, receipt.message_id.entryId))
        found = await stored(partition_of(door))
        assert [bytes(one.payload) for one in found] == entries
        assert [one.kind for one in found] == [EntryKind.PULSAR] * 4
        assert [(one.ledger_id, one.entry_id) for one in found] == positions
        assert [one.base_offset for one in found] == [0, 1, 2, 3]
        topic = partition_of(door).topic
        assert not topic.is_partitioned

    with_door(scenario)


def test_a_batch_takes_an_offset_for_each_message(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        send(
            client,
            0,
            entry(0, bytes(600), num_messages_in_batch=100, highest_sequence_id=99),
            num_messages=100,
        )
        send(client, 100, entry(100))
        for _ in range(2):
            await client.hear(BaseCommand.SEND_RECEIPT)
        assert [(one.base_offset, one.last_offset) for one in await stored(partition_of(door))] == [
            (0, 99),
            (100, 100),
        ]

    with_door(scenario)


def test_receipts_of_partitions_say_which_one(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.pulsar_topics.create(TopicName.parse("t"), 3)
        client = await door.connected()
        await produce(client, topic=TOPIC + "-partition-2")
        send(client, 0)
        receipt = await client.hear(BaseCommand.SEND_RECEIPT)
        assert receipt.message_id.partition == 2
        assert partition_of(door, 2).log.next_offset == 1

    with_door(scenario)


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


def test_an_entry_that_was_damaged_is_refused_in_its_turn(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        damaged = bytearray(entry(1))
        damaged[-1] ^= 1
        send(client, 0)
        send(client, 1, bytes(damaged))
        send(client, 2)
        for _ in range(3):
            await client.hear(BaseCommand.PING) if False else None
        first = await client.hear(BaseCommand.SEND_RECEIPT)
        error = await client.hear(BaseCommand.SEND_ERROR)
        last = await client.hear(BaseCommand.SEND_RECEIPT)
        assert (first.sequence_id, error.sequence_id, last.sequence_id) == (0, 1, 2)
        assert error.error == ServerError.ChecksumError
        assert client.session.service.queued_bytes == 0

    with_door(scenario)


@pytest.mark.parametrize("data", [b"", b"\x0e\x01", b"\x0e\x01\0\0\0\0", b"\0\0\0\x05abcde", bytes(100)])
def test_what_is_no_entry_closes_the_connection(with_door: WithDoor, data: bytes) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        send(client, 0, data)
        assert client.is_closed
        assert door.service.queued_bytes == 0
        assert not len(door.broker.producers.of(partition_of(door)))

    with_door(scenario)


def test_an_old_client_gets_a_checksum_for_its_entry(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected(5)
        await produce(client)
        whole = entry(0)
        send(client, 0, whole[6:])
        await client.hear(BaseCommand.SEND_RECEIPT)
        assert [bytes(one.payload) for one in await stored(partition_of(door))] == [whole]

    with_door(scenario)


def test_a_send_of_nobody_closes_the_connection(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        send(client, 0)
        assert client.is_closed

    with_door(scenario)


def test_a_send_of_a_producer_that_the_broker_closed_is_dropped(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        door.broker.producers.close(partition_of(door))
        send(client, 0)
        notice = await client.hear(BaseCommand.CLOSE_PRODUCER)
        assert (notice.producer_id, notice.request_id) == (1, NO_ID)
        assert not client.is_closed
        assert partition_of(door).log.next_offset == 0
        await produce(client, epoch=1)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)

    with_door(scenario)


def test_a_stored_failure_is_told_and_nothing_after_it_is_lost_in_between(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        partition = partition_of(door)
        callbacks: list[Done] = []
        publish = partition.publish

        def keep(payload: memoryview, view: EntryView, now_ms: int, done: Done) -> Entry:
            callbacks.append(done)
            return publish(payload, view, now_ms, lambda _: None)

        class Patched:
            def __getattr__(self, name: str) -> Any:
                return keep if name == "publish" else getattr(partition, name)

        attached: Any = client.session.producers[1]
        attached.partition = Patched()
        for number in range(3):
            send(client, number)
        callbacks[1](StorageError("the disk is gone"))
        callbacks[2](None)
        await asyncio.sleep(0)
        assert not client.received, "the first one's turn has not come"
        callbacks[0](None)
        assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == 0
        error = await client.hear(BaseCommand.SEND_ERROR)
        assert (error.sequence_id, error.error) == (1, ServerError.PersistenceError)
        assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == 2
        attached.partition = partition

    with_door(scenario)


def test_closing_is_answered_after_the_last_receipt(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
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


def test_closing_before_it_is_open_leaves_nothing_behind(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=1))
        success = await client.ask(CommandCloseProducer(producer_id=1, request_id=2), BaseCommand.SUCCESS)
        assert success.request_id == 2
        while door.service.tasks:
            await asyncio.wait(set(door.service.tasks))
        await asyncio.sleep(0)
        assert not client.received
        assert not len(door.broker.producers.of(partition_of(door)))

    with_door(scenario)


def test_a_connection_that_breaks_while_it_opens_leaves_nothing_behind(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(CommandProducer(topic=TOPIC, producer_id=1, request_id=1, producer_name="p"))
        client.leave()
        while door.service.tasks:
            await asyncio.wait(set(door.service.tasks))
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
        await door.broker.namespaces.change(
            "public/default", lambda policies: {**policies, "encryption_required": True}
        )
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


def test_transactions_are_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        send(client, 0, txnid_most_bits=0, txnid_least_bits=1)
        error = await client.hear(BaseCommand.SEND_ERROR)
        assert error.error == ServerError.NotAllowedError

    with_door(scenario)


def test_the_policies_limit_of_producers_holds(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.namespaces.change(
            "public/default", lambda policies: {**policies, "max_producers_per_topic": 1}
        )
        client = await door.connected()
        await produce(client)
        error, text = await refused(client, producer_id=2)
        assert (error, text) == (ServerError.ProducerBusy, "Topic reached max producers limit")

    with_door(scenario)


def test_a_deleted_topics_producers_are_sent_away(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client, producer_access_mode=ProducerAccessMode.Exclusive)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        await door.broker.delete_topic(partition_of(door).topic)
        assert (await client.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1
        again = await produce(client, producer_access_mode=ProducerAccessMode.Exclusive)
        assert again.topic_epoch == 0, "it is another topic"
        send(client, 1)
        await client.hear(BaseCommand.SEND_RECEIPT)
        assert partition_of(door).log.next_offset == 1

    with_door(scenario)


def test_a_terminated_topic_takes_no_producers(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client)
        await door.broker.topics.terminate(partition_of(door).topic)
        send(client, 0)
        assert (await client.hear(BaseCommand.SEND_ERROR)).error == ServerError.TopicTerminatedError
        assert (await refused(client, producer_id=2))[0] == ServerError.TopicTerminatedError

    with_door(scenario)


def test_a_producer_brings_a_subscription_along(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client, initial_subscription_name="kept")
        partition = partition_of(door)
        assert door.broker.subscriptions.names(partition) == ["kept"]
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        await produce(client, 2, initial_subscription_name="kept")
        cursor = door.broker.cursors.get(CursorKey("kept", TOPIC, 0))
        assert cursor is not None
        assert (cursor.mark_delete, cursor.holds_data) == (0, True)
        await door.broker.namespaces.change(
            "public/default",
            lambda policies: {
                **policies,
                "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
            },
        )
        assert (await refused(client, producer_id=3, initial_subscription_name="no"))[0] == (
            ServerError.NotAllowedError
        )
        await produce(client, 3, initial_subscription_name="kept")

    with_door(scenario)


def test_non_persistent_topics_take_producers_too(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client, topic="non-persistent://public/default/t", initial_subscription_name="no")
        send(client, 0)
        receipt = await client.hear(BaseCommand.SEND_RECEIPT)
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)

    with_door(scenario)


def test_duplicates_get_a_receipt_without_a_place(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.namespaces.change(
            "public/default", lambda policies: {**policies, "deduplicationEnabled": True}
        )
        client = await door.connected()
        await produce(client, producer_name="p")
        for sequence_id in (5, 5, 4, 6):
            send(client, sequence_id)
        places = []
        for sequence_id in (5, 5, 4, 6):
            receipt = await client.hear(BaseCommand.SEND_RECEIPT)
            assert receipt.sequence_id == sequence_id
            places.append(receipt.message_id.ledgerId == NO_ID and receipt.message_id.entryId == NO_ID)
        assert places == [False, True, True, False]
        client.leave()
        again = await produce(await door.connected(), producer_name="p", epoch=1)
        assert again.last_sequence_id == 6

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


def test_duplicates_are_told_so_and_the_last_sequence_id_when_a_producer_comes_again(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.namespaces.change("public/default", lambda _: {"deduplicationEnabled": True})
        client = await door.connected()
        assert (await produce(client, producer_name="p")).last_sequence_id == -1
        for sequence_id in (4, 4, 3, 5):
            send(client, sequence_id)
        receipts = [await client.hear(BaseCommand.SEND_RECEIPT) for _ in range(4)]
        assert [receipt.sequence_id for receipt in receipts] == [4, 4, 3, 5]
        assert [receipt.message_id.entryId for receipt in receipts] == [0, NO_ID, NO_ID, 1]
        client.leave()
        again = await door.connected()
        assert (await produce(again, producer_name="p")).last_sequence_id == 5

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
        client = await door.connected()
        await produce(client)
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

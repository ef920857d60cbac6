"""SEND: what becomes of an entry, and which answers its producer gets in which order."""

import asyncio
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.names import TopicName
from magnetar.broker.producers.producer import Producer
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import Done
from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.entry import EntryView
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_producing import (
    NO_ID,
    TOPIC,
    WithDoor,
    entry,
    partition_of,
    produce,
    producing,
    refused,
    send,
    set_policies,
    stored,
)


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
        client = await producing(door)
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
        client = await producing(door, topic=TOPIC + "-partition-2")
        send(client, 0)
        receipt = await client.hear(BaseCommand.SEND_RECEIPT)
        assert receipt.message_id.partition == 2
        assert partition_of(door, 2).log.next_offset == 1

    with_door(scenario)


def test_an_entry_that_was_damaged_is_refused_in_its_turn(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        damaged = bytearray(entry(1))
        damaged[-1] ^= 1
        send(client, 0)
        send(client, 1, bytes(damaged))
        send(client, 2)
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
        client = await producing(door)
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


def test_a_send_without_a_producer_closes_the_connection(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        send(client, 0)
        assert client.is_closed

    with_door(scenario)


def test_a_send_of_a_producer_that_the_broker_closed_is_dropped(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
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
        client = await producing(door)
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
        opened = attached._opened
        opened._partition = Patched()
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
        opened._partition = partition

    with_door(scenario)


def test_a_partition_that_another_broker_has_taken_over_is_not_served_here(with_door: WithDoor) -> None:
    """Clients then look the topic up again."""

    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        await door.metadata.put(METADATA_ROOT + partition_of(door).log.name, b"{}")
        send(client, 0)
        assert (await client.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1
        assert client.received == []
        assert (await refused(client, producer_id=1))[0] == ServerError.ServiceNotReady
        assert len(door.broker.producers.of(partition_of(door))) == 0

    with_door(scenario)


def test_transactions_are_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        send(client, 0, txnid_most_bits=0, txnid_least_bits=1)
        error = await client.hear(BaseCommand.SEND_ERROR)
        assert error.error == ServerError.NotAllowedError

    with_door(scenario)


def test_duplicates_are_told_so_and_the_last_sequence_id_when_a_producer_comes_again(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, deduplicationEnabled=True)
        client = await door.connected()
        assert (await produce(client, producer_name="p")).last_sequence_id == -1
        for sequence_id in (5, 5, 4, 6):
            send(client, sequence_id)
        receipts = [await client.hear(BaseCommand.SEND_RECEIPT) for _ in range(4)]
        assert [receipt.sequence_id for receipt in receipts] == [5, 5, 4, 6]
        assert [receipt.message_id.entryId for receipt in receipts] == [0, NO_ID, NO_ID, 1]
        assert [receipt.message_id.ledgerId == NO_ID for receipt in receipts] == [False, True, True, False]
        client.leave()
        again = await produce(await door.connected(), producer_name="p", epoch=1)
        assert again.last_sequence_id == 6

    with_door(scenario)


def test_a_producer_that_opens_while_deduplication_is_turned_on_tries_again(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door, producer_name="p")
        send(client, 5)
        await client.hear(BaseCommand.SEND_RECEIPT)
        client.leave()
        producers = door.broker.producers.of(partition_of(door))
        admit = producers.admit

        async def admit_meanwhile(producer: Producer) -> None:
            producers.admit = admit  # type: ignore[method-assign]
            await set_policies(door, deduplicationEnabled=True)
            await admit(producer)

        producers.admit = admit_meanwhile  # type: ignore[method-assign]
        client = await door.connected()
        assert (await refused(client, producer_name="p"))[0] == ServerError.ServiceNotReady
        assert len(producers) == 0
        assert (await produce(client, producer_name="p")).last_sequence_id == 5

    with_door(scenario)

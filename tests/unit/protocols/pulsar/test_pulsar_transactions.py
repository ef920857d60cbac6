"""Transactions of Pulsar's clients: their commands, what they write, and what their end does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.kafka.records import read_header
from magnetar.wire.pulsar.entry import read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    CommandLookupTopic,
    CommandNewTxn,
    CommandPartitionedTopicMetadata,
    CommandTcClientConnectRequest,
    KeyValue,
    ServerError,
    TxnAction,
)
from tests.unit.protocols.pulsar.pulsar_consuming import messages, subscribe
from tests.unit.protocols.pulsar.pulsar_producing import entry, produce, send, topic_of
from tests.unit.protocols.pulsar.transacting import ABORT, COMMIT, add_partition, begin, end, write

WithDoor = Callable[..., None]
NOT_ALLOWED = ServerError.NotAllowedError
COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"


def test_a_client_finds_one_coordinator(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        counted = await client.ask(
            CommandPartitionedTopicMetadata(topic=COORDINATORS, request_id=7),
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
        )
        assert counted.partitions == 1
        found = await client.ask(
            CommandLookupTopic(topic=f"{COORDINATORS}-partition-0", request_id=7), BaseCommand.LOOKUP_RESPONSE
        )
        assert found.response == found.Connect
        kind = BaseCommand.TC_CLIENT_CONNECT_RESPONSE
        connected = await client.ask(CommandTcClientConnectRequest(request_id=7, tc_id=0), kind)
        assert not connected.HasField("error")
        refused = await client.ask(CommandTcClientConnectRequest(request_id=7, tc_id=1), kind)
        assert refused.error == ServerError.TransactionCoordinatorNotFound
        unknown = await client.ask(CommandNewTxn(request_id=7, tc_id=1), BaseCommand.NEW_TXN_RESPONSE)
        assert unknown.error == ServerError.TransactionCoordinatorNotFound

    with_door(scenario)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (CommandEndTxnOnPartition(request_id=7), BaseCommand.END_TXN_ON_PARTITION_RESPONSE),
        (CommandEndTxnOnSubscription(request_id=7), BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE),
    ],
)
def test_what_brokers_say_to_each_other_is_refused_in_its_own_response(
    with_door: WithDoor, command: Any, answer: "BaseCommand.Type"
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        refused = await client.ask(command, answer)
        assert (refused.request_id, refused.error) == (7, ServerError.NotAllowedError)
        assert not client.is_closed

    with_door(scenario)


async def _writing(door: PulsarDoor, timeout_ms: int = 60_000) -> tuple[PulsarClient, int]:
    """A client with producer 1, and its transaction, which has the topic."""
    client = await door.connected()
    await produce(client)
    transaction = await begin(client, timeout_ms)
    assert not (await add_partition(client, transaction)).HasField("error")
    return client, transaction


def _aborted(door: PulsarDoor) -> int:
    return topic_of(door).partition(0).transactions.aborted_count


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_messages_wait_for_the_end_and_are_seen_if_it_is_a_commit(with_door: WithDoor, action: Any) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, transaction = await _writing(door)
        reader = await door.connected()
        await subscribe(reader)
        write(client, transaction, 0)
        written = (await client.hear(BaseCommand.SEND_RECEIPT)).message_id
        send(client, 1)
        outside = (await client.hear(BaseCommand.SEND_RECEIPT)).message_id
        partition = topic_of(door).partition(0)
        assert (partition.last_stable_offset, partition.log.high_watermark) == (0, 2)
        assert not (await end(client, transaction, action)).HasField("error")
        wanted = [written, outside] if action == COMMIT else [outside]
        assert [one.message_id.entryId for one in await messages(reader, len(wanted))] == [
            one.entryId for one in wanted
        ]
        assert partition.last_stable_offset == partition.log.high_watermark == 3
        assert _aborted(door) == (action == ABORT)

    with_door(scenario)


def test_a_kafka_reader_knows_an_aborted_message_by_its_producer_even_if_it_was_converted_before(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, transaction = await _writing(door)
        write(client, transaction, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        partition = topic_of(door).partition(0)

        async def as_kafka() -> Any:
            (found,) = await door.broker.interop.kafka_form_later(partition, [await _entry_at(partition, 0)])
            return read_header(found.payload)

        assert not (await as_kafka()).is_transactional
        await end(client, transaction, ABORT)
        header = await as_kafka()
        assert (header.is_transactional, header.producer_id) == (True, transaction)
        (aborted,) = partition.transactions.aborted_between(0, 2)
        assert aborted == (transaction, 0, 1)

    with_door(scenario)


async def _entry_at(partition: Any, offset: int) -> Any:
    (found, *_) = await partition.log.read(offset, 1 << 20)
    return found


def test_a_transaction_is_not_there_once_it_has_ended(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, transaction = await _writing(door)
        await end(client, transaction, COMMIT)
        again = await end(client, transaction, COMMIT)
        assert again.error == ServerError.TransactionNotFound
        assert (again.txnid_least_bits, again.request_id) == (transaction, 9)
        assert (await add_partition(client, transaction)).error == ServerError.TransactionNotFound
        assert (await end(client, 999, ABORT)).error == ServerError.TransactionNotFound
        foreign = await end(client, transaction, ABORT, most=5)
        assert foreign.error == ServerError.TransactionCoordinatorNotFound
        stored = await door.metadata.scan("/pulsar-transactions/")
        assert not list(stored)

    with_door(scenario)


def test_a_message_of_a_transaction_that_may_not_write_there_is_refused_alone(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, transaction = await _writing(door)
        other = await begin(client)  # without the topic
        bits: dict[str, Any] = {"txnid_least_bits": transaction, "txnid_most_bits": 0}
        write(client, other, 0)  # it has not the topic
        write(client, 999, 1)  # it is not there
        send(client, 2, entry(2), txnid_least_bits=other, txnid_most_bits=0)  # the command says so alone
        send(client, 3, entry(3, **bits))  # the entry says so alone
        for sequence_id in range(4):
            refused = await client.hear(BaseCommand.SEND_ERROR)
            assert (refused.sequence_id, refused.error) == (sequence_id, ServerError.NotAllowedError)
        assert topic_of(door).partition(0).log.next_offset == 0
        write(client, transaction, 4)
        await client.hear(BaseCommand.SEND_RECEIPT)

    with_door(scenario)


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_a_message_whose_command_alone_names_its_transaction_is_part_of_it(
    with_door: WithDoor, action: TxnAction
) -> None:
    """Go's client says nothing of it in the entry, by which readers know what was aborted."""

    async def scenario(door: PulsarDoor) -> None:
        client, transaction = await _writing(door)
        sent = entry(0, properties=[KeyValue(key="k", value="v")])
        send(client, 0, sent, txnid_least_bits=transaction, txnid_most_bits=0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        partition = topic_of(door).partition(0)
        assert partition.last_stable_offset == 0
        await end(client, transaction, action)
        stored = read_entry((await _entry_at(partition, 0)).payload, verify=True)
        assert stored.transaction == (0, transaction)
        before = read_entry(memoryview(sent), verify=True)
        assert (stored.payload, stored.metadata.properties) == (before.payload, before.metadata.properties)
        aborted = partition.transactions.aborted_between(0, 2)
        assert bool(aborted) is (action is ABORT)

    with_door(scenario)


def test_a_topic_that_stores_nothing_takes_no_part(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client, topic="non-persistent://public/default/v")
        write(client, await begin(client), 0)
        refused = await client.hear(BaseCommand.SEND_ERROR)
        assert refused.error == ServerError.NotAllowedError

    with_door(scenario)


def test_a_topic_that_is_not_there_cannot_be_added(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        answer = await add_partition(client, await begin(client))
        assert answer.error == ServerError.TopicNotFound

    with_door(scenario)


def test_there_is_a_limit_of_open_transactions(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        first = await begin(client)
        refused = await client.ask(CommandNewTxn(request_id=7), BaseCommand.NEW_TXN_RESPONSE)
        assert refused.error == ServerError.NotAllowedError
        await end(client, first, ABORT)
        await begin(client)

    for settings in (
        TransactionSettings(max_transactions_per_coordinator=1),
        TransactionSettings(max_active_transactions_per_coordinator=1),
    ):
        with_door(scenario, transactions=settings)


def test_no_client_may_ask_for_a_longer_time_out_than_the_server_allows(with_door: WithDoor) -> None:
    # A client that asked for the longest one that fits into the command, and died, kept readers waiting for ever.
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for timeout_ms in (10_801, (1 << 64) - 1):
            command = CommandNewTxn(request_id=7, txn_ttl_seconds=timeout_ms)
            refused = await client.ask(command, BaseCommand.NEW_TXN_RESPONSE)
            assert refused.error == ServerError.NotAllowedError
            assert "pulsar.transaction.max.timeout.ms is 10800" in refused.message
        await begin(client, 10_800)

    with_door(scenario, transactions=TransactionSettings(pulsar_transaction_max_timeout_ms=10_800))


def test_a_server_without_them_refuses_every_command(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        counted = await client.ask(
            CommandPartitionedTopicMetadata(topic=COORDINATORS, request_id=7),
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
        )
        assert counted.partitions == 0
        for command, kind in (
            (CommandTcClientConnectRequest(request_id=7, tc_id=0), BaseCommand.TC_CLIENT_CONNECT_RESPONSE),
            (CommandNewTxn(request_id=7), BaseCommand.NEW_TXN_RESPONSE),
        ):
            refused = await client.ask(command, kind)
            assert (refused.error, refused.message) == (NOT_ALLOWED, "Transactions are not enabled.")
        assert (await add_partition(client, 0)).error == NOT_ALLOWED
        assert (await end(client, 0, COMMIT)).error == NOT_ALLOWED

    with_door(scenario, transactions=TransactionSettings(transaction_coordinator_enabled=False))


def test_an_open_transaction_times_out(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, transaction = await _writing(door, timeout_ms=5_000)
        reader = await door.connected()
        await subscribe(reader)
        write(client, transaction, 0)
        send(client, 1)
        for _ in range(2):
            await client.hear(BaseCommand.SEND_RECEIPT)
        for _ in range(7):
            door.clock.advance(1.0)
            await asyncio.sleep(0)
        (seen,) = await messages(reader, 1)
        assert seen.message_id.entryId == 1
        assert (await end(client, transaction, COMMIT)).error == ServerError.TransactionNotFound
        assert _aborted(door) == 1

    with_door(scenario)

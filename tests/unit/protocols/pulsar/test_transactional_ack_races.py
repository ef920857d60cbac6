"""What transactions have acknowledged, where several end at once, and where the subscription or its topic goes away."""

import asyncio
from collections.abc import Callable

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.subscriptions.model import IDS_AT_ONCE
from magnetar.broker.transactions.errors import TooManyTransactions
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.pulsar_model import PulsarTransaction
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandEndTxn,
    CommandNewTxn,
    CommandRedeliverUnacknowledgedMessages,
    CommandUnsubscribe,
    MessageIdData,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_consuming import (
    FULL,
    SHARED,
    acknowledgement,
    entries,
    messages,
    publish,
    quiet,
    subscribe,
)
from tests.unit.protocols.pulsar.transacting import COMMIT, acknowledge, begin, end

WithDoor = Callable[..., None]
KEY = CursorKey("s", FULL, 0)


async def _consuming(door: PulsarDoor, count: int = 4) -> tuple[PulsarClient, list[MessageIdData]]:
    """A client whose consumer 1 has got so many entries, and their ids."""
    ids = await publish(await door.connected(), count)
    client = await door.connected()
    await subscribe(client, subType=SHARED)
    for _ in ids:
        await client.hear(BaseCommand.MESSAGE)
    return client, ids


async def _stored(door: PulsarDoor) -> Cursor | None:
    """The position that a start after a kill would find."""
    again = CursorStore(door.metadata, identity=door.broker.topics.identity)
    await again.load()
    return again.get(KEY)


async def _stored_transaction(door: PulsarDoor, transaction: int) -> PulsarTransaction:
    path = f"/pulsar-transactions/{transaction}"
    stored = await door.metadata.get(path)
    assert stored is not None
    return PulsarTransaction.decode(path, stored.value, 0, 0.0)


def _end(client: PulsarClient, transaction: int) -> None:
    client.say(
        CommandEndTxn(request_id=9, txnid_least_bits=transaction, txnid_most_bits=0, txn_action=COMMIT)
    )


async def _turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def _round(door: PulsarDoor) -> None:
    """Of the writes of metadata that wait, those that share the next commit become durable."""
    door.metadata.release()
    door.metadata.hold()
    await _turns()


def test_a_consumer_that_comes_in_the_middle_of_a_commit_does_not_undo_it(with_door: WithDoor) -> None:
    """A kill lets a client end its transaction again while its consumers come back.  A consumer took the position from
    before the commit, and stored it over that of the commit: the messages came again, and were copied twice.
    """

    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids[1:3])
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        ending = await door.connected()
        door.metadata.hold()
        _end(ending, transaction)
        await _turns()
        coming = asyncio.ensure_future(subscribe(client, subType=SHARED))
        await _turns()
        other = asyncio.ensure_future(door.broker.cursors.commit({KEY._replace(subscription="o"): Cursor()}))
        await _turns()
        await _round(door)  # now the commit is decided, and leaves the position
        await _round(door)  # now the other one's is stored, and with it what was asked for together with that
        door.metadata.release()
        await coming
        await other
        assert not (await ending.hear(BaseCommand.END_TXN_RESPONSE)).HasField("error")
        assert entries(await messages(client, 2)) == [0, 3]
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
        assert entries(await messages(client, 2)) == [0, 3]
        await quiet(client)
        client.say(acknowledgement(ids[0]))
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        stored = await _stored(door)
        assert stored is not None
        assert (stored.mark_delete, stored.ranges) == (3, [])

    with_door(scenario)


def test_a_long_command_of_a_transaction_counts_whose_consumer_is_closed_behind_it(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transaction = await begin(client)
        long = acknowledgement(*[ids[1]] * IDS_AT_ONCE, ids[2], txnid_least_bits=transaction, request_id=11)
        client.say(long)
        client.say(CommandCloseConsumer(consumer_id=1, request_id=12))
        accepted = await client.hear(BaseCommand.ACK_RESPONSE)
        assert not accepted.HasField("error"), accepted
        assert not (await end(client, transaction, COMMIT)).HasField("error")
        stored = await _stored(door)
        assert stored is not None
        assert (stored.mark_delete, stored.ranges) == (0, [(1, 3)])

    with_door(scenario)


def test_commits_at_a_subscription_that_cannot_be_let_go_do_not_undo_each_other(with_door: WithDoor) -> None:
    """Its object is there without consumers, and took the position that one commit left for that of the other."""

    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transactions = [await begin(client) for _ in range(2)]
        await acknowledge(client, transactions[0], ids[1])
        await acknowledge(client, transactions[1], ids[3])
        client.say(acknowledgement(ids[0]))
        door.metadata.fail_next = 1
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        partition = door.broker.topics.get(TopicName.parse(FULL)).partition(0)
        assert door.broker.subscriptions.find(partition, "s") is not None
        ending = await door.connected()
        door.metadata.hold()
        for transaction in transactions:
            _end(ending, transaction)
            await _turns()
        await _round(door)  # the first one is decided
        await _round(
            door
        )  # the second one is decided, while the position that the first one leaves is on its way
        await _round(door)  # which is stored
        coming = asyncio.ensure_future(subscribe(client, subType=SHARED))
        await _turns()
        door.metadata.release()
        await coming
        for _ in transactions:
            assert not (await ending.hear(BaseCommand.END_TXN_RESPONSE)).HasField("error")
        assert entries(await messages(client, 1)) == [2]
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
        assert entries(await messages(client, 1)) == [2]
        client.say(acknowledgement(ids[2]))
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        stored = await _stored(door)
        assert stored is not None
        assert (stored.mark_delete, stored.ranges) == (4, [])

    with_door(scenario)


def test_what_a_transaction_cannot_find_it_does_not_acknowledge_in_silence(with_door: WithDoor) -> None:
    """It was told that all was well, and would have committed what it had made of a message that comes again."""

    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transaction = await begin(client)
        nowhere = MessageIdData(ledgerId=ids[0].ledgerId, entryId=99)
        refused = await acknowledge(client, transaction, ids[0], nowhere)
        assert refused.error == ServerError.TransactionConflict
        assert refused.message == f"There is no message {ids[0].ledgerId}:99 any more"
        assert not (await _stored_transaction(door, transaction)).acks, "all of them or none"
        assert not (await acknowledge(client, transaction, ids[0])).HasField("error")

    with_door(scenario)


@pytest.mark.parametrize("consumes", [True, False])
def test_commits_at_the_same_moment_all_count(with_door: WithDoor, consumes: bool) -> None:
    """Each was written over the position as it had been before the others: their acknowledgements were gone."""

    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transactions = [await begin(client) for _ in ids[:3]]
        for transaction, one in zip(transactions, ids[:3], strict=True):
            await acknowledge(client, transaction, one)
        if not consumes:
            await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        for transaction in transactions:
            _end(client, transaction)
        for _ in transactions:
            assert not (await client.hear(BaseCommand.END_TXN_RESPONSE)).HasField("error")
        stored = await _stored(door)
        assert stored is not None
        assert (stored.mark_delete, stored.ranges) == (3, [])

    with_door(scenario)


@pytest.mark.parametrize("how", ["unsubscribed", "deleted"])
def test_a_new_subscription_of_the_name_gets_what_was_acknowledged_in_the_old_one(
    with_door: WithDoor, how: str
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids[:2])
        if how == "unsubscribed":
            await client.ask(CommandUnsubscribe(consumer_id=1, request_id=13), BaseCommand.SUCCESS)
        else:
            await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
            partition = door.broker.topics.get(TopicName.parse(FULL)).partition(0)
            await door.broker.subscriptions.delete(partition, "s")
        await subscribe(client, subType=SHARED)
        assert [(await client.hear(BaseCommand.MESSAGE)).message_id.entryId for _ in ids] == [0, 1, 2, 3]
        assert not (await _stored_transaction(door, transaction)).acks  # nor after a kill
        assert not (await end(client, transaction, COMMIT)).HasField("error")
        cursor = door.broker.cursors.get(KEY)
        assert cursor is not None
        assert cursor.mark_delete == 0

    with_door(scenario)


def test_a_new_topic_of_the_name_has_nothing_acknowledged(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids[:3])
        await door.broker.delete_topic(door.broker.topics.get(TopicName.parse(FULL)))
        client, ids = await _consuming(door)
        assert not (await _stored_transaction(door, transaction)).acks
        assert not (await end(client, transaction, COMMIT)).HasField("error")
        cursor = door.broker.cursors.get(KEY)
        assert cursor is not None
        assert cursor.backlog(4) == 4

    with_door(scenario)


def test_a_start_leaves_out_what_was_acknowledged_in_a_subscription_that_is_gone(
    with_door: WithDoor,
) -> None:
    """A kill between the removal of the subscription and the write of the record."""

    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door)
        transaction = await begin(client)
        await acknowledge(client, transaction, ids[0])
        before = await door.metadata.get(f"/pulsar-transactions/{transaction}")
        assert before is not None
        await client.ask(CommandUnsubscribe(consumer_id=1, request_id=13), BaseCommand.SUCCESS)
        await door.metadata.put(f"/pulsar-transactions/{transaction}", before.value)
        transactions: PulsarTransactions = door.broker.pulsar_transactions
        await transactions.load()
        assert not (await _stored_transaction(door, transaction)).acks

    with_door(scenario)


def test_transactions_that_are_begun_together_stay_within_the_limit(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        door.broker.pulsar_transactions._open_max = 3
        door.metadata.hold()  # the first one waits for producer ids
        for number in range(8):
            client.say(CommandNewTxn(request_id=number, txn_ttl_seconds=1000, tc_id=0))
        await asyncio.sleep(0)
        door.metadata.release()
        answers = [await client.hear(BaseCommand.NEW_TXN_RESPONSE) for _ in range(8)]
        assert sum(not one.HasField("error") for one in answers) == 3

    with_door(scenario)


def test_transactions_that_are_late_together_are_aborted_by_few_writes(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for _ in range(50):
            await begin(client, timeout_ms=1000)
        before = door.metadata.commit_count
        door.clock.advance(3.0)
        while door.broker.pulsar_transactions._by_id:  # noqa: ASYNC110  turns of the loop
            await asyncio.sleep(0)
        assert door.metadata.commit_count - before < 10

    with_door(scenario)


def test_a_transaction_that_does_not_fit_is_refused_and_can_be_ended(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        transaction = await begin(client)
        transactions, owner = door.broker.pulsar_transactions, str(client.session.caller.principal)
        topic = "persistent://public/default/gone"
        for _ in range(2):
            with pytest.raises(TooManyTransactions):
                await transactions.add_partitions(
                    transaction, owner, [(topic, number) for number in range(30_000)]
                )
        await transactions.add_partitions(transaction, owner, [(topic, number) for number in range(1000)])
        assert not (await end(client, transaction, COMMIT)).HasField("error")

    with_door(scenario)


@pytest.mark.parametrize("how", ["skip_to", "hold"])
def test_an_administrator_moves_what_a_commit_is_about_to_leave(with_door: WithDoor, how: str) -> None:
    """What was acknowledged by the write that was under way was delivered again."""

    async def scenario(door: PulsarDoor) -> None:
        client, _ = await _consuming(door)
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        broker = door.broker
        await broker.cursors.commit({})
        partition = broker.topics.get(TopicName.parse(FULL)).partition(0)
        before = await _stored(door)
        assert before is not None
        assert broker.subscriptions.find(partition, "s") is None, "no object of it is there to be moved"
        before.ack_individual([(2, 3)])
        commit = asyncio.ensure_future(broker.cursors.commit({KEY: before}))
        await asyncio.sleep(0)
        assert not commit.done()
        if how == "skip_to":
            await broker.subscription_admin.skip_to(partition, "s", 1)
        else:
            await broker.subscription_admin.hold("s", {partition: 1})
        await commit
        stored = await _stored(door)
        assert stored is not None
        assert (stored.mark_delete, stored.ranges) == (1, [(2, 3)])

    with_door(scenario)

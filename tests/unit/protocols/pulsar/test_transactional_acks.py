"""What a consumer acknowledges in a transaction: when it counts, and who gets the messages meanwhile."""

import asyncio
import json
from collections.abc import Callable

import pytest

from magnetar.broker.subscriptions.dispatch.multi import MultiConsumerDispatcher
from magnetar.broker.subscriptions.model import IDS_AT_ONCE
from magnetar.broker.usecases import pulsar_transactions
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
    ServerError,
    TxnAction,
)
from tests.unit.protocols.pulsar.pulsar_consuming import (
    EXCLUSIVE,
    FULL,
    KEY_SHARED,
    SHARED,
    acknowledgement,
    entries,
    messages,
    publish,
    quiet,
    subscribe,
)
from tests.unit.protocols.pulsar.pulsar_producing import partition_of, set_policies, topic_of
from tests.unit.protocols.pulsar.transacting import ABORT, COMMIT, acknowledge, begin, end

WithDoor = Callable[..., None]
CONSUMER = "max_unacked_messages_per_consumer"
SUBSCRIPTION = "max_unacked_messages_per_subscription"


async def _consuming(
    door: PulsarDoor, kind: int, messages: int = 1
) -> tuple[PulsarClient, list[MessageIdData]]:
    """A client whose consumer 1 has got three entries, and their ids."""
    ids = await publish(await door.connected(), 3, messages)
    client = await door.connected()
    await subscribe(client, subType=kind)
    assert await _got(client, 3) == [0, 1, 2]
    return client, ids


async def _got(client: PulsarClient, count: int) -> list[int]:
    """The entries of the next messages; there are no more of them."""
    found = [int((await client.hear(BaseCommand.MESSAGE)).message_id.entryId) for _ in range(count)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not [one for one in client.received if one[0] == BaseCommand.MESSAGE]
    return found


def _backlog(door: PulsarDoor) -> int:
    (subscription,) = [one for named in door.broker.subscriptions._open.values() for one in named.values()]
    return subscription.backlog()


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_it_counts_from_the_commit_on(with_door: WithDoor, kind: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, kind)
        transaction = await begin(client)
        assert not (await acknowledge(client, transaction, ids[0], ids[1])).HasField("error")
        assert _backlog(door) == 3
        await end(client, transaction, COMMIT)
        assert _backlog(door) == 1

    with_door(scenario)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_what_waits_is_not_delivered_again_until_the_abort(with_door: WithDoor, kind: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, kind)
        transaction = await begin(client)
        await acknowledge(client, transaction, ids[1])
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
        assert await _got(client, 2) == [0, 2]
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids[1:]))
        assert await _got(client, 1 if kind == SHARED else 2) == ([2] if kind == SHARED else [0, 2])
        other = await door.connected()
        await end(other, transaction, ABORT)
        assert await _got(client, 1 if kind == SHARED else 3) == ([1] if kind == SHARED else [0, 1, 2])

    with_door(scenario)


@pytest.mark.parametrize("acknowledged_by", ["itself", "another", "no transaction"])
def test_what_is_acknowledged_already_is_a_conflict(with_door: WithDoor, acknowledged_by: str) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        first, second = await begin(client), await begin(client)
        await acknowledge(client, first, ids[0])
        if acknowledged_by == "no transaction":
            await end(client, first, COMMIT)
        mine = first if acknowledged_by == "itself" else second
        refused = await acknowledge(client, mine, ids[0])
        assert (refused.request_id, refused.error) == (11, ServerError.TransactionConflict)
        assert not (await acknowledge(client, second, ids[1])).HasField("error")

    with_door(scenario)


def test_a_cumulative_one_goes_on_in_its_transaction_and_conflicts_with_others(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, EXCLUSIVE)
        first, second = await begin(client), await begin(client)
        for one in ids[:2]:
            assert not (await acknowledge(client, first, one, cumulative=True)).HasField("error")
        for transaction, one in ((first, ids[0]), (second, ids[2])):
            refused = await acknowledge(client, transaction, one, cumulative=True)
            assert refused.error == ServerError.TransactionConflict
        await end(client, first, COMMIT)
        assert _backlog(door) == 1

    with_door(scenario)


def test_a_transaction_that_is_not_there_acknowledges_nothing(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        assert (await acknowledge(client, 999, ids[0])).error == ServerError.TransactionNotFound
        assert (
            await acknowledge(client, await begin(client), ids[0], cumulative=True)
        ).error == ServerError.NotAllowedError

    with_door(scenario)


def test_a_redelivery_does_not_count_for_what_waits(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids)
        for named in ([], ids):
            client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=named))
        other = await door.connected()
        await end(other, transaction, ABORT)
        counts = [(await client.hear(BaseCommand.MESSAGE)).redelivery_count for _ in ids]
        assert counts == [1, 1, 1]

    with_door(scenario)


def test_a_commit_moves_the_position_of_a_subscription_that_nobody_consumes(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids[:2])
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        key = CursorKey("s", FULL, 0)
        cursor = door.broker.cursors.get(key)
        assert cursor is not None
        assert cursor.mark_delete == 0
        await end(client, transaction, COMMIT)
        cursor = door.broker.cursors.get(key)
        assert cursor is not None
        assert cursor.mark_delete == 2

    with_door(scenario)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("policy", [CONSUMER, SUBSCRIPTION])
@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_what_waits_for_an_end_does_not_count_as_unacknowledged(
    with_door: WithDoor, kind: int, policy: str, action: "TxnAction"
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **{policy: 4})
        client = await door.connected()
        ids = await publish(client, 9)
        await subscribe(client, subType=kind)
        assert entries(await messages(client, 4)) == [0, 1, 2, 3]
        await quiet(client)
        transaction = await begin(client)
        client.say(acknowledgement(*ids[:3], txnid_least_bits=transaction, txnid_most_bits=0))
        assert entries(await messages(client, 3)) == [4, 5, 6]
        await quiet(client)
        assert _unacked(door) == (4, 4)
        client.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))  # but those that wait
        assert entries(await messages(client, 4)) == [3, 4, 5, 6]
        assert _unacked(door) == (4, 4)
        await end(await door.connected(), transaction, action)
        if action == COMMIT:
            await quiet(client)
            assert _unacked(door) == (4, 4)
            client.say(acknowledgement(*ids[3:7]))
            assert entries(await messages(client, 2)) == [7, 8]
            assert _unacked(door) == (2, 2)
        else:
            waiting = (
                4 if policy == CONSUMER else 7
            )  # what was delivered before goes out over the subscription's limit
            assert _unacked(door) == (waiting, waiting)
            client.say(acknowledgement(*ids[3:7]))
            assert entries(await messages(client, 3)) == [0, 1, 2]
            client.say(acknowledgement(*ids[:3]))
            assert entries(await messages(client, 2)) == [7, 8]
            await quiet(client)
            assert _unacked(door) == (2, 2)

    with_door(scenario)


def test_of_a_batch_only_what_waits_does_not_count(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED, messages=4)
        transaction = await begin(client)
        first = MessageIdData(ledgerId=ids[0].ledgerId, entryId=0, ack_set=[0b1100])
        await acknowledge(client, transaction, first)
        assert _unacked(door) == (10, 10)
        client.say(acknowledgement(MessageIdData(ledgerId=ids[0].ledgerId, entryId=0, ack_set=[0b1011])))
        client.say(acknowledgement(ids[1]))
        await end(await door.connected(), transaction, COMMIT)
        client.say(acknowledgement(MessageIdData(ledgerId=ids[0].ledgerId, entryId=0, ack_set=[0])))
        await quiet(client)
        assert _unacked(door) == (4, 4)

    with_door(scenario)


def _unacked(door: PulsarDoor) -> tuple[int, int]:
    """Of the only consumer, and of its subscription."""
    (found,) = door.broker.subscriptions.of(partition_of(door))
    assert isinstance(found.dispatcher, MultiConsumerDispatcher)
    return found.consumers[0].state.unacked_messages, found.dispatcher.unacked_messages


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_any_number_of_ids_is_acknowledged_at_once(with_door: WithDoor, kind: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, kind, messages=1)
        transaction = await begin(client)
        many = [ids[0]] * (3 * IDS_AT_ONCE) + [ids[2]]
        assert not (await acknowledge(client, transaction, *many)).HasField("error")
        await end(client, transaction, COMMIT)
        assert _backlog(door) == 1

    with_door(scenario)


def test_there_is_an_end_to_what_one_transaction_acknowledges_at_once(
    with_door: WithDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_transactions, "ACKED_MAX", IDS_AT_ONCE)

    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        many = [ids[0]] * (IDS_AT_ONCE + 1)
        assert (await acknowledge(client, transaction, *many)).error == ServerError.NotAllowedError
        await end(client, transaction, COMMIT)
        assert _backlog(door) == 3

    with_door(scenario)


@pytest.mark.parametrize("is_open", [True, False], ids=["with a consumer", "without"])
def test_another_subscription_of_the_name_has_nothing_of_what_waits(
    with_door: WithDoor, is_open: bool
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids)
        if not is_open:
            await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
            await quiet(client)
        await door.broker.subscriptions.delete(partition_of(door), "s", force=True)
        ((_, stored),) = await door.metadata.scan("/pulsar-transactions/")
        assert json.loads(stored.value)["acks"] == []
        other = await door.connected()
        await subscribe(other)
        assert await _got(other, 3) == [0, 1, 2]
        await end(other, transaction, COMMIT)
        assert _backlog(door) == 3

    with_door(scenario)


def test_another_topic_of_the_name_has_nothing_of_what_waits(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids)
        await door.broker.delete_topic(topic_of(door))
        other, _ = await _consuming(door, SHARED)
        await end(other, transaction, COMMIT)
        assert _backlog(door) == 3

    with_door(scenario)


def test_one_message_that_waits_is_taken_out_of_the_counts_once(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        await acknowledge(client, transaction, ids[1])
        assert _unacked(door) == (2, 2)
        await end(client, transaction, COMMIT)
        assert _unacked(door) == (2, 2)

    with_door(scenario)


def test_what_waits_does_not_count_at_a_consumer_that_takes_over(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, ids = await _consuming(door, SHARED)
        transaction = await begin(client)
        await acknowledge(client, transaction, *ids[:2])
        other = await door.connected()
        await subscribe(other, 2, subType=SHARED)
        await client.ask(CommandCloseConsumer(consumer_id=1, request_id=12), BaseCommand.SUCCESS)
        assert await _got(other, 1) == [2]
        assert _unacked(door) == (1, 1)

    with_door(scenario)

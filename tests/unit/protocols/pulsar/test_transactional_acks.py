"""What a consumer acknowledges in a transaction: when it counts, and who gets the messages meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_consuming import EXCLUSIVE, FULL, SHARED, publish, subscribe
from tests.unit.protocols.pulsar.transacting import ABORT, COMMIT, acknowledge, begin, end

WithDoor = Callable[..., None]


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

"""What the coordinator of Pulsar's transactions takes into a transaction, and what it refuses."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.transactions import pulsar_model
from magnetar.broker.transactions.errors import (
    InvalidTransactionStatus,
    TooManyTransactions,
    TransactionConflict,
    TransactionNotFound,
    TransactionTimeoutTooLong,
)
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from tests.unit.broker.transactions.pulsar_world import ALICE, KEY, TOPIC, World, play, settle


def test_a_time_out_may_be_as_long_as_the_setting_says_and_no_longer() -> None:
    async def scenario(world: World) -> None:
        longest_ms = TransactionSettings().pulsar_transaction_max_timeout_ms
        with pytest.raises(TransactionTimeoutTooLong):
            await world.transactions.begin(ALICE, longest_ms + 1)
        assert world.transactions.all == []
        await world.transactions.begin(ALICE, longest_ms)

    play(scenario)


def test_numbers_for_administrators_begin_at_none_and_follow_each_step() -> None:
    async def scenario(world: World) -> None:
        transactions = world.transactions
        assert (transactions.last_id, transactions.low_water_mark) == (-1, -1)
        assert transactions.counts.written == 0
        transaction = await world.begin()
        assert (transactions.last_id, transactions.low_water_mark) == (transaction, transaction - 1)
        assert transactions.counts.written == 2
        await transactions.end(transaction, ALICE, commit=True)
        assert (transactions.last_id, transactions.low_water_mark) == (transaction, transaction)
        assert (transactions.counts.written, transactions.counts.committed) == (3, 1)
        assert not transactions._open_of, "nobody is remembered who has nothing open"

    play(scenario)


def test_of_a_subscription_nobody_acknowledges_twice() -> None:
    async def scenario(world: World) -> None:
        await world.cursors.commit({KEY: Cursor(1)})
        first, second = await world.begin(), await world.begin()
        refused = pytest.raises(TransactionConflict)
        with refused:
            await world.acknowledge(first, (0, 1))
        await world.acknowledge(first, (1, 3))
        for transaction, taken in ((first, (2, 4)), (second, (2, 4)), (first, (1, 3)), (second, (0, 5))):
            with refused:
                await world.acknowledge(transaction, taken)
        await world.acknowledge(first, (1, 4), cumulative=True)
        for transaction, taken in ((first, (1, 4)), (second, (1, 5))):
            with refused:
                await world.acknowledge(transaction, taken, cumulative=True)
        assert world.pending.of(first) == {KEY: [(1, 4)]}
        assert world.pending.of(second) == {}

    play(scenario)


@pytest.mark.parametrize("what", ["partitions", "ranges"])
def test_what_is_taken_fits_into_the_record_and_the_rest_is_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_model, "RECORD_BYTES_MAX", 4000)

    async def ask(world: World, transaction: int, count: int) -> None:
        if what == "partitions":
            several = [(f"{TOPIC}{transaction}", number) for number in range(count)]
            await world.transactions.add_partitions(transaction, ALICE, several)
        else:
            await world.acknowledge(transaction, *((10 * number, 10 * number + 1) for number in range(count)))

    async def scenario(world: World) -> None:
        await world.cursors.commit({KEY: Cursor(0)})
        is_taken = False
        for count in range(110, 20, -1):
            transaction = await world.transactions.begin(ALICE, 60_000)
            world.metadata.path = f"/pulsar-transactions/{transaction}"
            with contextlib.suppress(TooManyTransactions):
                await ask(world, transaction, count)
                is_taken = True
            stored = await world.stored()
            assert stored is not None
            assert len(stored.encode()) <= 4000
            await world.transactions.end(transaction, ALICE, commit=False)
            if is_taken:
                break
        assert is_taken
        assert count < 110, "one was refused before"

    play(scenario)


def test_so_it_is_for_many_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar_model, "RECORD_BYTES_MAX", 4000)

    async def scenario(world: World) -> None:
        transaction = await world.begin()
        count = 0
        is_refused = False
        while not is_refused:
            key = CursorKey(f"subscription-{count}", TOPIC, 0)
            await world.cursors.commit({key: Cursor(0)})
            try:
                await world.transactions.acknowledge(transaction, ALICE, key, [(0, 1)], cumulative=False)
                count += 1
            except TooManyTransactions:
                is_refused = True
            stored = await world.stored()
            assert stored is not None
            assert len(stored.encode()) <= 4000
        assert count > 20
        assert len(world.pending.of(transaction)) == count
        await world.transactions.end(transaction, ALICE, commit=True)
        assert len(world.told) == count

    play(scenario)


def test_for_others_a_clients_transaction_is_not_there() -> None:
    async def scenario(world: World) -> None:
        await world.cursors.commit({KEY: Cursor(0)})
        transactions, transaction, bob = world.transactions, await world.begin(), "User:bob"
        steps: list[Coroutine[Any, Any, None]] = [
            transactions.add_partitions(transaction, bob, [(TOPIC, 1)]),
            transactions.acknowledge(transaction, bob, KEY, [(0, 1)], cumulative=False),
            transactions.end(transaction, bob, commit=True),
        ]
        for step in steps:
            with pytest.raises(TransactionNotFound):
                await step
        with pytest.raises(TransactionNotFound):
            transactions.check_open(transaction, bob)
        assert transactions.may_write(ALICE, TOPIC, 0, transaction)
        assert not transactions.may_write(bob, TOPIC, 0, transaction)
        await transactions.abort(transaction)  # an administrator
        assert world.marks == [(transaction, False)]

    play(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_decided_cannot_become_the_opposite(commit: bool) -> None:
    async def scenario(world: World) -> None:
        transaction = await world.begin()
        world.markers_wait = True
        ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=commit))
        await settle()
        with pytest.raises(InvalidTransactionStatus):
            await world.transactions.end(transaction, ALICE, commit=not commit)
        again = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=commit))
        await settle()
        assert not again.done()
        world.waiting.pop()(None)
        await asyncio.gather(ending, again)
        assert world.marks == [(transaction, commit)]

    play(scenario)

"""In which order the coordinator of Pulsar's transactions makes its steps durable, and what a failed one leaves."""

import asyncio
from collections.abc import Awaitable

import pytest

from magnetar.base.errors import MetadataError
from magnetar.broker.transactions import pulsar_coordinator
from magnetar.broker.transactions.errors import (
    InvalidTransactionStatus,
    TooManyTransactions,
    TransactionConflict,
    TransactionNotFound,
)
from magnetar.broker.transactions.markers import BACK_OFF_MAX_S
from magnetar.broker.transactions.pulsar_coordinator import CHECK_INTERVAL_S
from magnetar.broker.transactions.pulsar_model import PulsarStatus
from magnetar.ledger.cursor import Cursor
from tests.unit.broker.transactions.pulsar_world import ALICE, KEY, TOPIC, World, play, settle


@pytest.mark.parametrize("commit", [True, False])
def test_no_partition_has_a_marker_before_the_decision_is_durable(commit: bool) -> None:
    async def scenario(world: World) -> None:
        transaction = await world.begin()
        world.metadata.hold()
        ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=commit))
        await settle()
        assert world.marks == []
        with pytest.raises(InvalidTransactionStatus):
            world.transactions.check_open(transaction, ALICE)
        world.metadata.release()
        await ending
        assert world.marks == [(transaction, commit)]

    play(scenario)


def test_a_decision_that_cannot_be_stored_is_none() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.begin()
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await world.transactions.end(transaction, ALICE, commit=True)
        await settle()
        assert world.marks == []
        world.transactions.check_open(transaction, ALICE)
        await world.transactions.end(transaction, ALICE, commit=False)
        assert world.marks == [(transaction, False)]

    play(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_the_record_stays_until_all_partitions_have_their_markers_and_a_start_finishes_it(
    commit: bool,
) -> None:
    async def scenario(world: World) -> None:
        transaction = await world.acknowledging()
        world.markers_wait = True
        ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=commit))
        await settle()
        stored = await world.stored()
        assert stored is not None
        assert stored.status is (PulsarStatus.COMMITTING if commit else PulsarStatus.ABORTING)
        assert world.told == []
        world.markers_wait = False
        ending.cancel()
        await world.restart()
        await settle()
        assert world.marks == [(transaction, commit)] * 2
        assert await world.stored() is None
        cursor = world.cursors.get(KEY)
        assert cursor is not None
        assert cursor.mark_delete == (2 if commit else 0)

    play(scenario)


def test_a_commit_moves_positions_in_the_step_that_removes_its_record() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.acknowledging()
        await world.transactions.end(transaction, ALICE, commit=True)
        assert world.metadata.seen[-2:] == [(True, 0), (False, 2)]
        assert world.told == [(((0, 2),), True)]

    play(scenario)


def test_an_abort_delivers_again_when_its_record_is_gone_and_a_commit_counts_before() -> None:
    """What was delivered again before could be acknowledged twice; what counts is stored with every position."""

    async def scenario(world: World) -> None:
        other = await world.begin()
        for commit in (True, False):
            world.told.clear()
            transaction = await world.begin()
            await world.cursors.commit({KEY: Cursor(0)})
            await world.acknowledge(transaction, (0, 2))
            world.markers_wait = True
            ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=commit))
            await settle()
            world.metadata.hold()
            world.waiting.pop()(None)
            await settle()
            assert world.told == ([(((0, 2),), True)] if commit else [])
            with pytest.raises(TransactionConflict):
                await world.acknowledge(other, (0, 2))
            world.metadata.release()
            await ending
            assert world.told == [(((0, 2),), commit)]
            world.markers_wait = False

    play(scenario)


def test_what_was_asked_while_a_record_was_written_is_in_the_next_one() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.begin()
        world.metadata.hold()
        asked = [
            asyncio.ensure_future(world.transactions.add_partitions(transaction, ALICE, [(TOPIC, number)]))
            for number in (1, 2)
        ]
        await settle()
        world.metadata.release()
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        stored = await world.stored()
        assert stored is not None
        for number in (1, 2):
            may_write = world.transactions.may_write(ALICE, TOPIC, number, transaction)
            assert may_write is ((TOPIC, number) in stored.partitions)
        await asyncio.gather(*asked)
        stored = await world.stored()
        assert stored is not None
        assert stored.partitions == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)}

    play(scenario)


def test_a_removal_that_fails_is_tried_again_and_counts_once() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.acknowledging()
        world.markers_wait = True
        ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=False))
        await settle()
        world.metadata.fail_next = 1
        world.waiting.pop()(None)
        await settle()
        assert await world.stored() is not None
        assert [one.producer_id for one in world.transactions.all] == [transaction]
        assert world.told == []
        world.clock.advance(BACK_OFF_MAX_S)
        await ending
        await settle()
        assert await world.stored() is None
        assert world.transactions.all == []
        assert world.told == [(((0, 2),), False)]
        counts = world.transactions.counts
        assert (counts.created, counts.aborted, counts.committed, counts.timed_out) == (1, 1, 0, 0)

    play(scenario)


def test_a_client_is_answered_when_what_it_asked_for_is_durable() -> None:
    async def scenario(world: World) -> None:
        await world.cursors.commit({KEY: Cursor(0)})
        transactions = world.transactions
        first = await transactions.begin(ALICE, 60_000)
        steps: list[Awaitable[object]] = [
            transactions.begin(ALICE, 60_000),
            transactions.add_partitions(first, ALICE, [(TOPIC, 0)]),
            world.acknowledge(first, (0, 2)),
        ]
        for step in steps:
            world.metadata.hold()
            asked = asyncio.ensure_future(step)
            await settle()
            assert not asked.done()
            assert not transactions.may_write(ALICE, TOPIC, 0, first) or step is steps[2]
            world.metadata.release()
            await asked
        assert transactions.may_write(ALICE, TOPIC, 0, first)
        before = world.metadata.commit_count
        await transactions.add_partitions(first, ALICE, [(TOPIC, 0)])
        await world.acknowledge(first)
        assert world.metadata.commit_count == before, "what is stored already is not stored again"

    play(scenario)


def test_a_transaction_that_could_not_be_stored_takes_no_room() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await world.transactions.begin(ALICE, 60_000)
        world.metadata.hold()
        begun = asyncio.ensure_future(world.transactions.begin(ALICE, 60_000))
        await settle()
        begun.cancel()
        await settle()
        assert len(world.transactions.all) == 1
        assert world.transactions._open_of == {ALICE: 1}
        assert world.transactions.counts.created == 1

    play(scenario)


def test_a_transaction_has_its_whole_time_and_is_aborted_after_it_as_soon_as_that_can_be_stored() -> None:
    async def scenario(world: World) -> None:
        world.clock.advance(5.0)
        transaction = await world.begin()
        world.clock.advance(60.0)
        await settle()
        world.transactions.check_open(transaction, ALICE)
        world.metadata.fail_next = 1
        world.clock.advance(CHECK_INTERVAL_S)
        await settle()
        world.transactions.check_open(transaction, ALICE)
        assert world.transactions.counts.timed_out == 0
        world.clock.advance(CHECK_INTERVAL_S)
        await settle()
        with pytest.raises(TransactionNotFound):
            world.transactions.check_open(transaction, ALICE)
        assert world.marks == [(transaction, False)]
        counts = world.transactions.counts
        assert (counts.aborted, counts.timed_out) == (1, 1)

    play(scenario)


def test_a_subscription_that_is_dropped_while_a_transaction_leaves_does_not_bring_its_record_back() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.acknowledging()
        world.markers_wait = True
        ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=False))
        await settle()
        world.metadata.hold()
        world.waiting.pop()(None)
        await settle()
        dropping = asyncio.ensure_future(world.cursors.drop([KEY]))
        await settle()
        world.transactions.subscriptions_dropped([KEY])
        world.metadata.release()
        await dropping
        await ending
        await settle()
        assert await world.stored() is None
        assert world.told == [], "nobody is there to deliver to"

    play(scenario)


def test_a_dropped_subscription_is_out_of_the_record_also_after_a_removal_that_failed() -> None:
    """A start would acknowledge in the new subscription of the name what was acknowledged in the old one."""

    async def scenario(world: World) -> None:
        transaction = await world.acknowledging()
        world.markers_wait = True
        ending = asyncio.ensure_future(world.transactions.end(transaction, ALICE, commit=False))
        await settle()
        world.metadata.fail_next = 1
        world.waiting.pop()(None)
        await settle()
        await world.cursors.drop([KEY])
        await settle()
        stored = await world.stored()
        assert stored is not None
        assert stored.acks == {}
        world.clock.advance(BACK_OFF_MAX_S)
        await ending
        await settle()
        assert await world.stored() is None

    play(scenario)


def test_a_start_knows_when_it_read_and_leaves_out_what_is_damaged() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.acknowledging()
        await world.metadata.put("/pulsar-transactions/7", b"{}")
        world.clock.advance(3.0)
        await world.restart()
        assert [one.producer_id for one in world.transactions.all] == [transaction]
        assert world.transactions._open_of == {ALICE: 1}
        assert world.transactions.recovered_ms == (world.clock.now_ms(),) * 2
        assert world.transactions.last_id == transaction
        with pytest.raises(TransactionConflict):
            await world.acknowledge(await world.transactions.begin(ALICE, 60_000), (0, 2))

    play(scenario)


def test_a_dropped_subscription_whose_record_cannot_be_written_now_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await world.acknowledging()
        await world.cursors.drop([KEY])
        await settle()
        assert not caplog.records
        transaction = await world.acknowledging()
        world.transactions.subscriptions_dropped([KEY])
        world.metadata.fail_next = 1
        await settle()
        assert "a transaction's record is not stored yet: the metadata store cannot" in caplog.text
        await world.transactions.add_partitions(transaction, ALICE, [(TOPIC, 0)])
        stored = await world.stored()
        assert stored is not None
        assert stored.acks == {}, "the next request does it, also one that changes nothing"

    play(scenario)


def test_a_refused_client_uses_up_no_id() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.begin()
        for _ in range(3):
            with pytest.raises(TooManyTransactions):
                await world.transactions.begin(ALICE, 60_000)
        await world.transactions.end(transaction, ALICE, commit=True)
        assert await world.begin() == transaction + 1

    play(scenario, open_max=1)


def test_behind_its_close_the_coordinator_does_nothing() -> None:
    async def scenario(world: World) -> None:
        late, deciding = await world.begin(), await world.begin()
        world.markers_wait = True
        ending = asyncio.ensure_future(world.transactions.end(deciding, ALICE, commit=True))
        await settle()
        assert world.marks == [(deciding, True)]
        await world.transactions.close()
        assert not [one for one in asyncio.all_tasks() if one.get_name().startswith("end (0,")]
        world.waiting.pop()(None)
        world.clock.advance(60.0 + 2 * CHECK_INTERVAL_S)
        await settle()
        await ending
        assert world.marks == [(deciding, True)]
        assert len(await world.metadata.scan("/pulsar-transactions/")) == 2
        world.transactions.check_open(late, ALICE)

    play(scenario)


def test_an_end_that_a_fault_of_ours_has_stopped_makes_the_server_unhealthy() -> None:
    async def scenario(world: World) -> None:
        transaction = await world.begin()
        assert world.upkeep.problem is None
        world.fault = RuntimeError("ours")
        await world.transactions.end(transaction, ALICE, commit=True)
        assert "transactions: end (0," in (world.upkeep.problem or "")
        assert await world.stored() is not None, "the next start ends it"

    play(scenario)


def test_very_many_open_transactions_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar_coordinator, "_LOOKED_AT_ONCE", 2)

    async def scenario(world: World) -> None:
        for _ in range(10):
            await world.transactions.begin(ALICE, 60_000)
        looking = asyncio.ensure_future(world.transactions._abort_late())
        turns = 0
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
            assert turns < 20
        assert turns > 5

    play(scenario)

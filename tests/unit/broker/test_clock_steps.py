"""What a wall clock that is set forward, or back, does to data, positions and transactions: nothing."""

import asyncio
from typing import Any

import pytest

from magnetar.base.expiry_time import ACCEPT_S
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import TransactionState
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.transactions import TransactionDriver

from .test_producer_state import batch, settle
from .test_topics import NAME, World

DAY_S = 86_400
YEAR_S = 365 * DAY_S
GROUP = CursorKey("group", NAME.full, 0)
SUBSCRIPTION = CursorKey("subscription", NAME.full, 0)


class Stepped(World):
    """A topic with one record in a ledger of its own, a group that has read it, and a producer that is known."""

    async def begin(self) -> None:
        await self.start()
        topics = self.broker.topics
        configs = {"message.timestamp.after.max.ms": str(1 << 50)}
        await topics.create([topics.plan(NewTopic(NAME, 1, configs=configs))])
        self.partition.log.limits.entry_count_max = 1
        self.produce(self.partition, [], producer_id=7)
        await settle()
        now_ms = self.clock.now_ms()
        await self.broker.cursors.commit({GROUP: Cursor(1, commit_timestamp_ms=now_ms)})

    @property
    def partition(self) -> Any:
        return self.broker.topics.get(NAME).partition(0)

    async def run_for(self, seconds: int, step_s: int = 10) -> None:
        for _ in range(seconds // step_s):
            self.clock.advance(step_s)
            await self.broker.upkeep.idle()

    async def keeps_all(self) -> bool:
        """After a pass of everything that deletes for age."""
        await self.broker.retention.run_once()
        await self.broker.groups.expire()
        await self.broker.housekeeping.run_once()
        await settle()
        kept = [
            bool(self.partition.log.log_start == 0),
            self.broker.cursors.get(GROUP) is not None,
            len(self.partition.producers) == 1,
        ]
        assert kept in ([True] * 3, [False] * 3), kept
        return kept[0]


def test_a_clock_set_a_year_ahead_deletes_nothing_before_an_hour_has_passed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        world = Stepped()
        await world.begin()
        world.clock.step(YEAR_S)
        assert await world.keeps_all()
        await world.run_for(int(ACCEPT_S) - 60)
        assert await world.keeps_all()
        assert "The clock jumped ahead" in (world.broker.expiry_time.problem or "")
        assert caplog.text.count("The clock jumped ahead") == 1
        await world.run_for(120)
        assert not await world.keeps_all()
        assert world.broker.expiry_time.problem is None
        await world.broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "policy", [{"message_ttl_in_seconds": 7200}, {"subscription_expiration_time_minutes": 180}]
)
def test_a_clock_set_a_year_ahead_costs_no_subscription_a_message(policy: dict[str, Any]) -> None:
    async def scenario() -> None:
        world = Stepped()
        await world.begin()
        held = Cursor(0, commit_timestamp_ms=world.clock.now_ms(), holds_data=True)
        await world.broker.cursors.commit({SUBSCRIPTION: held})
        await world.broker.namespaces.change(NAME.namespace_name, lambda _: policy)

        async def is_kept() -> bool:
            await world.broker.housekeeping.run_once()
            cursor = world.broker.cursors.get(SUBSCRIPTION)
            return cursor is not None and cursor.mark_delete == 0

        world.clock.step(YEAR_S)
        assert await is_kept()
        await world.run_for(int(ACCEPT_S) - 60)
        assert await is_kept()
        await world.run_for(120)
        assert not await is_kept()
        await world.broker.stop()

    asyncio.run(scenario())


def test_consumers_have_time_to_come_back_to_a_server_that_was_away() -> None:
    async def scenario() -> None:
        world = Stepped()
        await world.begin()
        policy = {"subscription_expiration_time_minutes": 10}
        await world.broker.namespaces.change(NAME.namespace_name, lambda _: policy)
        held = Cursor(0, commit_timestamp_ms=world.clock.now_ms(), holds_data=True)
        await world.broker.cursors.commit({SUBSCRIPTION: held})
        await world.broker.stop()
        world.clock.step(1800)
        await world.start()
        await world.run_for(590)
        assert world.broker.cursors.get(SUBSCRIPTION) is not None
        await world.run_for(30)
        assert world.broker.cursors.get(SUBSCRIPTION) is None
        await world.broker.stop()

    asyncio.run(scenario())


def test_a_clock_that_is_set_right_again_within_the_hour_has_deleted_nothing() -> None:
    async def scenario() -> None:
        world = Stepped()
        await world.begin()
        for step_s in (YEAR_S, -YEAR_S, -YEAR_S, YEAR_S):
            world.clock.step(step_s)
            await world.run_for(1800)
            assert await world.keeps_all()
        await world.broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_with_a_clock_a_year_ahead_deletes_nothing_for_an_hour(clean: bool) -> None:
    async def scenario() -> None:
        world = Stepped()
        await world.begin()
        await world.run_for(1200)
        if clean:
            await world.broker.stop()
            world.clock.step(YEAR_S)
            await world.start()
        else:
            world.clock.step(YEAR_S)
            await world.crash()
        assert await world.keeps_all()
        await world.run_for(int(ACCEPT_S) - 60)
        assert await world.keeps_all()
        await world.run_for(120)
        assert not await world.keeps_all()
        await world.broker.stop()

    asyncio.run(scenario())


def test_time_that_passes_deletes_as_ever_and_records_of_the_future_stay() -> None:
    async def scenario() -> None:
        world = Stepped()
        await world.begin()
        now_ms = world.clock.now_ms()
        world.produce(world.partition, [])  # the last one of the first ledger
        await settle()
        future = batch(1, -1, -1, -1, now_ms + 30 * DAY_S * 1000)
        world.partition.append(future, now_ms, lambda _: None)
        await settle()
        await world.run_for(8 * DAY_S, 3600)
        await world.broker.retention.run_once()
        assert world.partition.log.log_start == 2
        world.clock.step(YEAR_S)
        await world.broker.retention.run_once()
        assert world.partition.log.log_start == 2
        await world.broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("step_s", [YEAR_S, -YEAR_S])
def test_a_transaction_times_out_by_the_time_that_has_passed_wherever_the_clock_is_set(step_s: int) -> None:
    with TransactionDriver() as driver:
        producer = driver.init("id", timeout_ms=60_000)
        driver.add("id", producer, ("t", 0))
        driver.advance(5)
        driver.clock.step(step_s)
        driver.advance(50)
        assert driver.state("id") is TransactionState.ONGOING
        driver.advance(10)
        assert driver.state("id") is TransactionState.COMPLETE_ABORT
        # The next one, under the clock as it is now.
        producer = driver.init("id", timeout_ms=60_000)
        driver.add("id", producer, ("t", 0))
        driver.advance(50)
        assert driver.state("id") is TransactionState.ONGOING
        driver.advance(15)
        assert driver.state("id") is TransactionState.COMPLETE_ABORT


def test_two_transactions_that_begin_at_one_time_of_the_clock_have_the_whole_time_out_each() -> None:
    with TransactionDriver() as driver:
        producer = driver.init("id", timeout_ms=60_000)
        for _ in range(3):
            driver.add("id", producer, ("t", 0))
            driver.advance(50)
            assert driver.end("id", producer, commit=True) is TransactionError.NONE
            driver.clock.step(-50)


def test_a_transaction_goes_on_counting_over_a_restart() -> None:
    with TransactionDriver() as driver:
        producer = driver.init("id", timeout_ms=60_000)
        driver.add("id", producer, ("t", 0))
        driver.advance(40)
        driver.restart()
        driver.advance(15)
        assert driver.state("id") is TransactionState.ONGOING
        driver.advance(10)
        assert driver.state("id") is TransactionState.COMPLETE_ABORT

"""Transactions that take the messages of one subscription, while consumers come and go, writes fail and the server is
killed: no message is taken by two transactions that commit, and each that none has taken comes again.
"""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from magnetar.base.errors import BrokerError
from magnetar.broker.subscriptions.model import (
    AckedId,
    ConsumerSpec,
    Delivery,
    InitialPosition,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.transactions.markers import BACK_OFF_MAX_S
from magnetar.broker.transactions.pulsar_model import ROOT, PulsarStatus, PulsarTransaction
from magnetar.metadata.store import Change
from tests.unit.broker.subscriptions.driver import Client, World, settle

OWNER = "User:taker"
STEPS = 150
MESSAGES = 8
STEPS_BY_WEIGHT = {
    "come": 10,
    "go": 6,
    "take": 14,
    "end": 16,
    "round": 40,
    "fail": 2,
    "redeliver": 6,
    "wait": 6,
    "kill": 3,
}


class Taker(Client):
    """A consumer, and all that it was ever sent."""

    def __init__(self, taking: "Taking", name: str) -> None:
        super().__init__(taking.world, name)
        self.taking = taking
        self.is_here = False

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        super().deliver(deliveries)
        if self.is_here:  # and not of a server that was killed
            for one in deliveries:
                self.taking.delivered((one.ledger_id, one.entry_id))


class Taking:
    """See the module's text."""

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.choose = random.Random(seed)
        self.faults: list[str] = []
        self._offsets: dict[tuple[int, int], int] = {}
        self._committed: dict[str, set[int]] = {}  # what each has taken, by the path of its record
        self._takers: list[Taker] = []
        self._open: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._names = 0

    async def run(self) -> None:
        world = await self.world.start()
        await world.publish(MESSAGES)
        self._offsets = {await world.position_at(offset): offset for offset in range(MESSAGES)}
        self._watch()
        kinds, weights = list(STEPS_BY_WEIGHT), list(STEPS_BY_WEIGHT.values())
        for _ in range(STEPS):
            (kind,) = self.choose.choices(kinds, weights)
            await getattr(self, f"_{kind}")()
            await settle()
            assert not self.faults
        await self._check_in_the_end()
        await world.stop()

    # --- what is known of it -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self.world.metadata.watch(ROOT, self._stored)
        self.world.metadata.hold()

    def _stored(self, change: Change) -> None:
        """A record was written: a durable decision is where its transaction takes its messages."""
        if change.value is None:
            return
        transaction = PulsarTransaction.decode(change.path, change.value.value, 0, 0.0)
        if transaction.status is not PulsarStatus.COMMITTING:
            return
        taken = {
            offset
            for _, acknowledged in transaction.acks.values()
            for start, end in acknowledged.ranges
            for offset in range(start, end)
        }
        for path, others in self._committed.items():
            if path != change.path and taken & others:
                self.faults.append(f"{path} and {change.path} have both taken {taken & others}")
        self._committed[change.path] = taken

    def delivered(self, position: tuple[int, int]) -> None:
        offset = self._offsets[position]
        for path, taken in self._committed.items():
            if offset in taken and path not in self.world.metadata._values:
                self.faults.append(f"{offset} came again behind the end of {path}")

    async def _check_in_the_end(self) -> None:
        await self._kill()
        world = self.world
        world.metadata.release()
        for transaction in list(world.broker.pulsar_transactions.all):
            if transaction.is_open:
                await world.broker.pulsar_transactions.end(transaction.producer_id, OWNER, commit=False)
        await world.advance(BACK_OFF_MAX_S)
        assert world.broker.pulsar_transactions.all == []
        last = await world.sub(kind=SubscriptionType.SHARED)
        found = {self._offsets[one] for one in last.positions}
        assert found == set(range(MESSAGES)) - set().union(*self._committed.values())
        assert not self.faults

    # --- steps -------------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        async def refused_or_done() -> None:
            with contextlib.suppress(BrokerError):  # it is answered with an error
                await work

        task = asyncio.create_task(refused_or_done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _come(self) -> None:
        if len(self._takers) > 1:
            return
        self._names += 1
        taker = Taker(self, f"c{self._names}")
        self._takers.append(taker)
        self._begin(self._subscribe(taker))

    async def _subscribe(self, taker: Taker) -> None:
        wanted = SubscribeRequest(
            "s",
            ConsumerSpec(taker.name, SubscriptionType.SHARED),
            initial_position=InitialPosition.EARLIEST,
        )
        world = self.world
        try:
            taker.member = await world.broker.subscriptions.subscribe(world.partition, wanted, taker)
        except BrokerError:
            if taker in self._takers:
                self._takers.remove(taker)
            raise
        if taker in self._takers:  # the server was not killed meanwhile
            taker.is_here = True
            taker.flow()

    def _one_here(self) -> Taker | None:
        here = [one for one in self._takers if one.is_here]
        return self.choose.choice(here) if here else None

    async def _go(self) -> None:
        taker = self._one_here()
        if taker is not None:
            self._takers.remove(taker)
            taker.is_here = False
            self._begin(taker.leave())

    async def _redeliver(self) -> None:
        taker = self._one_here()
        if taker is not None:
            taker.nack()

    async def _take(self) -> None:
        taker = self._one_here()
        if taker is not None and taker.positions:
            known = sorted(set(taker.positions))
            self._begin(self._acknowledge(taker, self.choose.sample(known, min(len(known), 3))))

    async def _acknowledge(self, taker: Taker, positions: Sequence[tuple[int, int]]) -> None:
        world, subscription = self.world, taker.member.subscription
        assert isinstance(subscription, Subscription)
        transactions = world.broker.pulsar_transactions
        transaction = await transactions.begin(OWNER, 600_000)
        self._open.append(transaction)
        for one in positions:
            if not subscription.has(taker.member):
                return  # such a command is refused
            ranges = await subscription.to_acknowledge([AckedId(*one)], cumulative=False)
            await transactions.acknowledge(transaction, OWNER, world.key, ranges, cumulative=False)
            subscription.now_pending(ranges)

    async def _end(self) -> None:
        if self._open:
            transaction = self.choose.choice(self._open)
            commit = self.choose.random() < 0.7
            self._begin(self.world.broker.pulsar_transactions.end(transaction, OWNER, commit=commit))

    async def _round(self) -> None:
        self.world.metadata.release()
        self.world.metadata.hold()

    async def _fail(self) -> None:
        self.world.metadata.fail_next = 1

    async def _wait(self) -> None:
        self.world.clock.advance(self.choose.choice((0.1, 1.0, BACK_OFF_MAX_S)))

    async def _kill(self) -> None:
        for taker in self._takers:
            taker.is_here = False
        self._takers, self._tasks = [], set()
        await self.world.crash()
        self._watch()


FOUND = (228, 247, 398)  # consumers that came in the middle of a commit


@pytest.mark.parametrize("seed", [*range(20), *FOUND])
def test_each_message_is_taken_once(seed: int) -> None:
    asyncio.run(Taking(seed).run())

"""What the coordinator of Pulsar's transactions reads at a start, and how many it lets a client have open."""

import asyncio
import contextlib

import pytest

from magnetar.base.times import Times
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.security.model import ANONYMOUS
from magnetar.broker.subscriptions.pending_acks import PendingAcks, no_offsets
from magnetar.broker.transactions.coordination import Coordination
from magnetar.broker.transactions.errors import TooManyTransactions
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.pulsar_model import PulsarTransaction
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import Put
from magnetar.testing.clock import FakeClock, times_by
from magnetar.testing.metadata import MemoryMetadataStore

KEY = CursorKey("s", "persistent://public/default/t", 0)
HERE, ELSEWHERE = "aa", "bb"  # ids of topics


def coordinator(
    metadata: MemoryMetadataStore,
    times: Times,
    commits: SharedCommits,
    cursors: CursorStore,
    pending: PendingAcks,
) -> PulsarTransactions:
    """Of which ten may be open."""
    return PulsarTransactions(
        Coordination(
            times,
            metadata,
            commits,
            ProducerIds(metadata),
            lambda *_: None,
            TransactionSettings(max_active_transactions_per_coordinator=10),
        ),
        cursors,
        pending,
    )


@pytest.mark.parametrize(
    ("topic_id", "is_there", "waits"), [(HERE, True, True), (HERE, False, False), (ELSEWHERE, True, False)]
)
def test_what_was_acknowledged_waits_only_for_the_subscription_that_it_was_of(
    topic_id: str, is_there: bool, waits: bool
) -> None:
    """A kill may come between the deletion of a subscription and that of its acknowledgements."""

    async def main() -> None:
        metadata, clock = MemoryMetadataStore(), FakeClock()
        commits = SharedCommits(metadata)
        cursors = CursorStore(metadata, commits, lambda _: HERE)
        if is_there:
            await cursors.commit({KEY: Cursor(0)})
        transaction = PulsarTransaction(5, "User:alice", 60_000, clock.now_ms(), clock.monotonic())
        acknowledged = no_offsets()
        acknowledged.ack_individual([(0, 2)])
        transaction.acks = {KEY: (topic_id, acknowledged)}
        await metadata.commit([Put(transaction.path, transaction.encode())])
        pending = PendingAcks()
        times = times_by(clock)
        transactions = coordinator(metadata, times, commits, cursors, pending)
        await transactions.load()
        assert (KEY in pending.by_key) is waits
        assert (transactions.last_id, transactions.low_water_mark) == (5, 4)
        await transactions.close()
        await times.upkeep.stop()

    asyncio.run(main())


def test_whoever_comes_next_finds_room_for_a_transaction() -> None:
    """A client with a name has half of what others leave, also after a start; those without one share all."""

    async def main() -> None:
        metadata, clock = MemoryMetadataStore(), FakeClock()

        times = times_by(clock)

        def opened() -> PulsarTransactions:
            commits = SharedCommits(metadata)
            cursors = CursorStore(metadata, commits, lambda _: HERE)
            return coordinator(metadata, times, commits, cursors, PendingAcks())

        async def as_many_as_may_be(owner: str) -> list[int]:
            found: list[int] = []
            with contextlib.suppress(TooManyTransactions):
                while len(found) < 20:
                    found.append(await transactions.begin(owner, 60_000))
            return found

        transactions = opened()
        await transactions.load()
        greedy = await as_many_as_may_be("User:greedy")
        assert len(greedy) == 5
        assert len(await as_many_as_may_be("User:bob")) == 3
        for ended in greedy[:2]:
            await transactions.end(ended, "User:greedy", commit=False)
        assert len(await as_many_as_may_be("User:greedy")) == 1
        await transactions.close()

        transactions = opened()
        await transactions.load()
        assert len(await as_many_as_may_be("User:bob")) == 0
        assert len(await as_many_as_may_be(str(ANONYMOUS))) == 3
        await transactions.close()
        await times.upkeep.stop()

    asyncio.run(main())

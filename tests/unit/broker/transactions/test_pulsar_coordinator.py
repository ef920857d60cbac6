"""What the coordinator of Pulsar's transactions reads at a start."""

import asyncio

import pytest

from magnetar.base.upkeep import Upkeep
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.subscriptions.pending_acks import PendingAcks, no_offsets
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.pulsar_model import PulsarTransaction
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import Put
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

KEY = CursorKey("s", "persistent://public/default/t", 0)
HERE, ELSEWHERE = "aa", "bb"  # ids of topics


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
        upkeep = Upkeep(clock)
        transactions = PulsarTransactions(
            clock,
            metadata,
            commits,
            ProducerIds(metadata),
            lambda *_: None,
            cursors,
            pending,
            lambda *_: None,
            TransactionSettings(),
            upkeep,
            clock.now_ms,
        )
        await transactions.load()
        assert (KEY in pending.by_key) is waits
        assert (transactions.last_id, transactions.low_water_mark) == (5, 4)
        await transactions.close()
        await upkeep.stop()

    asyncio.run(main())

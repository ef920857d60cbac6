"""A coordinator of Pulsar's transactions, and the one partition that its transactions write to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.broker.transactions.coordination import Coordination
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.pulsar_model import PulsarTransaction
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import CommitStep
from magnetar.storage.store import Done
from magnetar.testing.clock import FakeClock, times_by
from magnetar.testing.metadata import MemoryMetadataStore

TOPIC = "persistent://public/default/t"
KEY = CursorKey("s", TOPIC, 0)
ALICE = "User:alice"


class NotedMetadata(MemoryMetadataStore):
    """It notes after each commit whether the transaction's record is there, and the position of the subscription."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, int]] = []
        self.path = ""

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        await super().commit(operations)
        cursors = [Cursor.decode(one.value).mark_delete for _, one in await self.scan("/cursors/")]
        self.seen.append((await self.get(self.path) is not None, cursors[0] if cursors else -1))


class World:
    """See the module's text."""

    def __init__(self, open_max: int) -> None:
        self.metadata = NotedMetadata()
        self.open_max = open_max
        self.clock = FakeClock()
        self.marks: list[tuple[int, bool]] = []
        self.markers_wait = False
        self.fault: Exception | None = None  # of the partition
        self.waiting: list[Done] = []
        self.told: list[tuple[tuple[Range, ...], bool]] = []
        self.times = times_by(self.clock)
        self.upkeep = self.times.upkeep
        self.open()

    def open(self) -> None:
        """As a start does, of what is stored."""
        commits = SharedCommits(self.metadata)
        self.cursors = CursorStore(self.metadata, commits, lambda _: "aa")
        self.pending = PendingAcks()
        self.pending.settled.hear(lambda key, ranges, is_done: self.told.append((tuple(ranges), is_done)))
        self.transactions = PulsarTransactions(
            Coordination(
                self.times,
                self.metadata,
                commits,
                ProducerIds(self.metadata),
                lambda *_: self,
                TransactionSettings(max_active_transactions_per_coordinator=self.open_max),
            ),
            self.cursors,
            self.pending,
        )

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, done: Done
    ) -> None:
        """The partition gets a marker."""
        if self.fault is not None:
            raise self.fault
        self.marks.append((producer_id, commit))
        if self.markers_wait:
            self.waiting.append(done)
        else:
            done(None)

    async def begin(self) -> int:
        """A transaction that has the partition."""
        transaction = await self.transactions.begin(ALICE, 60_000)
        await self.transactions.add_partitions(transaction, ALICE, [(TOPIC, 0)])
        self.metadata.path = f"/pulsar-transactions/{transaction}"
        return transaction

    async def acknowledging(self) -> int:
        """One that has also acknowledged the first two messages of a subscription."""
        await self.cursors.commit({KEY: Cursor(0)})
        transaction = await self.begin()
        await self.acknowledge(transaction, (0, 2))
        return transaction

    async def acknowledge(self, transaction: int, *ranges: Range, cumulative: bool = False) -> None:
        await self.transactions.acknowledge(transaction, ALICE, KEY, ranges, cumulative=cumulative)

    async def stored(self) -> PulsarTransaction | None:
        found = await self.metadata.get(self.metadata.path)
        return None if found is None else PulsarTransaction.decode(self.metadata.path, found.value, 0, 0.0)

    async def restart(self) -> None:
        await self.transactions.close()
        self.open()
        await self.cursors.load()
        await self.transactions.load()


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


def play(scenario: Callable[[World], Awaitable[None]], open_max: int = 100) -> None:
    async def main() -> None:
        world = World(open_max)
        await world.transactions.load()
        await scenario(world)
        world.metadata.release()
        await world.transactions.close()
        await world.upkeep.stop()

    asyncio.run(main())

"""Drives a transaction coordinator by hand: a fake clock, a metadata store in memory, partitions that record markers.

with TransactionDriver() as driver:
    producer = driver.init("id")
    driver.add("id", producer, ("t", 0))
    assert driver.end("id", producer, commit=True) is TransactionError.NONE
    assert driver.markers("t", 0) == [(producer.producer_id, producer.epoch, True)]
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from magnetar.base.errors import StorageError
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.security.model import Principal
from magnetar.broker.transactions.coordination import Coordination
from magnetar.broker.transactions.coordinator import TransactionCoordinator
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import (
    Initialised,
    Producer,
    TopicPartition,
    TransactionRecord,
    TransactionState,
)
from magnetar.broker.transactions.registry import TransactionRegistry
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.storage.store import Done
from magnetar.testing.clock import FakeClock, times_by
from magnetar.testing.groups import DictCatalogue
from magnetar.testing.metadata import MemoryMetadataStore

T = TypeVar("T")

_TURNS = 60  # of the event loop, after which all work without waits is done


class FakePartition:
    """Records its markers; while `refusals` are left it refuses, and while `held` it does not answer."""

    def __init__(self) -> None:
        self.markers: list[tuple[int, int, bool]] = []
        self.refusals = 0
        self.failures = 0
        self.held = False
        self._waiting: list[Done] = []

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, done: Done
    ) -> None:
        assert coordinator_epoch >= 0
        if self.refusals:
            self.refusals -= 1
            raise StorageError("the partition cannot write now")
        if self.failures:
            self.failures -= 1
            done(StorageError("the marker was not stored"))
            return
        self.markers.append((producer_id, epoch, commit))
        if self.held:
            self._waiting.append(done)
        else:
            done(None)

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(None)


class TransactionDriver:
    """A coordinator with everything around it; `restart` loses what is not durable, as a crash does."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.clock = FakeClock()
        self.store = MemoryMetadataStore()
        self.catalogue = DictCatalogue(t=8, u=8)
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.deleted: set[TopicPartition] = set()
        self._loop = asyncio.new_event_loop()
        self.coordinator: TransactionCoordinator
        self.cursors: CursorStore
        self.groups: GroupCoordinator
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.wait(self.coordinator.close())
        self.wait(self.groups.close())
        self._loop.close()

    def _start(self) -> None:
        commits = SharedCommits(self.store)
        self.cursors = CursorStore(self.store, commits)
        times = times_by(self.clock)
        self.groups = GroupCoordinator(
            times, self.store, self.cursors, commits, self.catalogue, GroupSettings()
        )
        self.coordinator = TransactionCoordinator(
            Coordination(times, self.store, commits, ProducerIds(self.store), self._find, self.settings),
            self.groups.offsets,
            TransactionRegistry(self.settings.max_transactions_per_coordinator),
        )
        self.wait(self.cursors.load())
        self.wait(self.groups.start())
        self.wait(self.coordinator.load())
        self.settle()

    def _find(self, topic: str, index: int) -> FakePartition | None:
        return None if (topic, index) in self.deleted else self.partition(topic, index)

    def partition(self, topic: str, index: int) -> FakePartition:
        return self.partitions.setdefault((topic, index), FakePartition())

    def restart(self) -> None:
        """Restart after a crash: unanswered requests have no effect, unless it is durable."""
        self.wait(self.coordinator.close())
        self.wait(self.groups.close())
        self._start()

    # the event loop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin `work`, and run the loop until nothing more happens at this time."""
        task = self._loop.create_task(work)
        self.settle()
        return task

    def settle(self) -> None:
        async def turns() -> None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)

        self.wait(turns())

    def advance(self, seconds: float) -> None:
        async def on_loop() -> None:
            self.clock.advance(seconds)

        self.wait(on_loop())
        self.settle()

    # requests

    def ask_init(
        self,
        name: str,
        claimed: Producer | None = None,
        timeout_ms: int = 60_000,
        owner: Principal | None = None,
    ) -> Initialised:
        return self.wait(self.coordinator.init_producer(name, timeout_ms, claimed, owner))

    def init(
        self,
        name: str,
        claimed: Producer | None = None,
        timeout_ms: int = 60_000,
        owner: Principal | None = None,
    ) -> Producer:
        answer = self.ask_init(name, claimed, timeout_ms, owner)
        assert answer.error is TransactionError.NONE, answer
        return Producer(answer.producer_id, answer.epoch)

    def add(self, name: str, producer: Producer, *partitions: TopicPartition) -> TransactionError:
        return self.wait(self.coordinator.add_partitions(name, producer, partitions))

    def add_group(self, name: str, producer: Producer, group_id: str) -> TransactionError:
        return self.wait(self.coordinator.add_group(name, producer, group_id))

    def commit_offsets(
        self,
        name: str,
        producer: Producer,
        group_id: str,
        *offsets: OffsetToCommit,
        adds_group: bool = False,
        **member: Any,
    ) -> list[GroupError | TransactionError]:
        request = CommitRequest(group_id, offsets, **member)
        asked = self.coordinator.commit_offsets(name, producer, request, adds_group=adds_group)
        return list(self.wait(asked))

    def end(self, name: str, producer: Producer, *, commit: bool) -> TransactionError:
        return self.wait(self.coordinator.end(name, producer, commit=commit))

    def end_and_renew(self, name: str, producer: Producer, *, commit: bool) -> Initialised:
        return self.wait(self.coordinator.end_and_renew(name, producer, commit=commit))

    # what can be seen

    def record(self, name: str) -> TransactionRecord:
        record = self.coordinator.describe(name)
        assert record is not None, name
        return record

    def state(self, name: str) -> TransactionState:
        return self.record(name).state

    def markers(self, topic: str, index: int) -> list[tuple[int, int, bool]]:
        return self.partition(topic, index).markers

    def committed(self, group_id: str, topic: str, index: int) -> int | None:
        cursor = self.cursors.get(CursorKey(group_id, topic, index))
        return None if cursor is None else cursor.committed_offset

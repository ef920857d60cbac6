"""What Kafka's door holds of topics and partitions: handles, given by the use cases that ask for the right.

A handle has only what its right allows and the door uses: with DESCRIBE the door sees where partitions begin and end,
with WRITE it appends, with READ it reads.  Nothing checks the right again when the door uses the handle.

Behind each handle is the broker's own object (`Topic`, `Partition`, `ManagedLedger`), which fits by its shape; mypy
compares them where a use case returns one.  So there is no call between the door and the log.
"""

from collections.abc import Callable, Hashable, Sequence, Set
from typing import Any, Protocol

from magnetar.base.names import TopicName
from magnetar.broker.interop.partition import ConvertedLog, ConvertedPartition
from magnetar.broker.log.model import AbortedRange, Appended, KnownProducer
from magnetar.ledger.chain import EpochEnd
from magnetar.ledger.entry import Entry
from magnetar.storage.store import Done

# --- partitions ------------------------------------------------------------------------------------------------------


class LogEnds(Protocol):
    """Where a partition's log begins and ends, and its leader epochs."""

    @property
    def log_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def leader_epoch(self) -> int:
        """The current one."""
        ...

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that the record at `offset` was, or will be, written under."""
        ...

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Where `leader_epoch` ended; None if the log has not reached it, or if there is no such epoch."""
        ...


class PartitionHandle(Protocol):
    """A partition of a topic that the caller may describe."""

    @property
    def leader_id(self) -> int:
        """The node that leads it."""
        ...

    @property
    def log(self) -> LogEnds: ...
    @property
    def last_stable_offset(self) -> int:
        """Every transaction below it is decided: readers of committed records may read up to here."""
        ...

    def check_committed(self, offset: int) -> None:
        """Check that the broker knows what a reader of committed records may see at `offset`, once there is a record.

        Raises:
            EntryCorrupt, StorageError
        """
        ...


class WritablePartition(PartitionHandle, Protocol):
    """A partition of a topic that the caller may write to."""

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        done: Done,
        *,
        transactional_id: str | None = None,
        keys_known: bool = False,
    ) -> Appended:
        """Append one record batch, and keep its memory; `done` is called when it is durable or has failed.

        As `Partition.append`, also in what it raises.
        """
        ...

    def check_first(self, producer_id: int, epoch: int, sequence: int) -> None:
        """As `Partition.check_first`."""
        ...

    def owed_s(self) -> float:
        """How many seconds its producers have to wait, because they have sent more than the rate allows."""
        ...


class ReadableEntries(LogEnds, ConvertedLog, Protocol):
    """The log of a partition that the caller may read: `read_cached`, else `read`."""

    @property
    def next_offset(self) -> int:
        """The offset of the next entry that is appended.  Entries from `high_watermark` on are not durable yet."""
        ...


class DispatchTurns(Protocol):
    """How fast readers that take turns may read a partition; as `DispatchLimit`."""

    def admits(self, reader: Hashable) -> bool:
        """Whether the reader may read something now."""
        ...

    def fitting(self, entries: Sequence[Entry]) -> int:
        """How many of these entries it may read."""
        ...

    def used(self, messages: int, size: int) -> None:
        """The reader has read this much."""
        ...

    def wait(self, reader: Hashable, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, when the reader's turn has come."""
        ...

    def pass_turn(self, reader: Hashable) -> None:
        """The reader has read all that there is."""
        ...

    def leave(self, reader: Hashable) -> None:
        """The reader no longer waits."""
        ...


class Aborted(Protocol):
    """The outcome of transactions."""

    def any_aborted(self, offset: int, end_offset: int) -> bool:
        """Whether `aborted_between` gives any."""
        ...

    def aborted_between(
        self, offset: int, end_offset: int, producers: Set[int] | None = None
    ) -> list[AbortedRange]:
        """The aborted ones that have records or their marker in `offset` (inclusive) to `end_offset`; of these
        producers (None: all).
        """
        ...


class ReadablePartition(PartitionHandle, ConvertedPartition, Protocol):
    """A partition of a topic that the caller may read; what it reads passes through `ReadCases.kafka_form`."""

    @property
    def log(self) -> ReadableEntries: ...
    @property
    def transactions(self) -> Aborted: ...
    @property
    def uncertain(self) -> object | None:
        """None while the broker knows the outcome of all transactions; otherwise `check_committed` refuses what it
        does not know.
        """
        ...

    @property
    def known_producers(self) -> Sequence[KnownProducer]:
        """The idempotent producers whose last batches the partition remembers."""
        ...

    @property
    def batch_bytes_max(self) -> int:
        """The largest size of an entry."""
        ...

    @property
    def dispatch_limit(self) -> DispatchTurns | None:
        """How fast it may be read; None if there is no limit."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it was deleted, or the server stops."""
        ...

    @property
    def waiters(self) -> set[Callable[[Any], None]]:
        """Callbacks, each called with this partition, once for every durable entry until it is removed; each must only
        note the call.
        """
        ...


# --- topics ----------------------------------------------------------------------------------------------------------


class KafkaNames(Protocol):
    """Which topic a Kafka client's name means, and the reverse."""

    def name(self, kafka_name: str) -> TopicName:
        """The topic that a client means; raises InvalidTopicName (a BrokerError) if no topic can have the name."""
        ...

    def shown(self, name: TopicName) -> str:
        """The name that a client sees."""
        ...


class TopicHandle(Protocol):
    """A topic that the caller may describe."""

    @property
    def name(self) -> TopicName: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def is_internal(self) -> bool:
        """Whether clients see it and cannot change it."""
        ...

    @property
    def partition_count(self) -> int: ...
    def placed(self, start: int, end: int) -> Sequence[tuple[list[int], int]]:
        """Of the partitions from `start` to `end`, the nodes that have it, the leader first, and its leader epoch;
        without nodes there is no leader now.
        """
        ...

    def partition(self, index: int) -> PartitionHandle:
        """Partition `index`.

        Raises:
            UnknownTopic: there are fewer.
            NotLeader: another broker of the cluster serves it.
            StorageError: its log cannot be served.
        """
        ...


class WritableTopic(Protocol):
    """A topic that the caller may write to."""

    @property
    def name(self) -> TopicName: ...
    def partition(self, index: int) -> WritablePartition:
        """As `TopicHandle.partition`."""
        ...


class ReadableTopic(Protocol):
    """A topic that the caller may read."""

    @property
    def is_deleted(self) -> bool:
        """Whether the topic was deleted since the handle was given: another topic may have its name now."""
        ...

    def partition(self, index: int) -> ReadablePartition:
        """As `TopicHandle.partition`."""
        ...

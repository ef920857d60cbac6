"""What Kafka's door holds of topics and partitions: handles, given by the use cases that ask for the right.

A handle has what its right allows and the door uses, and nothing else: who may describe a topic sees where its
partitions begin and end, who may write appends, who may read reads.  What is done with a handle is not asked about
again.

Behind each is the broker's own object (`Topic`, `Partition`, `ManagedLedger`), which fits by its shape: mypy compares
them where a use case returns one.  So no call lies between the door and the log.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

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
        """The present one."""
        ...

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that the record at `offset` was, or will be, written under."""
        ...

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Where `leader_epoch` ended; None for one that the log has not reached or that is none."""
        ...


class PartitionHandle(Protocol):
    """A partition of a topic that may be described."""

    @property
    def leader_id(self) -> int:
        """The node that leads it."""
        ...

    @property
    def log(self) -> LogEnds: ...
    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided: what a reader of committed records may see."""
        ...

    def check_committed(self, offset: int) -> None:
        """Whether it is known what a reader of committed records may see at `offset`, once it is there.

        Raises:
            EntryCorrupt, StorageError
        """
        ...


class WritablePartition(PartitionHandle, Protocol):
    """A partition of a topic that may be written to."""

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
        """The seconds that its producers have to wait: more has come than may."""
        ...


class ReadableEntries(LogEnds, ConvertedLog, Protocol):
    """The log of a partition that may be read: `read_cached`, else `read`."""

    @property
    def next_offset(self) -> int:
        """That of the entry that is appended next; what lies from `high_watermark` on is not durable yet."""
        ...


class DispatchTurns(Protocol):
    """How fast a partition may be read, by readers that take turns; as `DispatchLimit`."""

    def admits(self, reader: Hashable) -> bool:
        """Whether the reader may take something now."""
        ...

    def fitting(self, entries: Sequence[Entry]) -> int:
        """How many of these it may take."""
        ...

    def used(self, messages: int, size: int) -> None:
        """So much was taken."""
        ...

    def wait(self, reader: Hashable, go_on: Callable[[], None]) -> None:
        """Have `go_on` called once when the reader's turn has come."""
        ...

    def done(self, reader: Hashable) -> None:
        """The reader has taken all that there is."""
        ...

    def leave(self, reader: Hashable) -> None:
        """The reader waits no longer."""
        ...


class Aborted(Protocol):
    """What became of transactions."""

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedRange]:
        """The aborted ones that have records or their marker in `offset` (inclusive) to `end_offset`."""
        ...


class ReadablePartition(PartitionHandle, ConvertedPartition, Protocol):
    """A partition of a topic that may be read; what is read of it passes through `ReadCases.kafka_form`."""

    @property
    def log(self) -> ReadableEntries: ...
    @property
    def transactions(self) -> Aborted: ...
    @property
    def uncertain(self) -> object | None:
        """None while it is known what transactions have become; otherwise `check_committed` refuses what is not."""
        ...

    @property
    def known_producers(self) -> Sequence[KnownProducer]:
        """The idempotent producers of which batches are remembered."""
        ...

    @property
    def batch_bytes_max(self) -> int:
        """What an entry may have."""
        ...

    @property
    def dispatch_limit(self) -> DispatchTurns | None:
        """How fast it may be read; None for as fast as can be."""
        ...

    @property
    def is_closed(self) -> bool:
        """It was deleted, or the server stops."""
        ...

    @property
    def waiters(self) -> set[Callable[[], None]]:
        """Called once for each durable entry, until it is taken out; each must only note that it was."""
        ...


# --- topics ----------------------------------------------------------------------------------------------------------


class KafkaNames(Protocol):
    """Which topic a name of a Kafka client's stands for, and the reverse."""

    def name(self, kafka_name: str) -> TopicName:
        """The topic that a client means; InvalidTopicName (a BrokerError) when the name cannot be one."""
        ...

    def shown(self, name: TopicName) -> str:
        """What a client is shown."""
        ...


class TopicHandle(Protocol):
    """A topic that may be described."""

    @property
    def name(self) -> TopicName: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def is_internal(self) -> bool:
        """Shown to clients, and not to be changed by them."""
        ...

    @property
    def partition_count(self) -> int: ...
    @property
    def replicas(self) -> Sequence[list[int]]:
        """Of each partition the nodes that have it, the leader first."""
        ...

    def leader_epoch(self, index: int) -> int:
        """The leader epoch of partition `index`, which need not have been opened yet."""
        ...

    def partition(self, index: int) -> PartitionHandle:
        """Partition `index`.

        Raises:
            UnknownTopic: there are fewer.
            StorageError: its log cannot be served.
        """
        ...


class WritableTopic(Protocol):
    """A topic that may be written to."""

    @property
    def name(self) -> TopicName: ...
    def partition(self, index: int) -> WritablePartition:
        """As `TopicHandle.partition`."""
        ...


class ReadableTopic(Protocol):
    """A topic that may be read."""

    @property
    def is_deleted(self) -> bool:
        """Since it was given: there may be another of its name."""
        ...

    def partition(self, index: int) -> ReadablePartition:
        """As `TopicHandle.partition`."""
        ...

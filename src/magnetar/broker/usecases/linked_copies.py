"""Partitions of linked topics, as their links fill them, and what positions of the other cluster mean in them."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from magnetar.base.clock import Clock, sleep
from magnetar.base.errors import StorageError
from magnetar.broker.errors import OffsetsDiffer
from magnetar.broker.jobs.links import Links
from magnetar.broker.log import linked, linked_entries
from magnetar.broker.log.model import Position
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.wire.kafka.records import read_header

OWED_S_MAX: Final = 10.0  # for which a request waits that comes too soon
# Batches or entries in one turn of the event loop, each perhaps with one that covers a gap.
_AT_ONCE: Final = 64


class CopiedPartition(NamedTuple):
    """How far a copy of a partition is: the records from `log_start` up to `end` are durable.  `is_new`: it may still
    begin at any offset.  `position` is that of the last entry in its cluster of Pulsar, None if there is none.
    """

    partition: int
    log_start: int
    end: int
    is_new: bool
    position: Position | None = None


class SubscriptionPosition(NamedTuple):
    """What a subscription of a Pulsar cluster has acknowledged in a partition.  It is all messages up to `mark_delete`,
    and, for each of the pairs, the messages behind the first position up to the second.
    """

    subscription: str
    partition: int
    mark_delete: Position
    acknowledged: Sequence[tuple[Position, Position]]
    properties: Mapping[str, str]


class PartitionCopy:
    """The handle of a partition that its caller may append to, as long as it is linked.

    What a link appends counts for the publish rates of the topic and its resource group, as what producers send does.
    """

    def __init__(
        self, topic: Topic, partition: Partition, links: Links, clock: Clock, lock: asyncio.Lock
    ) -> None:
        """`lock` is the partition's.  One request at a time appends, because other work has its turn between the
        beginning of a log and its first batch, and between batches.
        """
        self._topic = topic
        self._partition = partition
        self._links = links
        self._clock = clock
        self._lock = lock

    async def is_admitted(self) -> bool:
        """Whether the publish rates let more come, now or after a wait of at most `OWED_S_MAX`."""
        owed_s = self._partition.owed_s()
        if owed_s > 0:
            await sleep(self._clock, min(owed_s, OWED_S_MAX))
        return owed_s <= OWED_S_MAX

    async def append(self, batches: memoryview, *, after: int, begin: int, end: int) -> int:
        """Append record batches, which stand one after the other in `batches`, at their offsets.  Then let the log end
        at `end` at least, because the other log has no records before that.  A log without entries begins at `begin`.

        `after` is where the log ends, as the caller knows: the other log has no records between that and the first
        batch.  If the log ends before, it is not the one that the caller means, or has lost records.

        Returns where the log ends, once everything is durable.

        Raises:
            UnknownTopic, LinkNotFound: the topic was deleted, or cut loose.
            CorruptMessage, InvalidRecord, RecordTooLarge, UnsupportedMessageFormat, OffsetsDiffer: batches before the
                bad one are appended.
            StorageError, MetadataError: some of it may be durable.
        """
        partition, log, parts = self._partition, self._partition.log, linked.split(batches)
        async with self._lock:
            self._check()
            if begin > log.next_offset:
                await log.begin_at(begin)
            if log.next_offset < after:
                raise OffsetsDiffer(f"{log.name} ends at {log.next_offset}, and not at {after} or later")
            while next_ones := list(islice(parts, _AT_ONCE)):
                self._check()
                for batch in next_ones:
                    reached = log.next_offset
                    linked.append(partition, batch, self._clock.now_ms(), _note_nothing)
                    if log.next_offset > reached:
                        partition.count_published(read_header(batch).record_count, len(batch))
                reached = log.next_offset
                await asyncio.sleep(0)
                if log.next_offset < reached:  # their write has failed, and what comes next would leave a gap
                    raise self._lost()
            self._check()
            linked.cover(partition, end, self._clock.now_ms(), _note_nothing)
            if not await partition.durable_waits.until(log.next_offset):
                raise self._lost()
        return log.high_watermark

    async def append_entries(self, data: memoryview, *, after: Position | None) -> Position | None:
        """Append entries of a cluster of Pulsar's (`linked_entries.split` says how they stand in `data`); those that
        the copy has already are dropped.

        `after` is the position of the copy's last entry, as the caller knows: the other log has no entries that
        readers see between that and the first one.  If the copy ends before, it is not the one that the caller means.

        Returns the position of the last entry, once everything is durable; None if there is none.

        Raises:
            UnknownTopic, LinkNotFound: the topic was deleted, or cut loose.
            CorruptMessage, InvalidRecord: entries before the bad one are appended.
            OffsetsDiffer: the copy ends before `after`.
            StorageError, MetadataError: some of it may be durable.
        """
        partition, log = self._partition, self._partition.log
        async with self._lock:
            self._check()
            reached = await linked_entries.last_position(log)
            if after is not None and (reached is None or reached < after):
                raise OffsetsDiffer(f"{log.name} ends before the position {after}")
            self._check()
            expected = log.next_offset
            for number, one in enumerate(linked_entries.split(data)):
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
                    self._check()
                if log.next_offset < expected:  # a write has failed, and what comes next would leave a gap
                    raise self._lost()
                if reached is None or one.position > reached:
                    linked_entries.append(partition, one, self._clock.now_ms(), _note_nothing)
                    partition.count_published(one.view.num_messages, len(one.view.data))
                    reached, expected = one.position, log.next_offset
            if log.next_offset < expected or not await partition.durable_waits.until(expected):
                raise self._lost()
        return reached

    def _check(self) -> None:
        """Raise UnknownTopic or LinkNotFound if the topic was deleted or cut loose while others had their turn."""
        self._topic.check_exists()
        self._links.require(self._topic)

    def _lost(self) -> StorageError:
        return StorageError(
            f"{self._topic.name} {self._partition.index}: the server could not store what was copied"
        )


def _note_nothing(error: Exception | None) -> None:
    """For single entries: `append` waits for all of them."""


def copied(partition: Partition, position: Position | None) -> CopiedPartition:
    """How far a partition is; `position` is that of its last entry in its cluster of Pulsar."""
    log = partition.log
    return CopiedPartition(partition.index, log.log_start, log.high_watermark, log.next_offset == 0, position)


async def offsets_of(
    log: ManagedLedger, wanted: SubscriptionPosition, read: dict[int, Any]
) -> tuple[int, list[tuple[int, int]]]:
    """The offset below which, and the half-open ranges in which, the copy's messages are acknowledged."""
    offset = await linked_entries.offset_behind(log, wanted.mark_delete, read)
    ranges = []
    for first, last in wanted.acknowledged:
        start = await linked_entries.offset_behind(log, first, read)
        end = await linked_entries.offset_behind(log, last, read)
        if start < end:
            ranges.append((start, end))
    return offset, ranges

"""What an administrator, or time, does to subscriptions: create, move, drop, look into.

A subscription with consumers has its cursor in a `Subscription`; for all others only the stored cursor exists.  Every
method here takes both.  A Kafka group's position can be moved only while the group has no members that consume the
topic.  The members own the position, as for Kafka's own tools.

Positions are offsets; counts are of messages, as in a subscription's backlog.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from magnetar.broker.compaction.beside import SUBSCRIPTION as COMPACTION
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.errors import (
    SubscriptionBusy,
    SubscriptionClosed,
    SubscriptionNotAllowed,
    SubscriptionNotFound,
)
from magnetar.broker.subscriptions.forms import Forms
from magnetar.broker.subscriptions.model import AnalyzedBacklog, MessagePosition
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.subscriptions.request import check_name, kept_properties
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.entry import Entry

_READ_BYTES: Final = 256 << 10
PEEK_ENTRIES_MAX: Final = 10_000  # looked at for one message of a backlog
ANALYZED_ENTRIES_MAX: Final = 10_000  # Pulsar's subscriptionBacklogScanMaxEntries


class SubscriptionAdmin:
    """See the module's text.  `consumes(group, topic)`: whether a Kafka group has members that consume it."""

    def __init__(
        self, cursors: CursorStore, subscriptions: Subscriptions, consumes: Callable[[str, str], bool]
    ) -> None:
        self._cursors = cursors
        self._subscriptions = subscriptions
        self._consumes = consumes

    # --- looking -----------------------------------------------------------------------------------------------------

    def cursor(self, partition: Partition, name: str) -> Cursor:
        """Where the subscription is now; the caller must not change it.

        Raises:
            SubscriptionNotFound
        """
        open_one = self._subscriptions.find(partition, name)
        if open_one is not None and open_one.is_attached:
            return open_one.cursor
        stored = self._cursors.get(_key(partition, name))
        if stored is None:
            raise SubscriptionNotFound(f"Subscription {name} not found for topic {partition_name(partition)}")
        return stored

    def backlog(self, partition: Partition, name: str) -> int:
        """The number of messages that are not acknowledged.  Raises as `cursor`."""
        log = partition.log
        return self.cursor(partition, name).backlog(log.high_watermark, log.log_start)

    async def oldest(self, partition: Partition, name: str) -> Entry | None:
        """The entry of the first message that is not acknowledged; None if there is none.  Raises as `cursor`."""
        log = partition.log
        offset = self.cursor(partition, name).next_unacknowledged(log.log_start)
        return await log.entry_at(offset)

    async def peek(self, partition: Partition, name: str, number: int, forms: Forms) -> Formed | None:
        """The entry with the `number`-th (from 1) of the subscription's unacknowledged entries that consumers see.

        Raises as `cursor`.
        """
        log = partition.log
        cursor = self.cursor(partition, name)
        offset = max(cursor.mark_delete, log.log_start)
        end = partition.last_stable_offset
        looked_at = 0
        while offset < end and looked_at < PEEK_ENTRIES_MAX:
            entries = log.read_cached(offset, _READ_BYTES, end) or await log.read(offset, _READ_BYTES)
            await asyncio.sleep(0)  # others have a turn between any two steps
            formed = forms(partition, entries)
            for one in await formed if isinstance(formed, Awaitable) else formed:
                entry = one.entry
                looked_at += 1
                offset = entry.last_offset + 1
                if entry.base_offset >= end or one.payload is None:
                    continue
                if cursor.next_unacknowledged(entry.base_offset) > entry.last_offset:
                    continue
                number -= 1
                if number == 0:
                    return one
        if offset >= end:
            partition.check_committed(end)
        return None

    async def analyze(self, partition: Partition, name: str, start: int | None = None) -> AnalyzedBacklog:
        """What of a backlog there is in the log, up to `ANALYZED_ENTRIES_MAX` entries.  It counts from `start` on, as
        if nothing below the subscription's first unacknowledged message were acknowledged, or from that message on.

        Raises as `cursor`; also StorageError.
        """
        log, cursor = partition.log, self.cursor(partition, name)
        end, offset = partition.last_stable_offset, cursor.mark_delete if start is None else start
        offset = max(offset, log.log_start)
        found: list[tuple[int, int]] = []
        messages = 0
        while offset < end and len(found) < ANALYZED_ENTRIES_MAX:
            entries = log.read_cached(offset, _READ_BYTES, end) or await log.read(offset, _READ_BYTES)
            await asyncio.sleep(0)  # others have a turn between any two steps
            for entry in entries:
                if len(found) == ANALYZED_ENTRIES_MAX or entry.base_offset >= end:
                    break
                low, offset = max(entry.base_offset, offset), entry.last_offset + 1
                left = _left_of(cursor, low, offset)
                if left:
                    found.append((entry.ledger_id, entry.entry_id))
                    messages += min(left, entry.message_count)
        return AnalyzedBacklog(found[:1], found[-1:], len(found), messages, offset >= end)

    def names(self, partition: Partition) -> list[str]:
        """All subscriptions of the partition, ascending."""
        if not partition.topic.name.persistent:
            return sorted(one.name for one in self._subscriptions.volatile(partition))
        return self._subscriptions.names(partition)

    # --- making and dropping -----------------------------------------------------------------------------------------

    async def create(
        self, partition: Partition, name: str, offset: int, properties: Mapping[str, str] | None = None
    ) -> bool:
        """Create a subscription that holds the messages after `offset`; false if it exists.

        Raises:
            SubscriptionNotAllowed: the topic stores nothing, or may have no other one, or the name or a property
                cannot be.
            MetadataError
        """
        if not partition.topic.name.persistent:
            raise SubscriptionNotAllowed("a non-persistent topic keeps no subscriptions")
        return await self._subscriptions.create(partition, name, offset, properties)

    async def delete(self, partition: Partition, name: str, *, force: bool = False) -> None:
        """Drop a subscription; `force` disconnects its consumers.

        If it is that of Pulsar's compaction, what compaction has left is dropped, too.

        Raises:
            SubscriptionNotFound, SubscriptionBusy, MetadataError, StorageError
        """
        self.cursor(partition, name)
        await self._subscriptions.delete(partition, name, force=force)
        if name == COMPACTION:
            await partition.log.keep_beside(None)

    def is_there(self, partition: Partition, name: str) -> bool:
        """Whether the subscription is stored, or is just being stored."""
        return self._cursors.newest(_key(partition, name)) is not None

    def check_count(self, partition: Partition, name: str) -> None:
        """Raise SubscriptionNotAllowed if a client may not make this subscription because the topic has too many."""
        if not self.is_there(partition, name):
            self._subscriptions.check_count(partition, name)

    async def hold(self, name: str, positions: Mapping[Partition, int]) -> None:
        """Create a subscription that holds the messages from these offsets on, or move it forward to them.

        Where it is further already, it stays.  All is stored in one step.  The caller has seen to the number of
        subscriptions (`check_count`): those of replicators are no client's.

        Raises:
            SubscriptionNotAllowed: the name cannot be one.
            SubscriptionBusy: members of the Kafka group of that name consume one of the topics; nothing is done.
            MetadataError: nothing is stored.
        """
        check_name(name)
        stored: dict[CursorKey, Cursor] = {}
        opened: list[tuple[Subscription, int]] = []
        for partition, offset in positions.items():
            partition.topic.check_exists()
            open_one = self._open(partition, name)
            if open_one is not None:
                opened.append((open_one, offset))
                continue
            self._check_free(partition, name)
            found = self._cursors.newest(_key(partition, name))
            cursor = Cursor(offset) if found is None else found.copy()
            if cursor.ack_cumulative(offset) or found is None or not found.holds_data:
                cursor.commit_timestamp_ms = partition.log.now_ms()
                cursor.holds_data = True
                stored[_key(partition, name)] = cursor
        for open_one, offset in opened:
            open_one.skip_to(offset)
        if stored:
            await self._cursors.commit(stored)

    async def copy(
        self,
        partition: Partition,
        name: str,
        offset: int,
        acknowledged: Sequence[tuple[int, int]],
        properties: Mapping[str, str],
    ) -> bool:
        """Give a subscription what the same one of another cluster has acknowledged: all messages below `offset`, and
        these half-open ranges.  What is acknowledged here stays so.  Returns whether that changed something.

        Raises:
            SubscriptionNotAllowed: the topic may have no other one, or the name or a property cannot be.
            SubscriptionBusy: it is in use here, so its position is its own; nothing is done.
            MetadataError: nothing is stored.
        """
        check_name(name)
        partition.topic.check_exists()
        if self._open(partition, name) is not None:
            raise SubscriptionBusy("Subscription has active connected consumers")
        self._check_free(partition, name)
        key = _key(partition, name)
        found = self._cursors.newest(key)
        if found is None:
            self._subscriptions.check_count(partition, name)
        cursor = Cursor(offset, properties=kept_properties(properties)) if found is None else found.copy()
        changed = cursor.ack_cumulative(offset)
        changed |= cursor.ack_individual(acknowledged)
        if not changed and found is not None and found.holds_data:
            return False
        cursor.commit_timestamp_ms = partition.log.now_ms()
        cursor.holds_data = True
        await self._cursors.commit({key: cursor})
        return True

    # --- moving ------------------------------------------------------------------------------------------------------

    async def skip(self, partition: Partition, name: str, count: int) -> int:
        """Acknowledge the next `count` messages; returns how many there were.

        Raises:
            SubscriptionNotFound, SubscriptionBusy, MetadataError
        """
        log = partition.log
        cursor = self.cursor(partition, name)
        before = cursor.backlog(log.high_watermark, log.log_start)
        await self.skip_to(partition, name, skip_target(cursor, count, log.log_start, log.high_watermark))
        return min(count, before)

    async def skip_to(self, partition: Partition, name: str, offset: int) -> None:
        """Acknowledge all messages below `offset`, which is at most the log's end.  Raises as `skip`."""
        assert offset <= partition.log.high_watermark, (name, offset)
        open_one = self._open(partition, name)
        if open_one is not None:
            open_one.skip_to(offset)
            return
        partition.topic.check_exists()
        key, stored = _key(partition, name), self.cursor(partition, name)
        self._check_free(partition, name)
        cursor = (self._cursors.newest(key) or stored).copy()
        if cursor.ack_cumulative(offset):
            await self._cursors.commit({key: cursor})

    async def truncate(self, partition: Partition) -> None:
        """Remove every message of the partition, acknowledged or not.

        A Kafka group with members that consume the topic follows the log's start by itself.
        """
        end = partition.log.high_watermark
        for name in self._subscriptions.names(partition):
            with suppress(SubscriptionNotFound, SubscriptionBusy):
                await self.skip_to(partition, name, end)
        await partition.log.trim(log_start=end)

    async def expire(self, partition: Partition, name: str, published_before_ms: int) -> int:
        """Acknowledge the messages at the head of the backlog that were published before a time; returns how many.

        Raises as `skip`, and StorageError if the log cannot be read.
        """
        log = partition.log
        until = min(await positions.offset_at_time(log, published_before_ms), log.high_watermark)
        before = self.backlog(partition, name)
        if until > self.cursor(partition, name).mark_delete:
            await self.skip_to(partition, name, until)
        return before - self.backlog(partition, name)

    async def reset(
        self, partition: Partition, name: str, find: Callable[[], Coroutine[Any, Any, int]]
    ) -> None:
        """Start again from the offset that `find` returns.  Connected consumers are closed, and reconnect.

        Raises:
            SubscriptionNotFound, SubscriptionBusy, MetadataError
            NotLeader: another broker has the partition now; nothing has changed.
            StorageError: from `find`; nothing has changed.
        """
        while True:
            open_one = self._open(partition, name)
            if open_one is not None:
                with suppress(SubscriptionClosed):  # let go of meanwhile
                    await self._subscriptions.seek(open_one, find())
                    return
                continue
            self.cursor(partition, name)
            self._check_free(partition, name)
            offset = await find()
            if self._open(partition, name) is None:  # no consumer has come meanwhile
                break
        partition.topic.check_exists()
        partition.check_served()
        key, stored = _key(partition, name), self.cursor(partition, name)
        self._check_free(partition, name)
        cursor = (self._cursors.newest(key) or stored).copy()
        cursor.forget_wish()
        cursor.reset(offset)
        await self._cursors.commit({key: cursor})

    def _open(self, partition: Partition, name: str) -> Subscription | None:
        found = self._subscriptions.find(partition, name)
        return found if found is not None and found.is_attached else None

    def _check_free(self, partition: Partition, name: str) -> None:
        if self._consumes(name, partition.topic.name.full):
            raise SubscriptionBusy("Subscription has active connected consumers")


def skip_target(cursor: Cursor, count: int, log_start: int, log_end: int) -> int:
    """The offset below which lie `count` more messages that are not acknowledged, or the log's end."""
    position = max(cursor.mark_delete, log_start)
    for start, end in cursor.ranges:
        if end <= position:
            continue
        free = start - position
        if free >= count:
            break
        count -= max(free, 0)
        position = end
    return min(position + max(count, 0), log_end)


def _left_of(cursor: Cursor, start: int, end: int) -> int:
    """How many of these offsets are not acknowledged, those below the first unacknowledged one counted as well."""
    below = max(0, min(end, cursor.mark_delete) - start)
    return below + sum(
        stop - begin for begin, stop in cursor.unacknowledged(max(start, cursor.mark_delete), end)
    )


async def offset_of(partition: Partition, wanted: MessagePosition) -> int:
    """The offset at which a reader starts that goes to `wanted`; raises StorageError if the log cannot be read."""
    log = partition.log
    if wanted.ledger_id >= positions.LATEST:
        return log.high_watermark
    offset = await positions.offset_of(log, wanted.ledger_id, wanted.entry_id)
    entry = await log.entry_at(offset) if wanted.ledger_id >= 0 else None
    if entry is None or (entry.ledger_id, entry.entry_id) != (wanted.ledger_id, wanted.entry_id):
        return offset
    if 0 <= wanted.batch_index < entry.message_count:
        offset = entry.base_offset + wanted.batch_index
        return offset + 1 if wanted.is_excluded else offset
    return entry.last_offset + 1 if wanted.is_excluded else offset


def partition_name(partition: Partition) -> str:
    """The name by which Pulsar clients use the partition."""
    name = partition.topic.name
    return name.partition_name(partition.index) if partition.topic.is_partitioned else name.full


def _key(partition: Partition, name: str) -> CursorKey:
    return CursorKey(name, partition.topic.name.full, partition.index)

"""Which committed offsets have expired (KIP-211).

* A group with members keeps the offsets of topics that it consumes.  A stable group of consumers loses the offsets of
  other topics, `offsets.retention.minutes` after their last commit.
* An empty group loses its offsets that time after its last member has left.
* A group that never had members (a client assigns partitions itself) loses each offset that time after its commit.
* If an old client's commit asked for its own retention, that counts.
* The cursors of a subscription that holds data never expire.
* A cursor of a topic that is gone is dropped: a crash has interrupted the topic's deletion.

The next look forgets a group without members and offsets.  Any client that may name groups can make thousands of them
in a second, so the look comes at once when there are many.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.upkeep import Job, Upkeep, Work
from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.offsets import AnyGroup
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore

log = logging.getLogger(__name__)

UNUSED_MAX: Final = 10_000  # groups that have lost their last member and have no offsets: 2 KB each
FORGOTTEN_AT_ONCE: Final = 256  # whose writes share commits


class Expiry:
    """Looks for what has expired every `interval_s` seconds, and whenever `UNUSED_MAX` groups are unused."""

    def __init__(self, upkeep: Upkeep, interval_s: float, expire: Work) -> None:
        """`expire` may raise MetadataError: the next look tries again."""
        self._expire = expire
        self._job: Job = upkeep.every(interval_s, "committed offsets", self._look)
        self._unused = 0

    async def _look(self) -> None:
        try:
            await self._expire()
        except MetadataError as failure:
            log.warning("the server could not delete expired offsets: %s", failure)

    def unused(self) -> None:
        """One more group has neither members nor offsets."""
        self._unused += 1
        if self._unused >= UNUSED_MAX:
            self._unused = 0
            self._job.soon()

    async def stop(self) -> None:
        await self._job.stop()


def seen(written: "asyncio.Future[None]") -> "asyncio.Future[None]":
    """A write whose failure is no surprise, also if the look ends before it waits for it: the next one tries again."""
    written.add_done_callback(lambda future: future.cancelled() or future.exception())
    return written


def expired_cursors(
    group: AnyGroup, cursors: CursorStore, catalogue: TopicCatalogue, now_ms: int, retention_ms: int
) -> Iterator[CursorKey]:
    """The keys of the group's cursors that must be dropped.  Raises EntryCorrupt as `CursorStore.get`."""
    for topic, partitions in cursors.subscription(group.group_id).items():
        gone = not catalogue.exists(topic, 0)
        if group.is_subscribed_to(topic) and not gone:
            continue
        for partition, cursor in partitions.items():
            key = CursorKey(group.group_id, topic, partition)
            if cursors.is_being_written(key):
                continue
            if gone or _is_expired(group, cursor, now_ms, retention_ms):
                yield key


def _is_expired(group: AnyGroup, cursor: Cursor, now_ms: int, retention_ms: int) -> bool:
    if cursor.holds_data:
        return False
    kept_from_ms = group.offsets_kept_from_ms(cursor.commit_timestamp_ms)
    if kept_from_ms is None:
        return False
    if cursor.expire_timestamp_ms is not None:
        return now_ms >= cursor.expire_timestamp_ms
    return now_ms - kept_from_ms >= retention_ms

"""Which committed offsets have expired (KIP-211).

* A group with members keeps the offsets of topics that it consumes.  A stable group of consumers loses the offsets of
  other topics, `offsets.retention.minutes` after their last commit.
* An empty group loses its offsets that time after its last member has left.
* A group that never had members (a client assigns partitions itself) loses each offset that time after its commit.
* If an old client's commit asked for its own retention, that counts.
* The cursors of a subscription that holds data never expire.
* A cursor of a topic that is gone is dropped: a crash has interrupted the topic's deletion.
"""

from collections.abc import Iterator

from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.offsets import AnyGroup
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore


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

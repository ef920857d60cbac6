"""Offsets that become those of groups in one step, however many there are.

`prepare` makes the writes ready, a few offsets at a time, and lets other work of the loop run in between.  Meanwhile
other clients may commit offsets, and topics may disappear.  So the last step looks at every offset once more, without a
pause, just before the store gets the writes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from magnetar.broker.groups.model import OffsetToCommit
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.metadata.store import Put

OFFSETS_AT_ONCE: Final = 500  # in one turn of the event loop: ten microseconds each


class _Move(NamedTuple):
    wanted: OffsetToCommit
    topic_id: str
    before: Cursor | None
    cursor: Cursor
    write: Put


class Moves:
    """See the module's text; `exists` says whether there is such a partition of such a topic."""

    def __init__(self, cursors: CursorStore, exists: Callable[[str, int], bool], now_ms: int) -> None:
        self._cursors = cursors
        self._exists = exists
        self._now_ms = now_ms
        self._ready: dict[CursorKey, _Move] = {}

    async def prepare(self, group_id: str, offsets: Iterable[OffsetToCommit]) -> None:
        """Add offsets of a group.  Raises EntryCorrupt: its stored cursors are damaged."""
        for number, wanted in enumerate(offsets, 1):
            if number % OFFSETS_AT_ONCE == 0:
                await asyncio.sleep(0)
            self._make_ready(CursorKey(group_id, wanted.topic, wanted.partition), wanted)

    def submit(self, *also: Put) -> "asyncio.Future[None]":
        """Write all of them, and `also`, in one step, as `CursorStore.submit`.

        Offsets of topics that are gone are left out, also where another topic has the name by now.
        """
        for key, move in list(self._ready.items()):
            if self._is_stale(key, move):
                del self._ready[key]
                self._make_ready(key, move.wanted)
        cursors = {key: move.cursor for key, move in self._ready.items()}
        return self._cursors.submit(cursors, also, [move.write for move in self._ready.values()])

    def _make_ready(self, key: CursorKey, wanted: OffsetToCommit) -> None:
        topic_id = self._topic_id(wanted)
        if topic_id is None:
            return
        before = self._cursors.newest(key)
        cursor = moved(before, wanted, self._now_ms, None)
        self._ready[key] = _Move(wanted, topic_id, before, cursor, self._cursors.put_of(key, cursor))

    def _is_stale(self, key: CursorKey, move: _Move) -> bool:
        return (
            self._cursors.newest(key) is not move.before
            or self._cursors.owner(key) is not None  # which changes its cursor in place
            or self._topic_id(move.wanted) != move.topic_id
        )

    def _topic_id(self, wanted: OffsetToCommit) -> str | None:
        """The id of the topic that the offset is for; None if that topic is gone."""
        if not self._exists(wanted.topic, wanted.partition):
            return None
        topic_id = self._cursors.identity(wanted.topic)
        return topic_id if wanted.topic_id in ("", topic_id) else None


def moved(before: Cursor | None, wanted: OffsetToCommit, now_ms: int, expires_ms: int | None) -> Cursor:
    """A cursor as a commit of `wanted` leaves it."""
    cursor = Cursor() if before is None else before.copy()
    cursor.commit(wanted.offset)
    cursor.metadata = wanted.metadata
    cursor.leader_epoch = wanted.leader_epoch
    cursor.commit_timestamp_ms = now_ms
    cursor.expire_timestamp_ms = expires_ms
    return cursor

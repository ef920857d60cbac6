"""Lists of topics, which may be long: the hash that shows whether one has changed, commands that have one, and the
clients that watch one.

A list is ordered, hashed and encoded in pieces, with turns of the event loop between them.  `NAME_BYTES` for each of
its names count as objects of a request (`base/memory_budget.py`) while that goes on.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from crc32c import crc32c

from magnetar.base.clock import TimerHandle
from magnetar.base.lane import Lane, cut
from magnetar.base.names import PERSISTENT
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.commands import frame_in_parts
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandWatchTopicList,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
)

# Changes are collected for this time, then sent together: a thousand topics created one by one are a few updates.
UPDATE_DELAY_S: Final = 0.05
NAME_BYTES: Final = 500  # of a long name, as a text, encoded, and in the socket's queue
_FEW: Final = 100  # changes that are put into an ordered list one by one


async def topics_hash(lane: Lane, names: Sequence[str]) -> str:
    """The hash of a list that is in order: CRC32C of its names with commas between them, little-endian, in hex."""
    crc = 0
    is_first = True

    def add(some: Sequence[str]) -> None:
        nonlocal crc, is_first
        text = ",".join(some)
        crc = crc32c((text if is_first else f",{text}").encode(), crc)
        is_first = False

    await lane.each(cut(names), add)
    return crc.to_bytes(4, "little").hex()


async def send_lists(
    session: PulsarSession, kind: "BaseCommand.Type", front: Any, lists: Mapping[str, Sequence[str]]
) -> None:
    """Send the command of type `kind` whose sub-message is `front`, with these names in its fields."""
    body: list[bytes] = [front.SerializeToString()]
    make = type(front)

    def encode(field: str, some: Sequence[str]) -> None:
        body.append(make(**{field: some}).SerializePartialToString())

    for field, names in lists.items():
        await session.service.lane.each(cut(names), partial(encode, field))
    parts = frame_in_parts(kind, body)
    session.send_parts([*parts], sum(map(len, parts)))


class TopicListWatcher:
    """One WATCH_TOPIC_LIST of one connection: it tells its client which topics come and go.  If the client's right is
    revoked, it reports all topics as gone, and then nothing more.

    `answer` must be awaited; until then, and while an update is made, changes are only collected.

    Raises:
        NamespaceNotAuthorized
    """

    def __init__(
        self,
        session: PulsarSession,
        watcher_id: int,
        namespace: str,
        matches: Callable[[str], bool],
    ) -> None:
        self._session = session
        self.watcher_id = watcher_id
        self._namespace_prefix = f"{PERSISTENT}{namespace}/"
        self._matches = matches
        self.names: set[str] = set()
        self._ordered: list[str] = []  # the same, but for `_touched`
        self._touched: set[str] = set()
        self._new: set[str] = set()  # which the client does not know of yet
        self._deleted: set[str] = set()
        self._timer: TimerHandle | None = None
        self._is_telling = True
        self._hears = True
        self._is_over = False
        self._listing = session.cases.pulsar_topics.watch(session.caller, namespace, self)

    async def answer(self, command: CommandWatchTopicList) -> None:
        """Answer the command with the topics that there are, and report changes from then on."""
        service = self._session.service
        async with service.memory.objects(0, self._listing.count * NAME_BYTES):
            await self._listing.each(self._matches, self._take)
            names = await self._in_order()
            self._new, self._deleted = set(), set()
            found = await topics_hash(service.lane, names)
            if self._is_over:
                return
            answer = CommandWatchTopicListSuccess(
                request_id=command.request_id, watcher_id=self.watcher_id, topics_hash=found
            )
            shown = names if found != command.topics_hash else ()
            await send_lists(self._session, BaseCommand.WATCH_TOPIC_LIST_SUCCESS, answer, {"topic": shown})
        self._tell_later()

    def _take(self, names: Collection[str]) -> None:
        if self._hears:
            self.names.update(names)
            self._touched.update(names)

    def changed(self, gone: Collection[str], came: Collection[str]) -> None:
        left = self.names.intersection(gone)
        may_describe = partial(self._session.cases.pulsar_topics.may_describe, self._session.caller)
        added = {
            name
            for name in came
            if (name in left or name not in self.names)
            and name.startswith(self._namespace_prefix)
            and self._matches(name)
            and may_describe(name)
        }
        self._touched |= left | added
        self._deleted |= left - self._new
        self._new -= left
        self._new |= added - self._deleted
        self._deleted -= added
        self.names -= left
        self.names |= added
        self._tell_soon()

    def ended(self) -> None:
        self._hears = False
        self.changed(list(self.names), [])

    def _tell_soon(self) -> None:
        if (
            self._timer is None
            and not self._is_telling
            and not self._is_over
            and (self._new or self._deleted)
        ):
            self._timer = self._session.service.clock.call_later(UPDATE_DELAY_S, self._tell)

    def _tell_later(self) -> None:
        """An answer or an update has left: report next what changed meanwhile."""
        self._is_telling = False
        self._tell_soon()

    def _tell(self) -> None:
        self._timer = None
        if not self._new and not self._deleted:  # what came has gone again
            return
        self._is_telling = True
        self._session.service.tasks.spawn("an update of a list of topics", self._update())

    async def _update(self) -> None:
        lane = self._session.service.lane
        names = await self._in_order()
        new, deleted = self._new, self._deleted
        self._new, self._deleted = set(), set()
        lists = {
            "new_topics": await lane.in_order(cut(new)),
            "deleted_topics": await lane.in_order(cut(deleted)),
        }
        update = CommandWatchTopicUpdate(
            watcher_id=self.watcher_id, topics_hash=await topics_hash(lane, names)
        )
        if not self._is_over:
            await send_lists(self._session, BaseCommand.WATCH_TOPIC_UPDATE, update, lists)
        self._tell_later()

    async def _in_order(self) -> list[str]:
        """All names as they are when this returns, ascending."""
        while len(self._touched) > _FEW:
            self._touched = set()
            self._ordered = await self._session.service.lane.in_order(cut(list(self.names)))
        ordered = self._ordered
        for name in self._touched:
            at = bisect_left(ordered, name)
            is_there = at < len(ordered) and ordered[at] == name
            if name in self.names and not is_there:
                ordered.insert(at, name)
            elif name not in self.names and is_there:
                del ordered[at]
        self._touched = set()
        return list(ordered)

    def connection_lost(self) -> None:
        self._is_over = True
        self._hears = False
        self._session.cases.pulsar_topics.unwatch(self)
        if self._timer is not None:
            self._timer.cancel()

    def close_notice(self) -> Any:
        return None

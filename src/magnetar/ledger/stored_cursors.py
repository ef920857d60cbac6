"""What the metadata store has of cursors, as memory shows it: read in one scan, and decoded when it is asked for.

A cursor's path is `/cursors/<subscription>/<topic's full name>@<topic id>/<partition>`, with both names
percent-escaped.  `CursorStore` writes cursors, and publishes here what is durable.  In a cluster another broker writes
those of a partition until this one takes its bundle over, and then they are read again (`read_again`).
"""

import logging
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Final

from magnetar.base.errors import BrokerError, EntryCorrupt
from magnetar.ledger.cursor import HOLDS_DATA, Cursor
from magnetar.metadata.path_parts import escape, unescape
from magnetar.metadata.store import Delete, MetadataStore, Put

log = logging.getLogger(__name__)

ROOT: Final = "/cursors/"
_AT_ONCE: Final = 1000  # paths that a commit moves or removes

Subscription = dict[str, dict[int, Cursor]]  # topic -> partition -> cursor
_Row = tuple[str, bytes]  # the rest of the path, without the topic's id, and the value


class StoredCursors:
    """See the module's text.  `identity` returns the id, in hex, of the topic that has a full name, and raises a
    BrokerError if there is none.
    """

    def __init__(self, store: MetadataStore, identity: Callable[[str], str]) -> None:
        self._store = store
        self.identity = identity
        self._subscriptions: dict[str, Subscription] = {}
        self._unread: dict[str, list[_Row]] = {}  # by subscription
        self._holders: dict[tuple[str, int], dict[str, Cursor]] = {}  # cursors that hold data, by partition

    async def load(self) -> dict[str, list[str]]:
        """Read what the metadata store holds; call this once, before anything else.  Returns the paths of cursors
        whose topic does not exist, by topic id.

        Raises:
            MetadataError: cursors of an earlier version cannot be brought up to date.
        """
        unread: dict[str, list[_Row]] = {}
        holding: set[str] = set()
        strays: dict[str, list[str]] = {}
        ids: dict[str, str | None] = {}  # by a topic's part of the path: its id now
        moves: list[list[Put | Delete]] = []
        for path, versioned in await self._store.scan(ROOT):
            part, _, rest = path[len(ROOT) :].partition("/")
            topic, _, partition = rest.rpartition("/")
            name, mark, topic_id = topic.partition("@")
            if name not in ids:
                try:
                    ids[name] = self.identity(unescape(name))
                except BrokerError:
                    ids[name] = None
            known = ids[name]
            if mark and topic_id != known:
                strays.setdefault(topic_id, []).append(path)
                continue
            if not mark and known != "":
                if known is None:  # an earlier version, which knew only names, deleted the topic
                    moves.append([Delete(path)])
                    continue
                moves.append([Delete(path), Put(f"{ROOT}{part}/{name}@{known}/{partition}", versioned.value)])
            unread.setdefault(part, []).append((f"{name}/{partition}", versioned.value))
            if _holds_data(versioned.value):
                holding.add(part)
        for begin in range(
            0, len(moves), _AT_ONCE
        ):  # a move is never torn: between two commits a crash may come
            await self._store.commit(list(chain.from_iterable(moves[begin : begin + _AT_ONCE])))
        self._unread = {unescape(part): cursors for part, cursors in unread.items()}
        for part in holding:
            self._read(unescape(part))
        return strays

    async def read_again(self, partitions: Collection[tuple[str, int]]) -> None:
        """Read all cursors of these partitions (a topic's full name, and the number), which another broker has written
        until now.  None of them has an owner here, and no write of them is under way.

        Raises:
            MetadataError: memory is as before.
        """
        found: dict[str, list[_Row]] = {}
        for path, versioned in await self._store.scan(ROOT):
            part, _, rest = path[len(ROOT) :].partition("/")
            topic, _, number = rest.rpartition("/")
            name, _, topic_id = topic.partition("@")
            full_name = unescape(name)
            if (full_name, int(number)) in partitions and topic_id == self._known_id(full_name):
                found.setdefault(unescape(part), []).append((f"{name}/{number}", versioned.value))
        for subscription in {*found, *self.subscriptions()}:
            rows = self._rows(subscription)
            others = [row for row in rows if _place_of(row) not in partitions]
            if subscription in found or len(others) < len(rows):
                self._replace(subscription, [*others, *found.get(subscription, ())])

    def _rows(self, name: str) -> list[_Row]:
        """A subscription's cursors as they are stored."""
        known = self._subscriptions.get(name)
        if known is None:
            return self._unread.get(name, [])
        return [
            (f"{escape(topic)}/{number}", cursor.encode())
            for topic, partitions in known.items()
            for number, cursor in partitions.items()
        ]

    def _replace(self, name: str, rows: list[_Row]) -> None:
        """These are all cursors of a subscription now."""
        for topic, partitions in self._subscriptions.pop(name, {}).items():
            for number in partitions:
                self._release(name, topic, number)
        self._unread.pop(name, None)
        if rows:
            self._unread[name] = rows
        if any(_holds_data(value) for _, value in rows):
            try:
                self._read(name)
            except EntryCorrupt as error:
                log.error("nothing is held back for a subscription: %s", error)

    # reading

    def subscriptions(self) -> list[str]:
        """Names of all subscriptions that have a cursor."""
        return [*self._subscriptions, *self._unread]

    def topics_of(self, subscription: str) -> Collection[str]:
        """The full names of the topics in which a subscription has cursors, also where these are damaged."""
        known = self._subscriptions.get(subscription)
        if known is not None:
            return list(known)
        return {unescape(rest.rpartition("/")[0]) for rest, _ in self._unread.get(subscription, ())}

    def __contains__(self, subscription: str) -> bool:
        return subscription in self._subscriptions or subscription in self._unread

    def subscriptions_of(self, topic: str) -> list[str]:
        """Names of all subscriptions that have a cursor in some partition of `topic`, ascending.

        It looks at every subscription that exists, so it is for administration, not for each request of a client.
        """
        prefix = escape(topic) + "/"
        names = {name for name, topics in self._subscriptions.items() if topic in topics}
        names.update(
            name for name, rests in self._unread.items() if any(rest.startswith(prefix) for rest, _ in rests)
        )
        return sorted(names)

    def held_from(self, topic: str, partition: int) -> int | None:
        """The lowest offset that a subscription holds in a partition; None if no subscription holds data there."""
        holders = self._holders.get((topic, partition))
        return min(cursor.mark_delete for cursor in holders.values()) if holders else None

    def holders(self, topic: str, partition: int) -> list[str]:
        """The subscriptions that hold data in a partition."""
        return list(self._holders.get((topic, partition), ()))

    # inside

    def _known_id(self, topic: str) -> str | None:
        """The id of the topic; None if the topic is gone, or is being deleted, with all its cursors."""
        try:
            return self.identity(topic)
        except BrokerError:
            return None

    def _stored_path(self, part: str, rest: str) -> str:
        topic, _, partition = rest.rpartition("/")
        return f"{ROOT}{part}/{with_id(topic, self._known_id(unescape(topic)) or '')}/{partition}"

    def _read(self, name: str) -> Subscription:
        found = self._subscriptions.get(name)
        if found is not None:
            return found
        stored = self._unread.get(name)
        if stored is None:
            return {}
        topics: Subscription = {}
        for rest, value in stored:
            topic, _, partition = rest.rpartition("/")
            try:
                topics.setdefault(unescape(topic), {})[int(partition)] = Cursor.decode(value)
            except (EntryCorrupt, ValueError) as error:
                raise EntryCorrupt(f"cursor {rest} of subscription {name!r}: {error}") from error
        del self._unread[name]
        self._subscriptions[name] = topics
        for topic, partitions in topics.items():
            for number, cursor in partitions.items():
                if cursor.holds_data:
                    self._holders.setdefault((topic, number), {})[name] = cursor
        return topics

    def _publish(self, cursors: Iterable[tuple[tuple[str, str, int], Cursor]]) -> None:
        for (name, topic, partition), cursor in cursors:
            topics = self._read(name)
            self._subscriptions[name] = topics
            topics.setdefault(topic, {})[partition] = cursor
            if cursor.holds_data:
                self._holders.setdefault((topic, partition), {})[name] = cursor
            else:
                self._release(name, topic, partition)

    def _release(self, name: str, topic: str, partition: int) -> None:
        holders = self._holders.get((topic, partition), {})
        holders.pop(name, None)
        if not holders:
            self._holders.pop((topic, partition), None)


def _holds_data(value: bytes) -> bool:
    return len(value) > 2 and bool(value[2] & HOLDS_DATA)


def _place_of(row: _Row) -> tuple[str, int]:
    topic, _, number = row[0].rpartition("/")
    return unescape(topic), int(number)


def with_id(topic: str, topic_id: str) -> str:
    """A topic's part of a path."""
    return f"{topic}@{topic_id}" if topic_id else topic

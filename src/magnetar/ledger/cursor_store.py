"""All cursors of all subscriptions: durable in the metadata store, and read from memory.

One cursor is one path, `/cursors/<subscription>/<topic's full name>@<topic id>/<partition>`, with both names
percent-escaped.  So one scan reads all cursors of a group, and each is written alone: the commit of one member never
overwrites that of another.  What must stay true: memory never shows a cursor that is not durable.  A cursor that this
store returns is shared: copy it before you change it.

Callers know topics by name, but a cursor belongs to the topic that had the name when the cursor was written.  So a
new topic of the same name never gets its predecessor's position, even if a write of that was still under way.
Cursors of a deleted topic leave memory at once (`forget_topic`), and the store a little later.  Earlier versions
wrote paths without an id; `load` gives them the id of the topic that has the name now.

The one exception is a *live* cursor: while Pulsar consumers are connected, their subscription owns its cursor and
changes it with every acknowledgement.  Readers see that cursor, so that a Kafka group's lag and a Pulsar
subscription's backlog agree at any moment.  The stored cursor follows when the owner calls `save`, and retention uses
the stored one.  When others write to a live cursor, its owner gets the change at once.  If it got the change only once
that is durable, the owner's saves meanwhile would undo it.

`load` reads all values in one scan.  A subscription is decoded when a caller first asks for it, so that 10,000 idle
groups cost next to nothing.  Only subscriptions with cursors that hold data are decoded at the start, because
retention asks for these by topic.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from magnetar.base.errors import MetadataError
from magnetar.base.event import Event
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.ledger.stored_cursors import ROOT, StoredCursors, with_id
from magnetar.metadata.path_parts import escape, unescape
from magnetar.metadata.store import Delete, MetadataStore, Put


class CursorKey(NamedTuple):
    subscription: str
    topic: str  # full name: persistent://tenant/namespace/name
    partition: int


class CursorOwner(Protocol):
    """An object that changes a cursor in place; while it is attached, readers get its cursor."""

    @property
    def cursor(self) -> Cursor: ...

    @property
    def is_in_use(self) -> bool:
        """Whether consumers are connected, so that no Kafka group and no other client may move the cursor."""
        ...

    def replaced(self, cursor: Cursor | None) -> None:
        """Another writer writes this cursor, and will have written it before the owner's next `save`; or has dropped
        it (None), which is durable.
        """
        ...


def _no_id(_: str) -> str:
    """The id of a topic where topics have none, because no name is used twice."""
    return ""


class CursorStore(StoredCursors):
    """All methods except `load`, `commit`, `drop...` and `close` answer from memory at once.

    `identity` returns the id, in hex, of the topic that has a full name, and raises a BrokerError if there is none.
    `dropped` happens with the keys of cursors as soon as they are gone, because a client may create new ones with the
    same keys next.
    """

    def __init__(
        self,
        store: MetadataStore,
        commits: SharedCommits | None = None,
        identity: Callable[[str], str] = _no_id,
    ) -> None:
        super().__init__(store, identity)
        self.dropped: Final[Event[Collection[CursorKey]]] = Event()
        self._commits = commits or SharedCommits(store)
        self._writing: Counter[CursorKey] = Counter()  # commits under way: a drop must find them too
        # The latest write under way, and the cursor that it will leave; None: it drops the cursor.
        self._under_way: dict[CursorKey, tuple[asyncio.Future[None], Cursor | None]] = {}
        self._owners: dict[CursorKey, CursorOwner] = {}
        self._owned: dict[str, set[CursorKey]] = {}  # keys of `_owners`, by subscription

    # reading

    def get(self, key: CursorKey) -> Cursor | None:
        """The cursor as last committed, or as its owner has it; None if there is none.  Raises EntryCorrupt if the
        subscription's stored values are damaged.
        """
        owner = self._owners.get(key)
        if owner is not None:
            return owner.cursor
        partitions = self._read(key.subscription).get(key.topic)
        return partitions.get(key.partition) if partitions else None

    def newest(self, key: CursorKey) -> Cursor | None:
        """As `get`, including the latest write that is not yet durable.  A caller that replaces the cursor must start
        from a copy of this, or it would undo that write.
        """
        under_way = self._under_way.get(key)
        if under_way is None or (under_way[1] is not None and key in self._owners):
            return self.get(key)
        return under_way[1]

    def subscription(self, name: str) -> Mapping[str, Mapping[int, Cursor]]:
        """All cursors of a subscription, as topic -> partition -> cursor; empty if there is none.  Raises as `get`."""
        owned = self._owned.get(name)
        if not owned:
            return self._read(name)
        topics = {topic: dict(partitions) for topic, partitions in self._read(name).items()}
        for key in owned:
            topics.setdefault(key.topic, {})[key.partition] = self._owners[key].cursor
        return topics

    async def at_rest(self, key: CursorKey) -> None:
        """Return when no write of the cursor is under way, however the last one ended."""
        while (under_way := self._under_way.get(key)) is not None:
            await asyncio.wait([under_way[0]])

    def is_being_written(self, key: CursorKey) -> bool:
        """Whether a commit of this cursor is under way and not yet durable."""
        return key in self._writing

    # live cursors

    def attach(self, key: CursorKey, owner: CursorOwner) -> None:
        """Make `owner` the owner of the cursor of `key`, which must have none, and must be at rest: the owner would not
        know of a write that ends later.
        """
        assert key not in self._owners, key
        assert key not in self._under_way, key
        self._owners[key] = owner
        self._owned.setdefault(key.subscription, set()).add(key)

    def detach(self, key: CursorKey, owner: CursorOwner | None = None) -> None:
        """End an ownership: the stored cursor is the cursor again.  Does nothing if `key` has no owner, or another
        one than `owner`.
        """
        if owner is not None and self._owners.get(key) is not owner:
            return
        if self._owners.pop(key, None) is not None:
            owned = self._owned[key.subscription]
            owned.discard(key)
            if not owned:
                del self._owned[key.subscription]

    def owner(self, key: CursorKey) -> CursorOwner | None:
        """The owner of the cursor of `key`; None if it has none."""
        return self._owners.get(key)

    def is_in_use(self, key: CursorKey) -> bool:
        """Whether connected consumers own the cursor."""
        owner = self._owners.get(key)
        return owner is not None and owner.is_in_use

    def in_use(self, subscription: str, beside: Collection[str] = ()) -> bool:
        """Whether connected consumers own a cursor of the subscription, `beside` those in these topics."""
        owned = self._owned.get(subscription, ())
        return any(self._owners[key].is_in_use for key in owned if key.topic not in beside)

    def save(self, key: CursorKey) -> asyncio.Future[None]:
        """Write a copy of the cursor of `key`, which must have an owner.  Returns and raises as `submit`."""
        owner = self._owners[key]
        if key in self._under_way and self.newest(key) is None:  # written behind that, it would come back
            raise MetadataError(f"subscription {key.subscription} is being dropped")
        return self._submit({key: owner.cursor.copy()}, (), by_owner=True)

    # writing

    async def commit(self, cursors: Mapping[CursorKey, Cursor]) -> None:
        """Write all of `cursors` in one step, and return when they are durable.  If it raises, none of them is
        stored.

        The store keeps the objects: do not change them afterwards.

        Raises:
            MetadataError: the write failed.
            EntryCorrupt: a subscription's stored values are damaged.
            UnknownTopic: one of the topics is gone.
            ValueError: one of the cursors is too large to store.
        """
        await self.submit(cursors)

    def submit(
        self,
        cursors: Mapping[CursorKey, Cursor],
        also: Iterable[Put | Delete] = (),
        ready: Iterable[Put] | None = None,
    ) -> asyncio.Future[None]:
        """As `commit`, but the write is only under way when this returns.  The future is done when it is durable.

        Owners of the cursors have them at once, and keep them if the write fails.  `also` is applied in the same step;
        `ready` has what `put_of` returns for these cursors.

        Cancelling the future does not cancel the write.  The future fails with MetadataError; all other errors are
        raised at once.
        """
        return self._submit(cursors, also, ready)

    def put_of(self, key: CursorKey, cursor: Cursor) -> Put:
        """The operation that stores a cursor."""
        return Put(_path(key, self.identity(key.topic)), cursor.encode())

    def _submit(
        self,
        cursors: Mapping[CursorKey, Cursor],
        also: Iterable[Put | Delete],
        ready: Iterable[Put] | None = None,
        *,
        by_owner: bool = False,
    ) -> asyncio.Future[None]:
        for name in {key.subscription for key in cursors}:
            self._read(name)
        writes: list[Put | Delete] = []
        writes += [self.put_of(*one) for one in cursors.items()] if ready is None else ready
        writes += also
        self._writing.update(cursors.keys())
        written = self._commits.submit(writes, lambda: self._publish(cursors.items()))
        written.add_done_callback(lambda _: self._settled(cursors))
        self._note_write(cursors, written)
        if not by_owner and not written.done():  # done: the store would not take it
            for key, cursor in cursors.items():
                owner = self._owners.get(key)
                if owner is not None:
                    owner.replaced(cursor)
        return asyncio.shield(written)

    async def drop(self, keys: Iterable[CursorKey], also: Iterable[Put | Delete] = ()) -> None:
        """Delete cursors and apply `also`, in one step.  Those that do not exist, or go with their topics, are ignored.

        Raises MetadataError, and EntryCorrupt as `get`.
        """
        dropped = {key for key in keys if self._known_id(key.topic) is not None}
        for name in {key.subscription for key in dropped}:
            self._read(name)  # or a later read would find the dropped cursors again
        await self._drop(dropped, [*also])

    async def drop_subscription(self, name: str, also: Iterable[Put | Delete] = ()) -> None:
        """Delete all cursors of a subscription and, in the same step, apply `also`.  Raises MetadataError.

        It also deletes damaged values, and is the only way to get rid of these.
        """
        damaged: list[Put | Delete] = [
            Delete(self._stored_path(escape(name), rest)) for rest, _ in self._unread.get(name, ())
        ]
        keys = {
            CursorKey(name, topic, partition)
            for topic, partitions in self._subscriptions.get(name, {}).items()
            for partition in partitions
        }
        keys.update(key for key in self._writing if key.subscription == name)
        keys.update(self._owned.get(name, ()))
        await self._drop(keys, [*damaged, *also], forget=name)

    def forget_topic(self, topic: str, topic_id: str) -> Iterator[str]:
        """Forget all cursors of a topic that a durable transaction has deleted.

        Returns the paths of the stored cursors, one by one, for the caller to remove.
        """
        part = escape(topic)
        gone: list[tuple[str, Iterable[int]]] = []
        partitions: set[int] = set()
        for name, topics in list(self._subscriptions.items()):
            cursors = topics.pop(topic, None)
            if cursors is not None:
                gone.append((escape(name), cursors))
                partitions.update(cursors)
                if not topics:
                    del self._subscriptions[name]
        for name, rests in list(self._unread.items()):
            mine = [rest for rest, _ in rests if rest.startswith(part + "/")]
            if mine:
                gone.append((escape(name), [int(rest.rpartition("/")[2]) for rest in mine]))
                self._unread[name] = [row for row in rests if not row[0].startswith(part + "/")]
                if not self._unread[name]:
                    del self._unread[name]
        for number in partitions:
            self._holders.pop((topic, number), None)
        for key in [key for key in self._owners if key.topic == topic]:
            owner = self._owners[key]
            self.detach(key)  # a new topic of the same name may get an owner at once
            owner.replaced(None)
        self.dropped.happened(
            [CursorKey(unescape(name), topic, number) for name, numbers in gone for number in numbers]
        )
        stored = with_id(part, topic_id)
        return (f"{ROOT}{name}/{stored}/{number}" for name, numbers in gone for number in numbers)

    async def close(self) -> None:
        """Wait for the writes under way."""
        await self._commits.close()

    # inside

    def _settled(self, cursors: Mapping[CursorKey, Cursor]) -> None:
        for key in cursors:
            self._writing[key] -= 1
            if not self._writing[key]:
                del self._writing[key]

    async def _drop(
        self, keys: set[CursorKey], also: list[Put | Delete], *, forget: str | None = None
    ) -> None:
        operations: list[Put | Delete] = [
            *(Delete(_path(key, self._known_id(key.topic) or "")) for key in sorted(keys)),
            *also,
        ]
        if operations:
            written = self._commits.submit(operations, lambda: self._unpublish(keys, forget))
            self._note_write(dict.fromkeys(keys), written)
            await asyncio.shield(written)

    def _note_write(self, cursors: Mapping[CursorKey, Cursor | None], written: asyncio.Future[None]) -> None:
        """Note a write that is under way, and the cursors that it will leave."""
        for key, cursor in cursors.items():
            self._under_way[key] = written, cursor
        written.add_done_callback(lambda _: self._forget_write(cursors, written))

    def _forget_write(self, cursors: Iterable[CursorKey], written: asyncio.Future[None]) -> None:
        for key in cursors:
            last = self._under_way.get(key)
            if last is not None and last[0] is written:
                del self._under_way[key]

    def _unpublish(self, keys: set[CursorKey], forget: str | None) -> None:
        if forget is not None and forget in self._unread:
            del self._unread[forget]
        elif forget is not None:  # a caller read it meanwhile
            keys = keys | {
                CursorKey(forget, topic, partition)
                for topic, partitions in self._subscriptions.get(forget, {}).items()
                for partition in partitions
            }
        for key in keys:
            name, topic, partition = key
            topics = self._subscriptions.get(name, {})
            partitions = topics.get(topic, {})
            partitions.pop(partition, None)
            if not partitions:
                topics.pop(topic, None)
            if not topics:
                self._subscriptions.pop(name, None)
            self._release(name, topic, partition)
            owner = self._owners.get(key)
            if owner is not None:
                owner.replaced(None)
        self.dropped.happened(keys)


def _path(key: CursorKey, topic_id: str) -> str:
    return f"{ROOT}{escape(key.subscription)}/{with_id(escape(key.topic), topic_id)}/{key.partition}"

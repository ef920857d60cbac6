"""Topics as Pulsar's clients and administrators name them: look up, count, list, watch, create, grow, delete.

A text names a whole topic or one partition of it; a `TopicName` is a whole topic.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from magnetar.base.names import TopicName, parse_partition
from magnetar.broker.cluster.place import Place
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, namespace_resource, topic_resource
from magnetar.broker.topics.errors import WrongKindOfTopic
from magnetar.broker.topics.observers import TopicsObserver, TopicsObservers
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.policies import PROPERTIES
from magnetar.broker.usecases.standing import Standing
from magnetar.broker.usecases.topic_opening import count_or_create
from magnetar.broker.usecases.topics import TopicToDelete

# A client that wants transactions asks first how many partitions this has: as many as there are coordinators.  It is no
# topic, and any client may ask.
_COORDINATORS: Final = TopicName("pulsar", "system", "transaction_coordinator_assign")


class TopicMetadata(NamedTuple):
    """As `PulsarTopicCases.partition_count` counts; a partition has no properties."""

    partition_count: int
    properties: Mapping[str, str]


class TopicsWatcher(Protocol):
    """A client that watches topics.  `names` are the full names of topics or partitions that it knows."""

    @property
    def names(self) -> Collection[str]: ...

    def changed(self, gone: list[str], came: list[str]) -> None:
        """These topics have been deleted, and these created, in any namespace."""
        ...

    def ended(self) -> None:
        """All that it knows counts as deleted, and it learns nothing more."""
        ...


class TopicNames:
    """The handle of a list that `PulsarTopicCases` lets a client have.  It is made in turns of the event loop.

    `count` is the most names that it can have now, so that its memory can be counted first.
    """

    __slots__ = ("_domains", "_is_shown", "_namespace", "_topics", "_whole", "count")

    def __init__(
        self,
        topics: PulsarTopics,
        namespace: str,
        domains: Sequence[bool],
        is_shown: Callable[[Topic], bool],
        *,
        whole: bool = False,
    ) -> None:
        self._topics = topics
        self._namespace = namespace
        self._domains = domains
        self._is_shown = is_shown
        self._whole = whole
        self.count = sum(topics.count(namespace, persistent=persistent) for persistent in domains)

    async def all(self, matches: Callable[[str], bool] | None = None) -> list[str]:
        """The full names, ascending in each domain; only those of topics whose full names match.

        A topic that exists, and that the caller may describe, all the while is there exactly once.

        Raises:
            NamespaceNotFound: the namespace has been deleted meanwhile.
        """
        make = self._topics.partitioned if self._whole else self._topics.names
        is_listed = self._listed(matches)
        names: list[str] = []
        for persistent in self._domains:
            names += await make(self._namespace, persistent=persistent, is_shown=is_listed)
        return names

    async def each(self, matches: Callable[[str], bool], take: Callable[[list[str]], object]) -> None:
        """Call `take` with a few names at a time, in no order.  Names that it gets are those of topics that exist at
        that moment, and that the caller may describe at that moment.
        """
        is_listed = self._listed(matches)
        for persistent in self._domains:
            pieces = self._topics.pieces(self._namespace, persistent=persistent, is_shown=is_listed)
            await self._topics.lane.each(pieces, take)

    def _listed(self, matches: Callable[[str], bool] | None) -> Callable[[Topic], bool]:
        is_shown = self._is_shown
        if matches is None:
            return is_shown
        return lambda topic: is_shown(topic) and matches(topic.resource.name)


class PulsarTopicCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        pulsar_topics: PulsarTopics,
        namespaces: Namespaces,
        observers: TopicsObservers,
        standing: Standing,
        *,
        coordinators: int,
        seat: Seat | None = None,
    ) -> None:
        """`coordinators` of transactions are there.  `seat` is the broker's in a cluster."""
        self._seat = seat
        self._access = access
        self._coordinators = coordinators
        self._pulsar_topics = pulsar_topics
        self._namespaces = namespaces
        self._observers = observers
        self._standing = standing

    # --- found -------------------------------------------------------------------------------------------------------

    def lookup(self, caller: Caller, topic: TopicName, index: int) -> Place | None:
        """Where a topic, or (`index` from 0) a partition of it, is served; None: here.  It need not exist.

        Raises:
            TopicNotAuthorized, NamespaceNotFound
            NotLeader: no broker of the cluster serves it now.
        """
        if topic == _COORDINATORS:
            return None
        self._access.require(caller, Operation.DESCRIBE, topic_resource(topic.full))
        self._pulsar_topics.find(topic)
        if self._seat is None:
            return None
        name = topic.full if index < 0 else topic.partition_name(index)
        return self._seat.place_of(topic.namespace_name, name)

    def lookup_namespace(self, caller: Caller, namespace: str) -> None:
        """Check that the caller may look for topics that match a pattern, which every broker lists.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound
        """
        self._access.require(caller, Operation.DESCRIBE, namespace_resource(namespace))
        self._namespaces.require(namespace)

    def partition_count(self, caller: Caller, topic: str) -> int:
        """How many partitions a topic has: 0 for one that is not partitioned, and for a partition.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic
        """
        self._access.require(caller, Operation.DESCRIBE, topic_resource(parse_partition(topic)[0].full))
        return self._pulsar_topics.partition_count(topic)

    async def partition_count_or_create(self, caller: Caller, topic: str, *, may_create: bool = True) -> int:
        """As `partition_count`, for a client that is about to use the topic.

        If the topic does not exist, it is created where the namespace's policy creates partitioned ones.  The right
        to describe it is enough for that, as in Pulsar.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, TopicNotAllowed, TooManyTopics,
            MetadataError
        """
        name, index = parse_partition(topic)
        if name == _COORDINATORS:
            return self._coordinators if index < 0 else 0
        self._access.require(caller, Operation.DESCRIBE, topic_resource(name.full))
        return await count_or_create(self._access, self._pulsar_topics, caller, topic, may_create=may_create)

    async def metadata(self, caller: Caller, topic: str, *, may_create: bool) -> TopicMetadata:
        """The partition count, as `partition_count` or (`may_create`) as `partition_count_or_create`, with properties.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, TopicNotAllowed, PolicyViolation,
            MetadataError
        """
        if may_create:
            count = await self.partition_count_or_create(caller, topic)
        else:
            count = self.partition_count(caller, topic)
        name, index = parse_partition(topic)
        properties = self._namespaces.topic_policies(name).get(PROPERTIES, {}) if index < 0 else {}
        return TopicMetadata(count, properties)

    # --- listed ------------------------------------------------------------------------------------------------------

    def to_list(
        self, caller: Caller, namespace: str, *, persistent: bool | None = None, whole: bool = False
    ) -> "TopicNames":
        """The names of everything in a namespace that holds messages: topics, or their partitions.  `whole`: those of
        the partitioned topics themselves.

        Lists leave out topics that the caller may not describe.  They include both domains, the persistent ones
        first, unless `persistent` selects one.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound
        """
        self._access.require(caller, Operation.DESCRIBE, namespace_resource(namespace))
        self._namespaces.require(namespace)
        domains = (True, False) if persistent is None else (persistent,)
        is_shown = partial(self._is_shown, caller)
        return TopicNames(self._pulsar_topics, namespace, domains, is_shown, whole=whole)

    def watch(self, caller: Caller, namespace: str, watcher: TopicsWatcher) -> "TopicNames":
        """The names of the namespace's persistent topics; none while there is no namespace.

        From now on, until `unwatch`, `watcher` learns of all topics that are created and deleted; `may_describe` says
        which of them it may tell the caller.  For the watcher, a topic that the caller may no longer describe is
        deleted.  Once the caller may not describe the namespace, all are, and the watcher learns nothing more.

        Raises:
            NamespaceNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, namespace_resource(namespace))
        self._observers.add(watcher.changed)
        self._standing.add_several(
            watcher,
            partial(self._look_again, caller, namespace, watcher),
            partial(self._end_watch, watcher),
        )
        is_shown = partial(self._is_shown, caller)
        return TopicNames(self._pulsar_topics, namespace, (True,), is_shown)

    def may_describe(self, caller: Caller, name: str) -> bool:
        """Whether the caller may know of a topic that a watcher has learnt of."""
        resource = topic_resource(parse_partition(name)[0].full)
        return self._access.permits(caller, Operation.DESCRIBE, resource)

    def _is_shown(self, caller: Caller, topic: Topic) -> bool:
        return self._access.permits(caller, Operation.DESCRIBE, topic.resource)

    def _look_again(self, caller: Caller, namespace: str, watcher: TopicsWatcher) -> Iterator[bool]:
        yield self._access.permits(caller, Operation.DESCRIBE, namespace_resource(namespace))
        hidden = []
        for name in list(watcher.names):
            if not self.may_describe(caller, name):
                hidden.append(name)
            yield True  # to watch the others
        if hidden:
            watcher.changed(hidden, [])

    def _end_watch(self, watcher: TopicsWatcher) -> None:
        self._observers.discard(watcher.changed)
        watcher.ended()

    def unwatch(self, watcher: TopicsWatcher) -> None:
        """End what `watch` began."""
        self._observers.discard(watcher.changed)
        self._standing.drop(watcher)

    async def watch_partitions(self, caller: Caller, topic: str, observer: TopicsObserver) -> int:
        """As `partition_count_or_create`.  Until `unwatch_partitions`, also if this raises, `observer` is called when
        the topic or partitions of it go and come, so that the caller knows when to count again.
        """
        full = parse_partition(topic)[0].full
        self._access.require(caller, Operation.DESCRIBE, topic_resource(full))
        self._observers.add_of(full, observer)
        return await count_or_create(self._access, self._pulsar_topics, caller, topic)

    def unwatch_partitions(self, topic: str, observer: TopicsObserver) -> None:
        """End what `watch_partitions` began."""
        self._observers.discard_of(parse_partition(topic)[0].full, observer)

    # --- changed -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        caller: Caller,
        topic: TopicName,
        partition_count: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic with `partition_count` partitions, or one that is not partitioned if it is 0.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, TopicExists, InvalidPartitions, InvalidPolicy, TooManyTopics,
            MetadataError
        """
        async with self._access.change(
            caller,
            Operation.CREATE,
            topic_resource(topic.full),
            Change.TOPIC_CREATE,
            partitions=partition_count,
        ):
            await self._pulsar_topics.create(topic, partition_count)
            if properties:
                await self._namespaces.change_topic(topic, lambda values: {**values, PROPERTIES: properties})

    async def grow(self, caller: Caller, topic: TopicName, partition_count: int) -> None:
        """Add partitions until there are `partition_count`.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, NotPartitioned, InvalidPartitions, MetadataError
        """
        async with self._access.change(
            caller, Operation.ALTER, topic_resource(topic.full), Change.TOPIC_GROW, partitions=partition_count
        ):
            await self._pulsar_topics.grow(topic, partition_count)

    def check_partitions(self, caller: Caller, topic: TopicName) -> None:
        """Check that a partitioned topic has all its partitions, which is always so.

        Raises:
            TopicNotAuthorized, NamespaceNotFound
            UnknownTopic: there is no partitioned topic of this name.
        """
        self._access.require(caller, Operation.ALTER, topic_resource(topic.full))
        found = self._pulsar_topics.find(topic)
        if found is None or not found.is_partitioned:
            raise UnknownTopic(f"Topic {topic.full} does not exist")

    def to_delete(self, caller: Caller, topic: TopicName, *, partitioned: bool) -> TopicToDelete:
        """A topic for `delete`, which is partitioned or not, as the caller says.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic
            WrongKindOfTopic: it is partitioned and `partitioned` says that it is not, or the reverse.
        """
        self._access.require(caller, Operation.DELETE, topic_resource(topic.full))
        found = self._pulsar_topics.get(topic)
        if found.is_partitioned is not partitioned:
            raise WrongKindOfTopic(f"{topic.full} is {'' if found.is_partitioned else 'not '}partitioned")
        return TopicToDelete(found, caller)

    async def delete(self, topic: TopicToDelete, *, force: bool = False) -> None:
        """Delete what `to_delete` found, with everything that belongs to it; `force` disconnects its clients.

        Raises:
            UnknownTopic, TopicInUse, MetadataError
        """
        resource = topic_resource(topic.name.full)
        async with self._access.record(topic._caller, Change.TOPIC_DELETE, resource, force=force):
            await self._pulsar_topics.delete(topic.name, force=force)

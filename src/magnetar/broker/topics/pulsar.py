"""Topics as Pulsar sees them: created whole or partitioned, found by the names of their partitions, listed, deleted.

A Pulsar name means a whole topic or one partition of a partitioned topic (`...-partition-3`).  A topic that is not
partitioned has its own name.  Kafka clients see what Pulsar clients create, and the reverse: Kafka's topics are
partitioned ones.

The namespace must exist: unlike a Kafka client, a Pulsar client can create it.
"""

from collections.abc import Awaitable, Callable, Iterator

from magnetar.base.lane import Lane
from magnetar.base.names import TopicName, parse_partition
from magnetar.broker.errors import InvalidPartitions, TopicExists, UnknownTopic
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.errors import NamespaceNotFound
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.topics.errors import (
    NamespaceNotEmpty,
    NotPartitioned,
    TopicInUse,
    TopicNotAllowed,
    WrongKindOfTopic,
)
from magnetar.broker.topics.listing import IsListed, pieces
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic


def _every(topic: Topic) -> bool:
    return True


def _inside(namespace: str, persistent: bool) -> IsListed:
    """Whether a topic is in a namespace, and in this domain."""
    tenant, _, local = namespace.partition("/")

    def is_in(topic: Topic) -> bool:
        name = topic.name
        return name.namespace == local and name.tenant == tenant and name.persistent is persistent

    return is_in


class PulsarTopics:
    """See the module's text."""

    def __init__(
        self,
        topics: TopicRegistry,
        namespaces: Namespaces,
        delete_topic: Callable[[Topic], Awaitable[None]],
        forget_namespace: Callable[[str], Awaitable[None]],
        connected: Callable[[Topic], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._namespaces = namespaces
        self._delete_topic = delete_topic
        self._forget_namespace = forget_namespace  # before it is deleted: what else is kept of it
        self._connected = connected  # how many clients use a topic
        self._monotonic = monotonic
        self.lane = Lane()  # for lists, and for what is done to all topics of a namespace

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(self, name: TopicName) -> Topic | None:
        """The topic, or None; raises NamespaceNotFound if its namespace does not exist."""
        if name.namespace_name not in self._namespaces:
            raise NamespaceNotFound("Namespace not found")
        return self._topics.find(name)

    def is_there(self, name: TopicName) -> bool:
        return self._topics.find(name) is not None

    def get(self, name: TopicName) -> Topic:
        """As `find`; raises UnknownTopic if there is none."""
        topic = self.find(name)
        if topic is None:
            raise UnknownTopic(f"Topic {name.full} not found")
        return topic

    def partition(self, text: str) -> Partition:
        """The one partition that `text` names: `...-partition-i`, or a topic that is not partitioned.

        Raises:
            InvalidTopicName, NamespaceNotFound, UnknownTopic
            NotLeader: another broker of the cluster serves it.
        """
        topic, index = self._named(text)
        return topic.partition(index)

    def _named(self, text: str) -> tuple[Topic, int]:
        """What `text` names, as `partition`, which need not be served here."""
        name, index = parse_partition(text)
        topic = self.find(name)
        if topic is None or (index < 0) == topic.is_partitioned or index >= topic.partition_count:
            raise UnknownTopic(f"Topic {text} not found")
        return topic, max(index, 0)

    def one_partition(self, text: str, what: str) -> Partition:
        """As `partition`; raises WrongKindOfTopic for a partitioned topic as a whole, because `what` is impossible
        for it.
        """
        name, index = parse_partition(text)
        if index < 0 and self.get(name).is_partitioned:
            raise WrongKindOfTopic(f"{what} on a partitioned topic is not allowed")
        return self.partition(text)

    def partitions(self, text: str) -> list[Partition]:
        """All partitions of the topic that `text` names, or the one that it names.  Raises as `partition`."""
        name, index = parse_partition(text)
        topic = self.get(name)
        if index >= 0 or not topic.is_partitioned:
            return [self.partition(text)]
        return [topic.partition(one) for one in range(topic.partition_count)]

    def partition_count(self, text: str) -> int:
        """How many partitions `text` has: 0 for a topic that is not partitioned, and for a partition.

        Raises:
            InvalidTopicName, NamespaceNotFound, UnknownTopic
        """
        name, index = parse_partition(text)
        topic = self.get(name)
        if index >= 0:
            self._named(text)
            return 0
        return topic.partition_count if topic.is_partitioned else 0

    async def partition_count_or_create(self, text: str, *, may_create: bool = True) -> int:
        """As `partition_count`, for a client that is about to use the topic.

        If the topic does not exist, it is created where the namespace's policy creates partitioned ones.  A topic
        without partitions is created later, by the producer or consumer that opens it; the answer is then 0.

        Raises:
            InvalidTopicName, NamespaceNotFound, UnknownTopic, TopicNotAllowed, TooManyTopics
        """
        name, index = parse_partition(text)
        await self._topics.settled(name)
        if self.find(name) is not None:
            return self.partition_count(text)
        policy = self._namespaces.policies_of(name).auto_topic_creation
        if not may_create or index >= 0:
            raise UnknownTopic(f"Topic {text} not found")
        if not policy.allowed:
            raise TopicNotAllowed(f"Topic {text} not found")
        if policy.partition_count == 0:
            return 0
        try:
            await self.create(name, policy.partition_count)
        except TopicExists:  # another client was faster, and may not have it yet
            await self._topics.settled(name)
            return self.partition_count(text)
        return policy.partition_count

    async def open(self, text: str, *, may_create: bool = True) -> Partition:
        """The partition that a producer or consumer of `text` uses, created if the namespace's policy allows it.

        Raises:
            InvalidTopicName, NamespaceNotFound, UnknownTopic, TopicNotAllowed, TooManyTopics
        """
        name, index = parse_partition(text)
        await self._topics.settled(name)
        topic = self.find(name)
        if topic is None and index < 0 and may_create and await self.partition_count_or_create(text) == 0:
            try:
                await self.create(name)
            except TopicExists:  # another client was faster, and may not have it yet
                await self._topics.settled(name)
        return self.partition(text)

    def count(self, namespace: str, *, persistent: bool) -> int:
        """How many names `names` returns at most."""
        return self._topics.limits.count(namespace, persistent=persistent)

    async def names(self, namespace: str, *, persistent: bool, is_shown: IsListed = _every) -> list[str]:
        """The full names of everything in a namespace that holds messages: topics, or their partitions, ascending.

        Topics that the caller may not see are left out.  A topic that exists all the while is in the list once.

        Raises:
            NamespaceNotFound
        """
        self._namespaces.require(namespace)
        return await self.lane.in_order(self.pieces(namespace, persistent=persistent, is_shown=is_shown))

    def pieces(self, namespace: str, *, persistent: bool, is_shown: IsListed = _every) -> Iterator[list[str]]:
        """As `names`, piece by piece and in no order: see `listing.py`."""
        is_in = _inside(namespace, persistent)
        return pieces(self._topics, lambda topic: is_in(topic) and is_shown(topic), self._monotonic)

    async def partitioned(
        self, namespace: str, *, persistent: bool, is_shown: IsListed = _every
    ) -> list[str]:
        """The full names of the partitioned topics of a namespace that the caller may see, ascending.

        Raises:
            NamespaceNotFound
        """
        self._namespaces.require(namespace)
        is_in = _inside(namespace, persistent)

        def is_listed(topic: Topic) -> bool:
            return is_in(topic) and is_shown(topic) and topic.is_partitioned

        return await self.lane.in_order(pieces(self._topics, is_listed, self._monotonic, whole=True))

    def of_namespace(self, namespace: str) -> list[Topic]:
        """All topics of a namespace, of both domains."""
        return [
            topic
            for persistent in (True, False)
            for topic in filter(_inside(namespace, persistent), self._topics)
        ]

    # --- changing ----------------------------------------------------------------------------------------------------

    async def create(self, name: TopicName, partition_count: int = 0) -> None:
        """Create a topic with `partition_count` partitions, or one that is not partitioned if it is 0.

        Raises:
            NamespaceNotFound, TopicExists, InvalidPartitions, TooManyTopics
        """
        if self.find(name) is not None:
            raise TopicExists("This topic already exists")
        wanted = NewTopic(name, partition_count or 1, is_partitioned=partition_count > 0)
        await self._topics.create([self._topics.plan(wanted)])

    async def grow(self, name: TopicName, partition_count: int) -> None:
        """Add partitions until there are `partition_count`.

        Raises:
            NamespaceNotFound, NotPartitioned, InvalidPartitions
        """
        topic = self.find(name)
        if topic is None or not topic.is_partitioned:
            raise NotPartitioned(f"Topic {name.full} is not the partitioned topic.")
        async with self._topics.changing(topic):
            present = topic.partition_count
            if partition_count < present:
                raise InvalidPartitions(
                    f"Desired partitions {partition_count} can't be less than the current partitions {present}."
                )
            if partition_count > present:
                replicas = self._topics.plan_partitions(topic, partition_count)
                await self._topics.add_partitions(topic, replicas)

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic with all its partitions, subscriptions and policies; `force` disconnects its clients.

        Raises:
            NamespaceNotFound, UnknownTopic, TopicInUse
        """
        topic = self.get(name)
        count = 0 if force else self._connected(topic)
        if count:
            raise TopicInUse(f"Topic has {count} connected producers/consumers")
        await self._delete_topic(topic)

    async def delete_namespace(self, namespace: str, *, force: bool = False) -> None:
        """Delete a namespace; with `force` also everything in it.

        Raises:
            NamespaceNotFound, NamespaceNotEmpty
        """
        self._namespaces.require(namespace)
        topics = self.of_namespace(namespace)
        if topics and not force:
            raise NamespaceNotEmpty("Cannot delete non empty namespace")
        for topic in topics:
            await self.delete(topic.name, force=True)
        await self._namespaces.delete(namespace, self._forget_namespace)


def partition_index(partition: Partition) -> int:
    """The partition's number, as message ids contain it: -1 if its topic is not partitioned."""
    return partition.index if partition.topic.is_partitioned else -1

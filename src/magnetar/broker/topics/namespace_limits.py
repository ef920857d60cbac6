"""How many topics each namespace has, and whether it may have more: Pulsar's policy `maxTopicsPerNamespace`.

As in Pulsar every partition counts as a topic, and topics of `non-persistent://` do not count.  The limit applies only
to creating topics: clients may add partitions to an existing topic, and topics from before the limit stay.

The numbers also tell how long a list of a namespace's topics may be, before it is made.

What must stay true: a topic counts from the moment when its creation is decided until the moment when it is no longer
found.  So topics that are created at the same time cannot exceed the limit together.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from magnetar.base.names import TopicName
from magnetar.broker.policy.model import Policies
from magnetar.broker.topics.errors import TooManyTopics
from magnetar.broker.topics.topic import Topic


class NamespaceLimits:
    """`policies_of` has the policies of a topic with this name, which need not be there."""

    def __init__(self, policies_of: Callable[[TopicName], Policies]) -> None:
        self._policies_of = policies_of
        self._counts: Counter[str] = Counter()  # by `tenant/namespace`
        self._volatile: Counter[str] = Counter()  # the same for topics that store nothing
        self.total = 0  # of both, in all namespaces

    def add(self, name: TopicName, partition_count: int) -> None:
        """Count this many partitions more, or fewer if it is negative."""
        self.total += partition_count
        namespace = name.namespace_name
        counts = self._counts if name.persistent else self._volatile
        counts[namespace] += partition_count
        if not counts[namespace]:
            del counts[namespace]

    def count(self, namespace: str, *, persistent: bool) -> int:
        """How many topics a namespace has, partitions counted one by one."""
        return (self._counts if persistent else self._volatile)[namespace]

    def check(self, name: TopicName, partition_count: int, planned: Counter[str] | None = None) -> None:
        """Check that a topic may be created, beside the existing ones and, by namespace, the partitions that are
        `planned`.

        Its own partitions are then added to `planned`.

        Raises:
            TooManyTopics
        """
        if not name.persistent:
            return
        namespace, limit = name.namespace_name, self._policies_of(name).namespace_topics_max
        beside = self._counts[namespace] + (planned[namespace] if planned is not None else 0)
        if limit and beside + partition_count > limit:
            raise TooManyTopics("Exceed maximum number of topics in namespace.")  # Pulsar's words
        if planned is not None:
            planned[namespace] += partition_count

    def check_all(self, topics: Iterable[Topic]) -> None:
        """As `check`, for topics that are created together."""
        planned: Counter[str] = Counter()
        for topic in topics:
            self.check(topic.name, topic.partition_count, planned)

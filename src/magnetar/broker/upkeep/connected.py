"""How many clients use a topic.  The server may delete an idle topic by itself; a topic in use is only deleted by
force.
"""

from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.cursor_store import CursorStore


class ConnectedClients:
    """See the module's text."""

    def __init__(
        self,
        producers: Producers,
        subscriptions: Subscriptions,
        pipelines: Pipelines,
        groups: GroupCoordinator,
        cursors: CursorStore,
    ) -> None:
        self._producers = producers
        self._subscriptions = subscriptions
        self._pipelines = pipelines
        self._groups = groups
        self._cursors = cursors

    def count(self, topic: Topic) -> int:
        """Pulsar's producers and consumers, and Kafka's groups with members, that use a topic.  Replicators do not
        count: they go with their topic.
        """
        count, full = 0, topic.name.full
        for partition in topic.open_partitions:
            count += len(self._producers.find(partition) or ())
            of_clients = (
                one
                for one in self._subscriptions.of(partition)
                if not self._pipelines.is_of_replicator(one.key.subscription, full)
            )
            count += sum(len(one.consumers) for one in of_clients)
            count += sum(len(one.consumers) for one in self._subscriptions.volatile(partition))
        groups = self._cursors.subscriptions_of(full)
        return count + sum(self._groups.consumes(name, full) for name in groups)

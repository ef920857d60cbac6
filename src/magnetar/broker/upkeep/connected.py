"""How many clients use a topic.  The server may delete an idle topic by itself; a topic in use is only deleted by
force.
"""

from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.topics_in_use import TopicsInUse


class ConnectedClients:
    """See the module's text."""

    def __init__(self, in_use: TopicsInUse, groups: GroupCoordinator, pipelines: Pipelines) -> None:
        self._producers = in_use.producers
        self._subscriptions = in_use.subscriptions
        self._groups = groups
        self._cursors = in_use.cursors
        self._pipelines = pipelines

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

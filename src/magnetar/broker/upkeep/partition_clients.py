"""The Pulsar clients of a partition: all leave when it is unloaded or deleted, and producers when it is terminated."""

from magnetar.broker.log.partition import Partition
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic


class PartitionClients:
    """See the module's text.  Kafka's clients notice by themselves, with their next request."""

    def __init__(self, topics: TopicRegistry, producers: Producers, subscriptions: Subscriptions) -> None:
        self._producers = producers
        self._subscriptions = subscriptions
        topics.terminated.hear(self._terminated)

    async def send_away(self, partition: Partition) -> None:
        """Disconnect the clients after storing positions; they may reconnect."""
        self._producers.close(partition)
        await self._subscriptions.close_partition(partition)

    def refuse(self, topic: Topic) -> None:
        """Let no producer in any more, because the topic is deleted; the topic itself refuses consumers."""
        self._producers.forget(topic)

    def _terminated(self, partition: Partition) -> None:
        """Tell consumers that have everything, and disconnect producers: they reconnect and are refused."""
        self._subscriptions.terminated(partition)
        self._producers.close(partition)

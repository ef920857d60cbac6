"""The broker's topics as groups see them."""

from magnetar.base.names import TopicName
from magnetar.broker.topics.registry import TopicRegistry


class RegistryCatalogue:
    """A `TopicCatalogue` over the topic registry."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    def exists(self, topic: str, partition: int) -> bool:
        found = self._topics.find(TopicName.parse(topic))
        return found is not None and 0 <= partition < found.partition_count

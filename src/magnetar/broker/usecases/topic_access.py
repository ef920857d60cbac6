"""Topics by the names in Kafka's requests, for a caller whose right was checked."""

from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, topic_resource
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic


class TopicAccess:
    """The first step of the use cases of single topics."""

    def __init__(self, access: AccessControl, topics: TopicRegistry, kafka_topics: KafkaTopics) -> None:
        self._access = access
        self._topics = topics
        self._kafka_topics = kafka_topics

    def get(self, caller: Caller, operation: Operation, kafka_name: str) -> Topic:
        """The topic.  Only a caller that has the right learns whether it exists.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        topic = self._kafka_topics.find(kafka_name)
        if topic is None:
            name = self._kafka_topics.name(kafka_name)
            self._access.require(caller, operation, topic_resource(name.full))
            return self._kafka_topics.get(kafka_name)
        self._access.require(caller, operation, topic.resource)
        return topic

    def get_by_id(self, caller: Caller, operation: Operation, topic_id: bytes) -> Topic:
        """As `get`; raises UnknownTopicId if no topic has this id.  A refusal does not reveal the name."""
        topic = self._topics.get_by_id(topic_id)
        self._access.require_unnamed(caller, operation, topic.resource)
        return topic

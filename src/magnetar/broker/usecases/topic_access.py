"""Topics by the names in Kafka's requests, for a caller whose right was checked."""

from dataclasses import dataclass

from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, topic_resource
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """The first step of the use cases of single topics.  Those of several topics use its parts."""

    access: AccessControl
    topics: TopicRegistry
    kafka_topics: KafkaTopics

    def get(self, caller: Caller, operation: Operation, kafka_name: str) -> Topic:
        """The topic.  Only a caller that has the right learns whether it exists.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        topic = self.kafka_topics.find(kafka_name)
        if topic is None:
            name = self.kafka_topics.name(kafka_name)
            self.access.require(caller, operation, topic_resource(name.full))
            return self.kafka_topics.get(kafka_name)
        self.access.require(caller, operation, topic.resource)
        return topic

    def get_by_id(self, caller: Caller, operation: Operation, topic_id: bytes) -> Topic:
        """As `get`; raises UnknownTopicId if no topic has this id.  A refusal does not reveal the name."""
        topic = self.topics.get_by_id(topic_id)
        self.access.require_unnamed(caller, operation, topic.resource)
        return topic

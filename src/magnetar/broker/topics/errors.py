"""Errors about topics, and about what is in a namespace, as Pulsar's clients name them."""

from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import PolicyViolation, UnknownTopic


class NotPartitioned(UnknownTopic):
    """The topic exists, but has no partitions that a client can name."""

    code: ClassVar[str] = "NOT_PARTITIONED"


class WrongKindOfTopic(BrokerError):
    """The request is for partitioned topics only, or for others only, and this topic is of the other kind."""

    code: ClassVar[str] = "WRONG_KIND_OF_TOPIC"


class EmptyTopic(BrokerError):
    """The topic has nothing to show."""

    code: ClassVar[str] = "EMPTY_TOPIC"


class TopicInUse(BrokerError):
    """Clients are connected to the topic."""

    code: ClassVar[str] = "TOPIC_IN_USE"


class NamespaceNotEmpty(BrokerError):
    """The namespace has topics."""

    code: ClassVar[str] = "NAMESPACE_NOT_EMPTY"


class TopicNotAllowed(UnknownTopic):
    """The topic does not exist, and the namespace's policy does not let clients create it."""

    code: ClassVar[str] = "TOPIC_NOT_ALLOWED"


class TooManyTopics(PolicyViolation):
    """The namespace's policy does not allow so many topics."""

    code: ClassVar[str] = "TOO_MANY_TOPICS"

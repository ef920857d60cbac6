"""What can be wrong with a topic, or with what is in a namespace, as Pulsar's clients name them."""

from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import PolicyViolation, UnknownTopic


class NotPartitioned(UnknownTopic):
    """The topic is there, but has no partitions that could be named."""

    code: ClassVar[str] = "NOT_PARTITIONED"


class WrongKindOfTopic(BrokerError):
    """What is asked for is for partitioned topics only, or for others only, and this topic is of the other kind."""

    code: ClassVar[str] = "WRONG_KIND_OF_TOPIC"


class EmptyTopic(BrokerError):
    """There is nothing in the topic that could be shown."""

    code: ClassVar[str] = "EMPTY_TOPIC"


class TopicInUse(BrokerError):
    """Clients are connected to the topic."""

    code: ClassVar[str] = "TOPIC_IN_USE"


class NamespaceNotEmpty(BrokerError):
    """The namespace has topics."""

    code: ClassVar[str] = "NAMESPACE_NOT_EMPTY"


class TopicNotAllowed(UnknownTopic):
    """The topic is not there, and the namespace's policy does not let clients make it."""

    code: ClassVar[str] = "TOPIC_NOT_ALLOWED"


class TooManyTopics(PolicyViolation):
    """The namespace's policy does not let it have so many topics."""

    code: ClassVar[str] = "TOO_MANY_TOPICS"

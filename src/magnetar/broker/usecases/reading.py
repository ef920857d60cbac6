"""Reading: what Kafka's clients fetch of topics, in the form of their protocol."""

from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.security.model import Caller, Operation
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.topic_access import TopicAccess


class ReadCases:
    """See the module's text.  What is read of a topic's partitions passes through `kafka_form`, or, where that has to
    wait, through `kafka_form_later`.
    """

    def __init__(
        self,
        topic_access: TopicAccess,
        interop: Interop,
        lookups: TimeLookups,
    ) -> None:
        self._topic_access = topic_access
        self.kafka_form = interop.kafka_form
        self.kafka_form_later = interop.kafka_form_later
        self.first_at = lookups.first_at  # an offset by time, in a partition of a topic that was described
        self.newest = lookups.newest

    def to_read(self, caller: Caller, kafka_name: str) -> Topic:
        """A topic whose records, or whose producers, the caller is shown.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        return self._topic_access.get(caller, Operation.READ, kafka_name)

    def to_read_by_id(self, caller: Caller, topic_id: bytes) -> Topic:
        """As `to_read`; UnknownTopicId when no topic has this id."""
        return self._topic_access.get_by_id(caller, Operation.READ, topic_id)

"""The names that Kafka's clients use for topics, which need not be there.

A client may leave out tenant and namespace: then it means its home namespace.  It may use every name that it is
shown: see `base/names.py`.
"""

from dataclasses import dataclass

from magnetar.base.names import InvalidTopicName, TopicName


@dataclass(frozen=True, slots=True)
class KafkaTopicNames:
    """See the module's text.  `tenant` and `namespace` are the clients' own."""

    tenant: str
    namespace: str

    @property
    def home(self) -> str:
        """The clients' own namespace, as `tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    def name(self, kafka_name: str) -> TopicName:
        """The topic that a client means; raises InvalidTopicName (a BrokerError) if no topic can have the name."""
        return TopicName.parse(kafka_name, self.tenant, self.namespace)

    def shown(self, name: TopicName) -> str:
        """The name that a client sees."""
        return name.kafka_name(self.tenant, self.namespace)

    def full_name_or_itself(self, kafka_name: str) -> str:
        """For names in what a client sends to its group, which need not be names of topics."""
        try:
            return self.name(kafka_name).full
        except InvalidTopicName:
            return kafka_name

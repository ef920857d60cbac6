"""How a replicator to Kafka is configured, and opened.

    {"bootstrap.servers": "kafka:9092", "compression.type": "zstd"}

The client is confluent-kafka, which is imported when a producer is opened.  With the property `transactional.id` the
producer writes in transactions (`transactional.py`).
"""

import re
from importlib.util import find_spec
from typing import Final

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.kafka.settings import TRANSACTIONAL_ID, client_settings
from magnetar.replicators.policies import TOPIC_PLACE, ReplicatorPolicies
from magnetar.replicators.provider import ReplicatorProducer

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class KafkaProvider:
    type = "Kafka"

    def validate_properties(self, namespace: str, policies: ReplicatorPolicies) -> None:
        client_settings(policies.properties, policies.credentials)
        for target in policies.topic_names.values():
            _check_topic(target.replace(TOPIC_PLACE, "topic"))

    def works_without_offsets(self, policies: ReplicatorPolicies) -> bool:
        """Transactions note at the target which offsets it has."""
        return TRANSACTIONAL_ID not in policies.properties

    def create_producer(self, topic: str, policies: ReplicatorPolicies) -> ReplicatorProducer:
        target = policies.target_of(topic.rpartition("/")[2])
        if target is None:
            raise ReplicatorConfigError(f"topicNameMapping says no topic of Kafka for {topic}: add one")
        _check_topic(target)
        settings = client_settings(policies.properties, policies.credentials)
        if find_spec("confluent_kafka") is None:
            raise ReplicatorConfigError(
                "a replicator to Kafka needs the package confluent-kafka: pip install 'magnetar[replicators]'"
            )
        if TRANSACTIONAL_ID in settings:
            from magnetar.replicators.kafka.transactional import TransactionalKafkaProducer

            source = topic.partition("://")[2].replace("/", ".")
            return TransactionalKafkaProducer(settings, target, f"{source}-{policies.replicator_id}")
        from magnetar.replicators.kafka.producer import KafkaProducer

        return KafkaProducer(settings, target)


def _check_topic(name: str) -> None:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ReplicatorConfigError(
            f"{name[:300]!r} cannot be a topic of Kafka: a name has up to 249 letters, digits, dots, _ and -"
        )

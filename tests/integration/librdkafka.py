"""What librdkafka's clients are answered, as numbers that a test can compare."""

from typing import Any, Final

import confluent_kafka

TOPIC_DENIED: Final = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
AUTHENTICATION: Final = -169  # its own _AUTHENTICATION, which confluent-kafka has no name for


def produced(settings: dict[str, Any], topic: str) -> int:
    """The error that a record is answered with, 0 for none."""
    codes: list[int] = []
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": False})
    producer.produce(topic, b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    assert producer.flush(20) == 0
    return codes[0]

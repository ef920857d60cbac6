"""What librdkafka's clients are answered, as numbers that a test can compare."""

import time
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

TOPIC_DENIED: Final = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
_ANSWERED_S: Final = 25.0
_REFUSED_S: Final = 30.0
TRANSPORT: Final = (-195, -181)  # its _TRANSPORT and _SSL
AUTHENTICATION: Final = -169  # its own _AUTHENTICATION, which confluent-kafka has no name for


def produced(settings: dict[str, Any], topic: str, *, gives_up: bool = False) -> int:
    """The error that a record is answered with, 0 for none.

    A client that cannot connect tries again and again; if it `gives_up`, the answer is the error of its first try.
    """
    codes: list[int] = []
    failures: list[int] = []
    producer = confluent_kafka.Producer(
        {**settings, "enable.idempotence": False, "error_cb": lambda error: failures.append(error.code())}
    )
    try:
        producer.produce(
            topic, b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
        )
    except confluent_kafka.KafkaException as refused:  # it has already heard that it may not see the topic
        return int(refused.args[0].code())
    until = time.monotonic() + _ANSWERED_S
    while not codes:
        assert time.monotonic() < until, failures
        producer.poll(0.1)
        fatal = [code for code in failures if code == AUTHENTICATION or code in TRANSPORT]
        if fatal and gives_up:
            producer.purge()
            producer.flush(1)
            return fatal[0]
    return codes[0]


def refused_login(settings: dict[str, Any]) -> str:
    """What it says of a login that is refused, behind which it gets nothing."""
    said: list[confluent_kafka.KafkaError] = []
    told: dict[str, Any] = {**settings, "error_cb": said.append}
    client = AdminClient(told)
    until = time.monotonic() + _REFUSED_S
    while AUTHENTICATION not in [error.code() for error in said]:
        assert time.monotonic() < until, said
        client.poll(0.1)
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=0.5)  # it goes on trying, so it never has an answer
    return " ".join(map(str, said))

"""Topics made and removed through confluent-kafka's admin client; failures become RunFailed."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.process import RunFailed

REQUEST_SECONDS = 120.0
TOPICS_PER_REQUEST = 500
GONE_SECONDS_MAX = 60.0


@contextlib.contextmanager
def topic(bootstrap: str, name: str, partitions: int) -> Iterator[str]:
    """A topic for the time of the block; afterwards it is deleted, and gone from Metadata."""
    create_topics(bootstrap, [name], partitions)
    try:
        yield name
    finally:
        _delete(bootstrap, name)


def create_topics(bootstrap: str, names: Sequence[str], partitions: int = 1) -> None:
    client = _client(bootstrap)
    for begin in range(0, len(names), TOPICS_PER_REQUEST):
        wanted = [
            NewTopic(name, num_partitions=partitions) for name in names[begin : begin + TOPICS_PER_REQUEST]
        ]
        for name, answer in client.create_topics(wanted, request_timeout=REQUEST_SECONDS).items():
            try:
                answer.result(REQUEST_SECONDS)
            except KafkaException as error:
                raise RunFailed(f"topic {name} could not be created: {error}") from error


def _delete(bootstrap: str, name: str) -> None:
    client = _client(bootstrap)
    try:
        client.delete_topics([name], request_timeout=REQUEST_SECONDS)[name].result(REQUEST_SECONDS)
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while name in client.list_topics(timeout=REQUEST_SECONDS).topics:
            if time.monotonic() > deadline:
                raise RunFailed(f"topic {name} was deleted but is still listed")
            time.sleep(0.05)
    except KafkaException as error:
        raise RunFailed(f"topic {name} could not be deleted: {error}") from error


def _client(bootstrap: str) -> AdminClient:
    return AdminClient(
        {"bootstrap.servers": bootstrap, "socket.timeout.ms": int(REQUEST_SECONDS * 1000), "log_level": 0}
    )

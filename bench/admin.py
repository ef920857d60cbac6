"""What is made, set and removed through confluent-kafka's admin client; failures become RunFailed."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from bench.process import RunFailed

REQUEST_SECONDS = 120.0
SCRAM_ITERATIONS = 4096
TOPICS_PER_REQUEST = 500
GONE_SECONDS_MAX = 60.0


@contextlib.contextmanager
def topic(
    bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A topic for the time of the block; afterwards it is deleted, and gone from Metadata."""
    create_topics(bootstrap, [name], partitions, config)
    try:
        yield name
    finally:
        _delete(bootstrap, name)


def create_topics(
    bootstrap: str, names: Sequence[str], partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    client = _client(bootstrap)
    for begin in range(0, len(names), TOPICS_PER_REQUEST):
        wanted = [
            NewTopic(name, num_partitions=partitions, config=dict(config or {}))
            for name in names[begin : begin + TOPICS_PER_REQUEST]
        ]
        for name, answer in client.create_topics(wanted, request_timeout=REQUEST_SECONDS).items():
            try:
                answer.result(REQUEST_SECONDS)
            except KafkaException as error:
                raise RunFailed(f"topic {name} could not be created: {error}") from error


def configure(bootstrap: str, kind: ResourceType, name: str, config: Mapping[str, str]) -> None:
    """Set these configs of a topic or group, and leave its others."""
    entries = [ConfigEntry(*one, incremental_operation=AlterConfigOpType.SET) for one in config.items()]
    change = ConfigResource(kind, name, incremental_configs=entries)
    client = _client(bootstrap)
    _wait(client.incremental_alter_configs([change]), f"{name} could not be configured")


def set_password(bootstrap: str, user: str, password: str) -> None:
    """Have a user log in by SCRAM-SHA-256, with Kafka's least number of rounds."""
    change = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, SCRAM_ITERATIONS), password.encode()
    )
    client = _client(bootstrap)  # what is under way ends with it
    _wait(client.alter_user_scram_credentials([change]), f"user {user} could not be made")


def allow_all(bootstrap: str, topic: str) -> None:
    """A rule of a topic of its own: clients that have not logged in may do anything with it."""
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    client = _client(bootstrap)
    _wait(client.create_acls([rule]), f"a rule of topic {topic} could not be made")


def _wait(answers: Mapping[Any, Future[Any]], failed: str) -> None:
    for answer in answers.values():
        try:
            answer.result(REQUEST_SECONDS)
        except KafkaException as error:
            raise RunFailed(f"{failed}: {error}") from error


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

"""Clients that we did not write show tokens by PLAIN, as KoP has it, and are who the tokens are for."""

import asyncio
import secrets
import time
from collections.abc import Iterator

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.integration.librdkafka import TOPIC_DENIED, produced, refused_login

from .guarded import Guarded

pytestmark = pytest.mark.clients
SECRET = secrets.token_bytes(32)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Tokens of the role `writer` may do everything; only one of the listeners has users, too."""
    one = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    del one.settings["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    one.settings |= {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:,{SECRET.hex()}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:writer;User:admin",
    }
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


def password(role: str, life_s: float = 600, key: bytes | None = None) -> str:
    signed = SECRET.hex().encode() if key is None else key
    return "token:" + jwt.encode({"sub": role, "exp": time.time() + life_s}, signed, "HS256")


@pytest.mark.parametrize("tls", [False, True])
def test_librdkafka(guarded: Guarded, topic: str, tls: bool) -> None:
    assert produced(guarded.confluent("public/default", password("writer"), tls=tls), topic) == 0
    # The token says who it is, and nothing else does.
    assert produced(guarded.confluent("writer", password("reader"), tls=tls), topic) == TOPIC_DENIED


def test_users_log_in_as_before(guarded: Guarded, topic: str) -> None:
    assert produced(guarded.confluent("admin", "admin-secret"), topic) == 0
    assert produced(guarded.confluent("alice", "alice-secret"), topic) == TOPIC_DENIED


@pytest.mark.parametrize(
    "wrong",
    [
        password("writer", -1),
        password("writer", key=bytes(32)),
        "token:nonsense",
        "token:",
        password("writer").removeprefix("token:"),
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_librdkafka_is_refused(guarded: Guarded, wrong: str, tls: bool) -> None:
    said = refused_login(guarded.confluent("public/default", wrong, tls=tls))
    assert "Invalid username or password" in said
    assert "eyJ" not in guarded.server.log


def test_kafka_python(guarded: Guarded, topic: str) -> None:
    producer = KafkaProducer(**guarded.python("public/default", password("writer")))
    producer.send(topic, b"value").get(30)
    producer.close()
    other = KafkaProducer(**guarded.python("public/default", password("reader")), enable_idempotence=False)
    with pytest.raises(TopicAuthorizationFailedError):
        other.send(topic, b"value").get(30)
    other.close()


def test_aiokafka(guarded: Guarded, topic: str) -> None:
    async def scenario() -> None:
        settings = guarded.python("public/default", password("writer"))
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")

    asyncio.run(scenario())

"""Clients that we did not write log in with tokens of an identity provider, whose keys are at a URL or in a file."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import jwt
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from magnetar.testing.identity_provider import IdentityProvider, new_key
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.librdkafka import TOPIC_DENIED, produced, refused_login

pytestmark = pytest.mark.clients
ISSUER, AUDIENCE = "https://issuer.test", "magnetar-test"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
HANDLER = "oauthbearer.sasl.server.callback.handler.class"


class Guarded:
    """Kafka at `url` with keys from an endpoint, at `file` with keys from a file, at `unsigned` without any."""

    server: MagnetarProcess

    def __init__(self, provider: IdentityProvider, file: str) -> None:
        self.provider = provider
        names = ("url", "file", "unsigned")
        self.ports = dict(zip(names, free_ports(3), strict=True))
        keys = "sasl.oauthbearer.jwks.endpoint.url"
        self.settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:SASL_PLAINTEXT" for name in names),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"listener.name.url.{keys}": provider.keys_url,
            f"listener.name.file.{keys}": file,
            f"listener.name.file.{HANDLER}": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
            f"listener.name.unsigned.{HANDLER}": (
                f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:writer",
        }

    def confluent(self, token: str, listener: str = "url") -> dict[str, Any]:
        """What librdkafka is told."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 300),
            "error_cb": lambda _: None,
        }

    def python(self, tokens: Any) -> dict[str, Any]:
        """What kafka-python and aiokafka are told."""
        return {
            "bootstrap_servers": f"127.0.0.1:{self.ports['url']}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": tokens,
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    provider = IdentityProvider(AUDIENCE, ISSUER)
    file = tmp_path_factory.mktemp("keys") / "jwks.json"
    file.write_bytes(provider.key_set())
    one = Guarded(provider, f"file://{file}")
    try:
        with MagnetarProcess(settings=one.settings) as server:
            one.server = server
            yield one
    finally:
        provider.close()


@pytest.mark.parametrize("listener", ["url", "file"])
def test_librdkafka(guarded: Guarded, topic: str, listener: str) -> None:
    token = guarded.provider.token
    assert produced(guarded.confluent(token("writer"), listener), topic) == 0
    assert produced(guarded.confluent(token("reader"), listener), topic) == TOPIC_DENIED


def test_librdkafka_shows_new_tokens_before_old_ones_end(guarded: Guarded, topic: str) -> None:
    given: list[str] = []
    failures: list[Any] = []

    def supply(_: str) -> tuple[str, float]:
        # librdkafka looks once in a second whether four fifths of what it is told have passed.
        given.append(guarded.provider.token("writer", life_s=5))
        return given[-1], time.time() + 1.5

    settings = guarded.confluent("") | {"oauth_cb": supply, "error_cb": failures.append}
    producer = confluent_kafka.Producer(settings)
    until = time.monotonic() + 9
    while time.monotonic() < until:
        producer.produce(topic, b"value")
        assert producer.flush(20) == 0
    assert len(given) >= 3
    assert not failures
    assert "its session has ended" not in guarded.server.log


@pytest.mark.parametrize(
    "wrong",
    [
        lambda one: one.token("writer", life_s=-1),
        lambda one: one.token("writer", aud="elsewhere"),
        lambda one: one.token("writer", iss="https://other.test"),
        lambda one: jwt.encode(
            {"sub": "writer", "exp": time.time() + 600, "iat": 1}, key="", algorithm="none"
        ),
        lambda one: one.token("writer")[:-6] + "AAAAAA",
    ],
)
def test_librdkafka_is_refused(guarded: Guarded, wrong: Callable[[IdentityProvider], str]) -> None:
    said = refused_login(guarded.confluent(wrong(guarded.provider)))
    assert "invalid_token" in said
    assert "eyJ" not in guarded.server.log


def test_unsigned_tokens_where_they_are_asked_for(guarded: Guarded, topic: str) -> None:
    settings = guarded.confluent("", "unsigned")
    del settings["oauth_cb"]
    settings["enable.sasl.oauthbearer.unsecure.jwt"] = True
    settings["sasl.oauthbearer.config"] = "principal=writer"
    assert produced(settings, topic) == 0
    refused_login(guarded.confluent(guarded.provider.token("writer"), "unsigned"))
    assert "unsigned tokens" in guarded.server.log


class PythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "one"}


@pytest.mark.usefixtures("closed_socket_pairs")
def test_kafka_python(guarded: Guarded, topic: str) -> None:
    producer = KafkaProducer(**guarded.python(PythonTokens(guarded.provider.token("writer"))))
    producer.send(topic, b"value").get(30)
    producer.close()
    wrong = PythonTokens(guarded.provider.token("writer", life_s=-1))
    with pytest.raises(KafkaError):
        KafkaProducer(**guarded.python(wrong), bootstrap_timeout_ms=2000)


class AioTokens(AiokafkaTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def test_aiokafka(guarded: Guarded, topic: str) -> None:
    async def scenario() -> None:
        settings = guarded.python(AioTokens(guarded.provider.token("writer")))
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")

    asyncio.run(scenario())


def test_keys_change_while_the_server_runs(guarded: Guarded, topic: str) -> None:
    guarded.provider.keys["two"] = new_key()
    settings = guarded.confluent(guarded.provider.token("writer", "two"))
    assert produced(settings, topic) == 0  # the client tries until it is let in


def test_an_endpoint_that_hangs_or_fails_stops_neither_the_server_nor_logins(
    guarded: Guarded, topic: str
) -> None:
    provider = guarded.provider
    settings = guarded.confluent(provider.token("writer"))
    provider.gate.clear()
    asked = provider.asked
    until = time.monotonic() + 15
    while provider.asked == asked and time.monotonic() < until:
        assert produced(settings, topic) == 0
    assert provider.asked > asked
    began_s = time.monotonic()
    assert produced(settings, topic) == 0
    assert time.monotonic() - began_s < 5
    provider.status = 500
    provider.gate.set()
    until = time.monotonic() + 15
    while "HTTP 500" not in guarded.server.log and "timed out" not in guarded.server.log:
        assert produced(settings, topic) == 0
        assert time.monotonic() < until
    assert produced(settings, topic) == 0
    provider.status = 200

"""How many connections one principal may have, at both doors together, whichever way it logs in."""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import jwt
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, free_ports
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from tests.integration.java_tools import KafkaTools, needs_java
from tests.integration.quiet_log import assert_quiet
from tests.integration.server.wire import Wire, eventually

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
MAX = 4
KEY, OVERRIDES = "max.connections.per.principal", "max.connections.per.principal.overrides"
SAYS = f"User:alice has as many connections as it may have ({MAX})"
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="bob-secret";'
)


class Limited:
    """Kafka at `plain` without a login, at `sasl`, and at `mutual` with clients' certificates; Pulsar with tokens."""

    server: MagnetarProcess

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        self.authority = authority
        self.own = authority.issue("alice")
        self.plain, self.sasl, self.mutual = free_ports(3)
        self._key = secrets.token_hex(32)
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.plain},SASL_PLAINTEXT://127.0.0.1:{self.sasl},"
            f"SSL://127.0.0.1:{self.mutual}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "ssl.keystore.location": str(authority.issue("server", hosts=["127.0.0.1"]).both),
            "ssl.truststore.location": str(authority.certificate),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/",
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"data:,{self._key}",
            KEY: str(MAX),
            OVERRIDES: "User:CN=x,O=y:1;User:bob:1",
        }

    def pulsar(self, role: str, timeout_s: int) -> pulsar.Client:
        return pulsar.Client(
            self.server.pulsar_url,
            pulsar.AuthenticationToken(jwt.encode({"sub": role}, self._key, "HS256")),
            operation_timeout_seconds=timeout_s,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def at_sasl(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.sasl}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }

    def at_mutual(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.mutual}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.key.location": str(self.own.key),
            "ssl.certificate.location": str(self.own.certificate),
        }


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    one = Limited(tmp_path_factory.mktemp("limited"))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one
        assert_quiet(server.log, "-secret")


@pytest.fixture
def full(limited: Limited) -> Iterator[ExitStack]:
    """All places of alice are taken, until it is closed."""
    with ExitStack() as stack:
        for _ in range(MAX):
            _come(limited, stack)
        yield stack


def _come(limited: Limited, stack: ExitStack) -> None:
    """One more connection of alice, as soon as there is a place: one that has closed may still have its own."""

    def is_let_in() -> bool:
        wire = Wire(limited.sasl)
        try:
            wire.log_in("alice", "alice-secret")
        except AssertionError:
            wire.__exit__(None, None, None)
            return False
        stack.enter_context(wire)
        return True

    eventually(is_let_in, limited.server.log)


def test_librdkafka_hears_why_and_comes_in_when_there_is_room(limited: Limited, full: ExitStack) -> None:
    said: list[str] = []
    settings = limited.at_sasl()
    settings |= {"error_cb": lambda error: said.append(str(error)), "log_level": 0}
    client = AdminClient(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    assert SAYS in "".join(said)
    full.close()
    assert client.list_topics(timeout=30).brokers
    assert SAYS in limited.server.log


def test_a_certificate_takes_places_of_the_same_principal(limited: Limited, full: ExitStack) -> None:
    client = AdminClient({**limited.at_mutual(), "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=3)
    full.close()
    assert client.list_topics(timeout=30).brokers


def test_pulsars_client_takes_places_of_the_same_principal(limited: Limited, full: ExitStack) -> None:
    client = limited.pulsar("alice", 3)
    with pytest.raises(pulsar.PulsarException):
        client.get_topic_partitions("some")
    client.close()
    full.close()
    client = limited.pulsar("alice", 30)
    client.create_producer("some").send(b"x")
    client.close()


def test_others_have_places_of_their_own_and_strangers_have_none(limited: Limited, full: ExitStack) -> None:
    client = limited.pulsar("carol", 30)
    client.create_producer("some").send(b"x")
    client.close()
    for _ in range(3 * MAX):
        wire = full.enter_context(Wire(limited.plain))
        assert wire.ask("api_versions", 0, ApiVersionsRequest()).error_code == 0
    full.enter_context(Wire(limited.sasl)).log_in("bob", "bob-secret")
    with pytest.raises(AssertionError), Wire(limited.sasl) as second:
        second.log_in("bob", "bob-secret")


def test_the_limit_changes_while_the_server_runs(limited: Limited, full: ExitStack) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{limited.plain}", "log_level": 0})

    def alter(operation: AlterConfigOpType, value: str | None, name: str = KEY) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        change = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        (changed,) = admin.incremental_alter_configs([change]).values()
        changed.result(30)

    alter(AlterConfigOpType.SET, str(MAX + 1))
    full.enter_context(Wire(limited.sasl)).log_in("alice", "alice-secret")
    alter(AlterConfigOpType.DELETE, None)
    with pytest.raises(AssertionError), Wire(limited.sasl) as more:
        more.log_in("alice", "alice-secret")
    alter(AlterConfigOpType.SET, "", OVERRIDES)
    with pytest.raises(confluent_kafka.KafkaException, match="may be 0 only where"):
        alter(AlterConfigOpType.SET, "0")
    alter(AlterConfigOpType.DELETE, None, OVERRIDES)


class TestJava:
    pytestmark = needs_java

    def test_kafkas_tools_wait_for_room(self, limited: Limited, full: ExitStack, tmp_path: Path) -> None:
        file = tmp_path / "client.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} required username="alice" password="alice-secret";\n'
        )
        before = limited.server.log.count(SAYS)
        leaving = threading.Thread(target=_when, args=(lambda: limited.server.log.count(SAYS) > before, full))
        leaving.start()
        with KafkaTools(f"127.0.0.1:{limited.sasl}") as tools:
            tools.run("org.apache.kafka.tools.TopicCommand", "--command-config", str(file), "--list")
        leaving.join()


def _when(holds: Callable[[], bool], stack: ExitStack) -> None:
    eventually(holds, "nobody was refused", 120)
    stack.close()

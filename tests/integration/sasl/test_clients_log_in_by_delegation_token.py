"""Delegation tokens at a real server: made and used by a bare client, and by Kafka's own tools."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from magnetar.broker.security.model import Challenge
from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.expire_delegation_token import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.class_archives import kafka_tool
from tests.integration.java_tools import KafkaTools, needs_java, run
from tests.integration.server.wire import Wire, record_batch
from tests.unit.broker.security.test_scram import final

from .guarded import Guarded

pytestmark = pytest.mark.clients
DAY_MS = 86_400_000
NOT_ALLOWED = 64
REFUSED = 58


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With rules: alice may use topics and groups, and ask for tokens of bob."""
    one = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    one.settings |= {
        "delegation.token.secret.key": "delegation-secret",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        admin = AdminClient(one.confluent("admin", "admin-secret"))
        rules = [
            AclBinding(
                kind,
                "*",
                ResourcePatternType.LITERAL,
                "User:alice",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        for done in admin.create_acls(rules).values():
            done.result(20)
        yield one


# --- a bare client ---------------------------------------------------------------------------------------------------


class Client(Wire):
    """One that logs in, by a password or by a token."""

    def authenticate(self, message: bytes) -> Any:
        return self.ask("sasl_authenticate", 2, SaslAuthenticateRequest(message))

    def by_password(self, user: str) -> "Client":
        assert self.ask("sasl_handshake", 1, SaslHandshakeRequest("PLAIN")).error_code == 0
        assert self.authenticate(f"\0{user}\0{user}-secret".encode()).error_code == 0
        return self

    def by_token(self, token_id: str, token_hmac: bytes, mechanism: str = "SCRAM-SHA-512") -> Any:
        assert self.ask("sasl_handshake", 1, SaslHandshakeRequest(mechanism)).error_code == 0
        first = f"n,,n={token_id},r=abc,tokenauth=true".encode()
        challenge = Challenge(self.authenticate(first).auth_bytes)
        algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        return self.authenticate(final(challenge, first, b64encode(token_hmac), algorithm))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_works_until_it_is_ended_and_outlives_the_server(
    guarded: Guarded, topic: str, mechanism: str
) -> None:
    with Client(guarded.sasl) as alice:
        made = alice.by_password("alice").ask(
            "create_delegation_token", 3, CreateDelegationTokenRequest(None, None, [], -1)
        )
    assert (made.error_code, made.principal_name) == (0, "alice")
    guarded.server.kill()
    guarded.server.restart()
    with Client(guarded.sasl) as one:
        answer = one.by_token(made.token_id, made.hmac, mechanism)
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= DAY_MS
        one.create(topic)
        assert one.produce(topic, record_batch([b"value"])).error_code == 0
        refused = one.ask("create_delegation_token", 3, CreateDelegationTokenRequest(None, None, [], -1))
        assert refused.error_code == NOT_ALLOWED
    with Client(guarded.sasl) as alice:
        asked = ExpireDelegationTokenRequest(made.hmac, -1)
        assert alice.by_password("alice").ask("expire_delegation_token", 2, asked).error_code == 0
    with Client(guarded.sasl) as one:
        assert one.by_token(made.token_id, made.hmac, mechanism).error_code == REFUSED
    assert made.token_id not in guarded.server.log
    assert b64encode(made.hmac).decode() not in guarded.server.log


# --- Kafka's own tools -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What Kafka's tool prints of a token."""

    token_id: str
    hmac: str
    owner: str
    requester: str
    renewers: str


class Tools(KafkaTools):
    """Kafka's tools, for clients of each name and for those that have a token."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        super().__init__(f"127.0.0.1:{guarded.sasl}")
        self._folder = folder

    def of(self, tool: str, file: str, *arguments: str, code: int = 0) -> str:
        return self.run(f"org.apache.kafka.tools.{tool}", "--command-config", file, *arguments, code=code)

    def tokens(self, file: str, *arguments: str, code: int = 0) -> str:
        return self.of("DelegationTokenCommand", file, *arguments, code=code)

    def user(self, name: str) -> str:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return self._file(name, "PLAIN", f'{module} required username="{name}" password="{name}-secret";')

    def token(self, row: Row, mechanism: str) -> str:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        shown = f'username="{row.token_id}" password="{row.hmac}" tokenauth="true"'
        return self._file(f"token-{mechanism}", mechanism, f"{module} required {shown};")

    def _file(self, name: str, mechanism: str, jaas: str) -> str:
        file = self._folder / f"{name}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        )
        return str(file)


def rows(printed: str) -> list[Row]:
    lines = [line.split() for line in printed.partition("TOKENID")[2].splitlines()[1:] if line.strip()]
    return [Row(*line[:5]) for line in lines]


@pytest.mark.parametrize("mechanism", [pytest.param("SCRAM-SHA-256", marks=needs_java)])
def test_kafkas_tools(guarded: Guarded, topic: str, tmp_path: Path, mechanism: str) -> None:
    with Tools(guarded, tmp_path) as tools:
        alice, admin = tools.user("alice"), tools.user("admin")
        create = ["--create", "--max-life-time-period", "-1"]
        (made,) = rows(tools.tokens(alice, *create, "--renewer-principal", "User:admin"))
        assert (made.owner, made.requester, made.renewers) == ("User:alice", "User:alice", "[User:admin]")
        by_token = tools.token(made, mechanism)
        tools.of("TopicCommand", by_token, "--create", "--topic", topic)
        produce = [*kafka_tool(), "org.apache.kafka.tools.ConsoleProducer", "--command-config", by_token]
        run([*produce, "--bootstrap-server", f"127.0.0.1:{guarded.sasl}", "--topic", topic], "hello\n")
        consume = ["--topic", topic, "--from-beginning", "--max-messages", "1"]
        assert tools.of("consumer.ConsoleConsumer", by_token, *consume) == "hello\n"
        assert "not allowed" in tools.tokens(by_token, *create, code=1)
        renew = ["--renew", "--hmac", made.hmac, "--renew-time-period", "-1"]
        assert "Completed renew operation" in tools.tokens(admin, *renew)
        assert rows(tools.tokens(alice, "--describe", "--owner-principal", "User:alice")) == [made]

        owner = ["--owner-principal", "User:bob"]
        assert "DelegationTokenAuthorization" in tools.tokens(alice, *create, *owner, code=1)
        rule = ["--add", "--allow-principal", "User:alice", "--operation", "CreateTokens"]
        tools.of("AclCommand", admin, *rule, "--user-principal", "User:bob")
        (bobs,) = rows(tools.tokens(alice, *create, *owner))
        assert (bobs.owner, bobs.requester, bobs.renewers) == ("User:bob", "User:alice", "[]")
        assert rows(tools.tokens(alice, "--describe", *owner)) == []
        assert rows(tools.tokens(admin, "--describe", *owner)) == [bobs]

        expire = ["--expire", "--hmac", made.hmac, "--expiry-time-period", "-1"]
        assert "Completed expire operation" in tools.tokens(alice, *expire)
        assert "DelegationTokenNotFound" in tools.tokens(alice, *renew, code=1)
        assert "Total number of tokens : 0" in tools.tokens(
            alice, "--describe", "--owner-principal", "User:alice"
        )
        refused = tools.tokens(by_token, "--describe", code=1)
        assert f"invalid credentials with SASL mechanism {mechanism}" in refused

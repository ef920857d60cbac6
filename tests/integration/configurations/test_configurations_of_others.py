"""Configuration files of a Kafka and of a Pulsar broker with every login that they have start this server unchanged.

Only addresses and folders are this machine's; each client shows what that broker would take from it.
"""

import base64
import json
import logging
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import jwt
import pulsar
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from magnetar.testing.certificates import Authority, Issued
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration import librdkafka
from tests.integration.http_answers import ask
from tests.integration.librdkafka import AUTHENTICATION, TOPIC_DENIED, TRANSPORT
from tests.integration.quiet_log import assert_quiet

pytestmark = pytest.mark.clients
SECRET = b"0123456789abcdef0123456789abcdef"
HOSTS = ["localhost", "127.0.0.1"]

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret"'
    ' user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret" user_carol="carol-secret";'
)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH = "org.apache.kafka.common.security.oauthbearer"

KAFKA = """\
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{both},SSL://127.0.0.1:{ssl},REAUTH://127.0.0.1:{reauth}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{both},SSL://127.0.0.1:{ssl},REAUTH://127.0.0.1:{reauth}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,REAUTH:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
inter.broker.listener.name=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.reauth.sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
{jaas}
sasl.oauthbearer.jwks.endpoint.url=file://{folder}/jwks.json
sasl.oauthbearer.expected.issuer=https://issuer.test
sasl.oauthbearer.expected.audience=magnetar-test
sasl.oauthbearer.clock.skew.seconds=0
listener.name.reauth.plain.connections.max.reauth.ms=4000
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
ssl.enabled.protocols=TLSv1.2,TLSv1.3
listener.name.ssl.ssl.client.auth=required
listener.name.ssl.ssl.principal.mapping.rules=RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,DEFAULT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
allow.everyone.if.no.acl.found=false
"""

PULSAR = """\
brokerServicePort={broker}
brokerServicePortTls={broker_tls}
webServicePort={web}
webServicePortTls={web_tls}
authenticationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken,org.apache.pulsar.broker.authentication.AuthenticationProviderTls,org.apache.pulsar.broker.authentication.AuthenticationProviderBasic
authenticationRefreshCheckSeconds=2
authorizationEnabled=true
authorizationProvider=org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider
authorizationAllowWildcardsMatching=true
superUserRoles=admin
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:a-token
tlsCertificateFilePath={certificate}
tlsKeyFilePath={key}
tlsTrustCertsFilePath={authority}
tlsProtocols=TLSv1.3,TLSv1.2
tokenSecretKey=file://{folder}/secret.bin
basicAuthConf=file://{folder}/htpasswd
tlsRequireTrustedClientCertOnConnect=false
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Kafka:
    """The server by Kafka's file, and what clients of its listeners are told."""

    server: MagnetarProcess

    def __init__(self, folder: Path, authority: Authority) -> None:
        names = ("plain", "sasl", "both", "ssl", "reauth")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.authority = authority
        self.key = rsa.generate_private_key(65537, 2048)
        rows = []
        for listener in ("sasl_plaintext", "sasl_ssl", "reauth"):
            own = f"listener.name.{listener}"
            rows += [f"{own}.plain.sasl.jaas.config={PLAIN}"]
            if listener != "reauth":
                rows += [f"{own}.scram-sha-{bits}.sasl.jaas.config={SCRAM}" for bits in (256, 512)]
            rows += [
                f"{own}.oauthbearer.sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required;",
                f"{own}.oauthbearer.sasl.server.callback.handler.class={OAUTH}.OAuthBearerValidatorCallbackHandler",
            ]
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        (folder / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "rs", "use": "sig"}]}))
        server = authority.issue("server", hosts=HOSTS)
        self.file = folder / "server.properties"
        self.file.write_text(
            KAFKA.format(
                **self.ports,
                jaas="\n".join(rows),
                folder=folder,
                server=server.both,
                authority=authority.certificate,
            )
        )

    def client(self, listener: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "ssl.ca.location": str(self.authority.certificate),
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items() if name != "oauth_cb"},
            **({"oauth_cb": more["oauth_cb"]} if "oauth_cb" in more else {}),
        }

    def sasl(self, listener: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
        protocol = "sasl_ssl" if listener == "both" else "sasl_plaintext"
        return self.client(
            listener,
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )

    def oauth(self, listener: str, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        sound = {"iss": "https://issuer.test", "aud": "magnetar-test", "iat": now, "exp": now + 300}
        token = jwt.encode({**sound, **claims}, self.key, "RS256", headers={"kid": "rs"})
        protocol = "sasl_ssl" if listener == "both" else "sasl_plaintext"
        return self.client(
            listener,
            security_protocol=protocol,
            sasl_mechanism="OAUTHBEARER",
            oauth_cb=lambda _: (token, time.time() + 300),
        )

    def certificate(self, issued: Issued) -> dict[str, Any]:
        return self.client(
            "ssl",
            security_protocol="ssl",
            ssl_key_location=str(issued.key),
            ssl_certificate_location=str(issued.certificate),
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Kafka]:
    one = Kafka(tmp_path_factory.mktemp("kafka"), authority)
    with MagnetarProcess(
        arguments=["--config", str(one.file)], settings={"listeners": listeners_of(one)}
    ) as one.server:
        admin = AdminClient(one.sasl("sasl", "PLAIN", "admin", "admin-secret"))
        changes = [
            UserScramCredentialUpsertion("dora", ScramCredentialInfo(kind, 4096), b"dora-secret")
            for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)
        (created,) = admin.create_topics([confluent_kafka.admin.NewTopic("t", 1)]).values()
        created.result(30)
        for user in ("alice", "dora", "olga", "dave"):
            allowed = confluent_kafka.admin.AclBinding(
                confluent_kafka.admin.ResourceType.TOPIC,
                "t",
                confluent_kafka.admin.ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                confluent_kafka.admin.AclOperation.WRITE,
                confluent_kafka.admin.AclPermissionType.ALLOW,
            )
            (done,) = admin.create_acls([allowed]).values()
            done.result(30)
        yield one
        assert_quiet(one.server.log, "admin-secret", "alice-secret", "dora-secret")


def listeners_of(one: Kafka) -> str:
    """The file's own line: `MagnetarProcess` would choose a port otherwise."""
    return next(
        line for line in one.file.read_text().splitlines() if line.startswith("listeners=")
    ).partition("=")[2]


def produced(settings: dict[str, Any]) -> int:
    """The error that a record is answered with, or that keeps the client from connecting; 0 for none."""
    return librdkafka.produced(settings, "t", gives_up=True)


@pytest.mark.parametrize("listener", ["sasl", "both", "reauth"])
def test_kafkas_passwords(kafka: Kafka, listener: str) -> None:
    assert produced(kafka.sasl(listener, "PLAIN", "alice", "alice-secret")) == 0
    assert produced(kafka.sasl(listener, "PLAIN", "bob", "bob-secret")) == TOPIC_DENIED
    assert produced(kafka.sasl(listener, "PLAIN", "alice", "bob-secret")) == AUTHENTICATION


@pytest.mark.parametrize("listener", ["sasl", "both"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkas_users_that_are_made_at_run_time(kafka: Kafka, listener: str, mechanism: str) -> None:
    assert produced(kafka.sasl(listener, mechanism, "dora", "dora-secret")) == 0
    assert produced(kafka.sasl(listener, mechanism, "dora", "wrong")) == AUTHENTICATION
    assert produced(kafka.sasl("reauth", mechanism, "dora", "dora-secret")) == AUTHENTICATION


@pytest.mark.parametrize("listener", ["sasl", "both", "reauth"])
def test_kafkas_tokens(kafka: Kafka, listener: str) -> None:
    assert produced(kafka.oauth(listener, sub="olga")) == 0
    assert produced(kafka.oauth(listener, sub="mallory")) == TOPIC_DENIED
    assert produced(kafka.oauth(listener, sub="olga", aud="another")) == AUTHENTICATION
    assert produced(kafka.oauth(listener, sub="olga", iss="https://other.test")) == AUTHENTICATION


def test_kafkas_certificates(kafka: Kafka) -> None:
    dave = kafka.authority.issue("dave", subject="/O=Magnetar/OU=People/CN=Dave")
    assert produced(kafka.certificate(dave)) == 0
    robot = kafka.authority.issue("robot", subject="/O=Magnetar/OU=Robots/CN=dave")
    assert produced(kafka.certificate(robot)) == TOPIC_DENIED
    assert produced(kafka.client("ssl", security_protocol="ssl")) in TRANSPORT
    assert produced(kafka.client("plain")) == TOPIC_DENIED, "without a login a client is ANONYMOUS"


class Pulsar:
    """The server by Pulsar's file."""

    server: MagnetarProcess

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.authority = authority
        names = ("broker", "broker_tls", "web", "web_tls")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        (folder / "secret.bin").write_bytes(SECRET)
        # Its password is `secret`: by `openssl passwd -apr1`.
        (folder / "htpasswd").write_text("admin:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n")
        server = authority.issue("server", hosts=HOSTS)
        self.file = folder / "standalone.conf"
        self.file.write_text(
            PULSAR.format(
                **self.ports,
                folder=folder,
                certificate=server.certificate,
                key=server.key,
                authority=authority.certificate,
            )
        )

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.server.pulsar_port}"

    @property
    def tls_url(self) -> str:
        return f"pulsar+ssl://localhost:{self.ports['broker_tls']}"

    def produce(self, url: str, shown: pulsar.Authentication | None) -> None:
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        client = pulsar.Client(
            url,
            shown,
            operation_timeout_seconds=4,
            logger=silent,
            tls_trust_certs_file_path=str(self.authority.certificate),
        )
        try:
            client.create_producer("persistent://public/default/t").send(b"1")
        finally:
            client.close()

    def status(self, authorization: str) -> int:
        url = f"https://localhost:{self.ports['web_tls']}/admin/v2/tenants"
        headers = {"authorization": authorization} if authorization else {}
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        return ask(url, headers, context=context)[0]


@pytest.fixture(scope="module")
def pulsars(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Pulsar]:
    one = Pulsar(tmp_path_factory.mktemp("pulsar"), authority)
    with MagnetarProcess(arguments=["--config", str(one.file)]) as one.server:
        yield one
        assert_quiet(one.server.log)


def token(role: str, secret: bytes = SECRET) -> str:
    return jwt.encode({"sub": role}, secret, "HS256")


def test_pulsars_tokens(pulsars: Pulsar) -> None:
    for url in (pulsars.url, pulsars.tls_url):
        pulsars.produce(url, pulsar.AuthenticationToken(token("admin")))
        with pytest.raises(pulsar.AuthorizationError):
            pulsars.produce(url, pulsar.AuthenticationToken(token("mallory")))
    assert pulsars.status(f"Bearer {token('admin')}") == 200
    assert pulsars.status(f"Bearer {token('admin', SECRET[::-1])}") == 401
    assert pulsars.status("") == 401


def test_pulsars_certificates(pulsars: Pulsar) -> None:
    admin, mallory = pulsars.authority.issue("admin"), pulsars.authority.issue("mallory")
    pulsars.produce(pulsars.tls_url, pulsar.AuthenticationTLS(str(admin.certificate), str(admin.key)))
    with pytest.raises(pulsar.AuthorizationError):
        pulsars.produce(pulsars.tls_url, pulsar.AuthenticationTLS(str(mallory.certificate), str(mallory.key)))


def test_pulsars_passwords(pulsars: Pulsar) -> None:
    for url in (pulsars.url, pulsars.tls_url):
        pulsars.produce(url, pulsar.AuthenticationBasic("admin", "secret"))
    shown = base64.b64encode(b"admin:secret").decode()
    assert pulsars.status(f"Basic {shown}") == 200
    wrong = base64.b64encode(b"admin:wrong").decode()
    assert pulsars.status(f"Basic {wrong}") == 401


def test_pulsars_clients_that_show_nothing(pulsars: Pulsar) -> None:
    with pytest.raises(pulsar.PulsarException):
        pulsars.produce(pulsars.tls_url, None)

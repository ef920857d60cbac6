"""The servers that librdkafka's tests want: most of them any one, some of them one that asks who they are, or less.

Each place is a server's settings by Kafka's own key names, and what the test programme is told of it: lines of its
configuration, and the variables in which the tests look for certificates.  A server whose clients come by a listener
of TLS or SASL has another one, without both, by which the runner sees that it lives.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import fetch
from brokers import Profile

from magnetar.testing.certificates import Authority
from magnetar.testing.identity_provider import IdentityProvider
from magnetar.testing.server import free_ports

ANY: Final = "any"
THREE_NODES: Final = "three-nodes"
NO_AUTO_CREATION: Final = "noautocreate"  # also what the programme calls it
AUTHORIZER: Final = "authorizer"
SECURED: Final = "secured"
OIDC: Final = "oidc"

_PROFILE: Final = Profile(
    settings={
        "num.partitions": "4",
        "auto.create.topics.enable": "true",
        # With 0, members that start together see one rebalance more than 0102 and 0118 allow.
        "group.initial.rebalance.delay.ms": "3000",
        "group.min.session.timeout.ms": "100",
        # 0106 gives its group short ones.
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.min.session.timeout.ms": "1000",
        # Tests of share groups wait for what members are assigned, and for the end of locks.
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.record.lock.duration.ms": "1000",
    },
    kafka_only={
        "broker.rack": "RACK1",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    },
)
_AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
# 0142 waits ten times for somewhat more than this.
_REAUTHENTICATE_MS: Final = 2000
_NODES: Final = 3
_USER: Final = "testuser"
_PASSWORD: Final = "testpass"
_KEY_PASSWORD: Final = "of-the-keys"
_AUDIENCE: Final = "librdkafka"
_HOST: Final = "127.0.0.1"
_SECURITY: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, eq=False)
class Place:
    """`name` is for its log.  `lines` are of the programme's configuration, `environment` is what its tests look for.

    `address` is of the listener that it is to use, where that is not the one that the runner looks at.
    """

    name: str
    profile: Profile
    nodes: int = 1
    address: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Providers:
    """Identity providers: one with valid tokens, one with expired tokens, and one that knows no client."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.good = self._stack.enter_context(IdentityProvider(_AUDIENCE))
        late = IdentityProvider(_AUDIENCE, issuer=self.good.issuer, life_s=-60)
        self.expired = self._stack.enter_context(late)
        self.expired.keys = self.good.keys
        self.ignorant = self._stack.enter_context(IdentityProvider(_AUDIENCE))
        for one in (self.good, self.expired):
            one.add_client(_USER, _PASSWORD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def places(folder: Path, providers: Providers) -> dict[str, Place]:
    """All there are, by name; certificates lie in `folder`."""
    plain, listed = _changed({}), _changed({"auto.create.topics.enable": "false"})
    scenario = {"TEST_SCENARIO": NO_AUTO_CREATION}
    found = (
        Place(ANY, plain),
        Place(THREE_NODES, plain, nodes=_NODES),
        Place(NO_AUTO_CREATION, listed, environment=scenario),
        Place(f"{THREE_NODES}-{NO_AUTO_CREATION}", listed, nodes=_NODES, environment=scenario),
        # Who has no rule may do everything, until there is one: the tests deny, and are refused.
        Place(AUTHORIZER, _changed(_AUTHORIZER)),
        _secured(folder),
        _oidc(providers),
    )
    return {place.name: place for place in found}


def _secured(folder: Path) -> Place:
    """Clients come by TLS and log in with passwords, again and again; three nodes, as the tests make three replicas.

    A client has a certificate, which the server does not ask for, in every form in which librdkafka takes one.
    """
    authority, other = Authority(folder), Authority(folder, "Another authority")
    server = authority.issue("server", hosts=["localhost", _HOST])
    client = authority.issue("client", password=_KEY_PASSWORD)
    secret = f"pass:{_KEY_PASSWORD}"
    forms = {
        "SSL_pkcs": (
            *("pkcs12", "-export", "-inkey", client.key, "-passin", secret, "-in", client.certificate),
            *("-certfile", authority.certificate, "-passout", secret),
        ),
        "SSL_priv_der": ("pkey", "-in", client.key, "-passin", secret, "-outform", "DER"),
        "SSL_pub_der": ("x509", "-in", client.certificate, "-outform", "DER"),
        "SSL_ca_der": ("x509", "-in", authority.certificate, "-outform", "DER"),
    }
    files = {"SSL_pub_pem": client.certificate, "SSL_priv_pem": client.key}
    for variable, command in forms.items():
        files[variable] = folder / variable
        fetch.quietly(["openssl", *map(str, command), "-out", str(files[variable])])
    files["SSL_all_cas_pem"] = folder / "authorities.pem"
    files["SSL_all_cas_pem"].write_text(other.certificate.read_text() + authority.certificate.read_text())
    ports = free_ports(2 * _NODES)  # a node's follow those of the node before
    watched, secured = ports[0], ports[_NODES]
    login = f'{_SECURITY}.plain.PlainLoginModule required user_{_USER}="{_PASSWORD}";'
    settings = {
        "listeners": f"PLAINTEXT://{_HOST}:{watched},SASL_SSL://{_HOST}:{secured}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",  # which is no matter of listeners with SASL
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": str(_REAUTHENTICATE_MS),
        # While a refusal waits, 0142's client may turn to another node, which that test does not expect to hear of.
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
    }
    return Place(
        SECURED,
        replace(_changed(settings), kafka_port=watched),
        nodes=_NODES,
        address=f"{_HOST}:{secured}",
        lines={
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
            "ssl.ca.location": str(authority.certificate),
            "ssl.certificate.location": str(client.certificate),
            "ssl.key.location": str(client.key),
            "ssl.key.password": _KEY_PASSWORD,
        },
        environment={
            "SSL_password": _KEY_PASSWORD,
            **{variable: str(file) for variable, file in files.items()},
        },
    )


def _oidc(providers: Providers) -> Place:
    """Clients log in with an identity provider's tokens.  Three nodes: the test asks for three replicas."""
    ports = free_ports(2 * _NODES)
    watched, login = ports[0], ports[_NODES]
    settings = {
        "listeners": f"PLAINTEXT://{_HOST}:{watched},SASL_PLAINTEXT://{_HOST}:{login}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": providers.good.keys_url,
        "sasl.oauthbearer.expected.issuer": providers.good.issuer,
        "sasl.oauthbearer.expected.audience": _AUDIENCE,
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
        ),
    }
    return Place(
        OIDC,
        replace(_changed(settings), kafka_port=watched),
        nodes=_NODES,
        address=f"{_HOST}:{login}",
        lines={
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.token.endpoint.url": providers.good.token_url,
            "sasl.oauthbearer.client.id": _USER,
            "sasl.oauthbearer.client.secret": _PASSWORD,
        },
        environment={
            "VALID_OIDC_URL": providers.good.token_url,
            "INVALID_OIDC_URL": providers.ignorant.token_url,
            "EXPIRED_TOKEN_OIDC_URL": providers.expired.token_url,
        },
    )


def _changed(settings: Mapping[str, str]) -> Profile:
    return replace(_PROFILE, settings={**_PROFILE.settings, **settings})

"""What clients log in with, right and wrong, and the servers that they log in to.

`kafka_settings` and `pulsar_settings` are one configuration by Kafka's and Pulsar's own key names, which Magnetar takes
whole; Apache Kafka and Apache Pulsar, which the same clients are run against to compare, take their parts of it.  Each
login is a flat object of strings, which programs in several languages read from a file (`World.write`):

    mechanism, case       its name in the table, and `right` or `wrong`
    topic                 one that only this login may write and read
    address, protocol     of Kafka's listener: `host:port`, and SSL or SASL_SSL
    sasl                  the mechanism of SASL, or nothing
    url, web, http        of Pulsar's door: `pulsar+ssl://...`, `https://...` and `http://...`
    ca                    the certificate of the authority that the client trusts
    certificate, key, both  what it shows: two PEM files, or both in one
    user, password, token   what it says
    issuer, token_url, client_id, client_secret, credentials, audience
                          of an identity provider, that gives the client its token; `credentials` is a file with them
"""

import json
import secrets
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

import jwt
import rest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from magnetar.testing.certificates import Authority
from magnetar.testing.identity_provider import IdentityProvider
from magnetar.testing.server import free_ports

Login = dict[str, str]
RIGHT, WRONG = CASES = ("right", "wrong")
AUDIENCE: Final = "logins"
ADMIN: Final = "admin"
USER: Final = "alice"
STRANGER: Final = "stranger"
PASSWORDS: Final = {ADMIN: "admin-secret", USER: "alice-secret"}
SCRAM_PASSWORD: Final = "scram-secret"
CLIENT_SECRET: Final = "client-secret"
# Both have the passwords above, by `openssl passwd -apr1`.
HTPASSWD: Final = "admin:$apr1$abcdefgh$J25c9O8aVsHwEE6G2RuZR/\nalice:$apr1$hgfedcba$ros/burCv8.UEbm/5bQXm.\n"
TOPICS: Final = {USER: "of-alice", "ANONYMOUS": "of-anonymous"}
GROUP: Final = "unused"  # librdkafka asks for one even where it does not join it
NAMESPACE: Final = "public/default"
TIMEOUT_S: Final = 30.0

_SECURITY: Final = "org.apache.kafka.common.security."
_PULSAR: Final = "org.apache.pulsar.broker.authentication."
PROVIDERS: Final = (
    "AuthenticationProviderToken",
    "AuthenticationProviderTls",
    "AuthenticationProviderBasic",
    "oidc.AuthenticationProviderOpenID",
)
_SASL_LISTENERS: Final = ("sasl_ssl", "sasl_plaintext")
_SCRAM: Final = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_HOST: Final = "127.0.0.1"


class World:
    """All files lie in `folder`; `provider` gives tokens, and is to be closed by the caller."""

    def __init__(self, folder: Path, provider: IdentityProvider) -> None:
        self._folder = folder
        self._provider = provider
        self._secret = secrets.token_bytes(32)
        self._authority = Authority(folder)
        self._other = Authority(folder, "Another authority")
        self._server = self._authority.issue("server", hosts=["localhost", _HOST])
        subject = f"/O=Magnetar/OU=People/CN={USER}"
        self._certificates = {
            RIGHT: self._authority.issue(USER, subject=subject),
            WRONG: self._other.issue(USER, subject=subject),
        }
        self.ssl, self.mutual, self.sasl_ssl, self.sasl, self.pulsar_tls, self.https, self.controller = (
            free_ports(7)
        )
        self._http = ""
        for name in (USER, ADMIN):
            provider.add_client(name, CLIENT_SECRET)
        provider.add_client(STRANGER, CLIENT_SECRET, forged=True)

    # -- the servers

    @property
    def kafka_settings(self) -> dict[str, str]:
        """Those that Apache Kafka takes, too."""
        listeners = {
            "SSL": self.ssl,
            "MUTUAL": self.mutual,
            "SASL_SSL": self.sasl_ssl,
            "SASL_PLAINTEXT": self.sasl,
        }
        addresses = ",".join(f"{name}://{_HOST}:{port}" for name, port in listeners.items())
        settings = {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": "SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,DEFAULT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self._provider.keys_url,
            "sasl.oauthbearer.expected.issuer": self._provider.issuer,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": "a-secret-key-for-tests-only",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
        }
        for listener in _SASL_LISTENERS:
            settings |= _logins_of(listener)
        return settings

    @property
    def kafka_only(self) -> dict[str, str]:
        """What Apache Kafka needs besides: a listener of its controller, and logins of its own."""
        shared = self.kafka_settings
        mechanism = "sasl.mechanism.{}.protocol"
        return {
            "listeners": f"{shared['listeners']},CONTROLLER://{_HOST}:{self.controller}",
            "listener.security.protocol.map": f"{shared['listener.security.protocol.map']},CONTROLLER:SASL_PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"{_HOST}:{self.controller}",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            mechanism.format("inter.broker"): "PLAIN",
            mechanism.format("controller"): "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            **_logins_of("controller"),
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
                f"{_SECURITY}oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
                f"{_SECURITY}oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
        }

    @property
    def java_options(self) -> str:
        """Java's clients and servers ask for tokens and keys only where a property of the system allows it."""
        urls = f"{self._provider.token_url},{self._provider.keys_url}"
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"

    @property
    def pulsar_settings(self) -> dict[str, str]:
        """Those that Apache Pulsar takes, too."""
        secret, passwords = self._folder / "secret.bin", self._folder / "htpasswd"
        secret.write_bytes(self._secret)
        passwords.write_text(HTPASSWD)
        return {
            "authenticationEnabled": "true",
            "authenticationProviders": ",".join(f"{_PULSAR}{one}" for one in PROVIDERS),
            "tokenSecretKey": f"file://{secret}",
            "openIDAllowedTokenIssuers": self._provider.issuer,
            "openIDAllowedAudiences": AUDIENCE,
            "openIDRequireIssuersUseHttps": "false",
            "basicAuthConf": f"file://{passwords}",
            "authorizationEnabled": "true",
            "superUserRoles": ADMIN,
            "brokerServicePortTls": str(self.pulsar_tls),
            "webServicePortTls": str(self.https),
            "tlsCertificateFilePath": str(self._server.certificate),
            "tlsKeyFilePath": str(self._server.key),
            "tlsTrustCertsFilePath": str(self._authority.certificate),
            "tlsRequireTrustedClientCertOnConnect": "false",
        }

    @property
    def pulsar_only(self) -> dict[str, str]:
        """What Apache Pulsar needs besides: who it is to itself."""
        return {
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.admin_token}",
        }

    @property
    def admin_token(self) -> str:
        """Of a role that may do everything."""
        return self._token(ADMIN, 3600)

    def prepare_kafka(self) -> None:
        """Make topics, rules and credentials of SCRAM, as an administrator does: by Kafka's own requests."""
        admin = AdminClient(
            {
                "bootstrap.servers": f"{_HOST}:{self.sasl}",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "PLAIN",
                "sasl.username": ADMIN,
                "sasl.password": PASSWORDS[ADMIN],
            }
        )
        made = admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS.values()])
        rules = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for user, topic in TOPICS.items()
            for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, GROUP))
        ]
        ruled = admin.create_acls(rules)
        # One request for each: Apache Kafka does not alter a user twice in one.
        credentials = [
            admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion(
                        USER, ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode()
                    )
                ]
            )[USER]
            for mechanism in _SCRAM.values()
        ]
        for one in (*made.values(), *ruled.values(), *credentials):
            one.result(TIMEOUT_S)

    def prepare_pulsar(self, http: str) -> None:
        """Make the namespace, a topic and permissions, as an administrator does over REST.  Raises SetupFailed."""
        rest.wait_for_cluster(http, self.admin_token)
        rest.make_namespace(http, NAMESPACE, {USER: ["produce", "consume"]}, self.admin_token)
        # As Kafka's topics are to Pulsar's clients: partitioned.
        rest.change(http, "PUT", f"persistent/{NAMESPACE}/{TOPICS[USER]}/partitions", 1, self.admin_token)
        self._http = http

    # -- the logins

    def write(self, doors: Set[str]) -> Path:
        """The file of the logins of `doors`: `{"kafka": [...], "pulsar": [...]}`."""
        logins = {"kafka": self._of_kafka(), "pulsar": self._of_pulsar()}
        file = self._folder / "logins.json"
        file.write_text(
            json.dumps({door: list(each) if door in doors else [] for door, each in logins.items()})
        )
        return file

    def _of_kafka(self) -> Iterator[Login]:
        for case in CASES:
            wrong = case == WRONG
            trusted = self._other if wrong else self._authority
            yield self._login(
                "TLS",
                case,
                topic=TOPICS["ANONYMOUS"],
                address=f"localhost:{self.ssl}",
                protocol="SSL",
                ca=str(trusted.certificate),
            )
            yield self._login(
                "mTLS", case, address=f"localhost:{self.mutual}", protocol="SSL", **self._shown(case)
            )
            yield self._sasl("PLAIN", case, "PLAIN", USER, "not-hers" if wrong else PASSWORDS[USER])
            token = self._token(USER, -60 if wrong else 600)
            yield self._sasl("PLAIN-token", case, "PLAIN", "public/default", f"token:{token}")
            for mechanism in _SCRAM:
                yield self._sasl(mechanism, case, mechanism, USER, "not-hers" if wrong else SCRAM_PASSWORD)
            yield self._sasl("OAUTHBEARER", case, "OAUTHBEARER") | self._granted(wrong)
            # Clients make the token by this password; the wrong one's secret is another.
            yield self._sasl("delegation-token", case, "SCRAM-SHA-256", USER, PASSWORDS[USER])

    def _of_pulsar(self) -> Iterator[Login]:
        for case in CASES:
            wrong = case == WRONG
            token = self._token(USER, -60 if wrong else 600)
            trusted = self._other if wrong else self._authority
            good = self._token(USER, 600)
            yield self._by_pulsar("TLS", case, token=good, ca=str(trusted.certificate))
            yield self._by_pulsar("token", case, token=token)
            yield self._by_pulsar("mTLS", case, **self._shown(case))
            password = "not-hers" if wrong else PASSWORDS[USER]
            yield self._by_pulsar("basic", case, user=USER, password=password)
            yield self._by_pulsar("oauth2", case, **self._granted(wrong))

    def _token(self, role: str, life_s: int) -> str:
        """By the server's secret."""
        return jwt.encode({"sub": role, "exp": int(time.time()) + life_s}, self._secret, "HS256")

    def _sasl(self, mechanism: str, case: str, sasl: str, user: str = "", password: str = "") -> Login:
        return self._login(
            mechanism,
            case,
            address=f"localhost:{self.sasl_ssl}",
            protocol="SASL_SSL",
            sasl=sasl,
            user=user,
            password=password,
        )

    def _by_pulsar(self, mechanism: str, case: str, **more: str) -> Login:
        url, web = f"pulsar+ssl://localhost:{self.pulsar_tls}", f"https://localhost:{self.https}"
        return self._login(mechanism, case, url=url, web=web, http=self._http, **more)

    def _login(self, mechanism: str, case: str, **more: str) -> Login:
        common = {"topic": TOPICS[USER], "ca": str(self._authority.certificate)}
        return {"mechanism": mechanism, "case": case, **common, **more}

    def _shown(self, case: str) -> Login:
        issued = self._certificates[case]
        return {"certificate": str(issued.certificate), "key": str(issued.key), "both": str(issued.both)}

    def _granted(self, wrong: bool) -> Login:
        name = STRANGER if wrong else USER
        file = self._folder / f"{name}.json"
        granted = {
            "issuer": self._provider.url,
            "token_url": self._provider.token_url,
            "client_id": name,
            "client_secret": CLIENT_SECRET,
            "audience": AUDIENCE,
            "credentials": str(file),
            "token": self._provider.forged_token(USER) if wrong else self._provider.token(USER),
        }
        kept = {"client_id": name, "client_secret": CLIENT_SECRET, "issuer_url": self._provider.url}
        file.write_text(json.dumps({"type": "client_credentials", **kept}))
        return granted


def _logins_of(listener: str) -> dict[str, str]:
    """The users of a listener; those of SCRAM are made later."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    plain = f'{_SECURITY}plain.PlainLoginModule required username="{ADMIN}" password="{PASSWORDS[ADMIN]}" {users};'
    found = {f"listener.name.{listener}.plain.sasl.jaas.config": plain}
    for mechanism in _SCRAM:
        key = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
        found[key] = f"{_SECURITY}scram.ScramLoginModule required;"
    found[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = (
        f"{_SECURITY}oauthbearer.OAuthBearerLoginModule required;"
    )
    return found

"""Settings of TLS: Kafka's and Pulsar's own keys, and what a listener is given of them.

Certificates and keys are PEM, in files or as text.  Here it is only decided where they stand; the server reads them
(`server/certificates.py`).  A Kafka listener may have values of its own, `listener.name.<listener>.<key>`
(`base/settings_listener.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.config import ConfigType
from magnetar.base.errors import ConfigError
from magnetar.base.paths import absolute_path
from magnetar.base.principal_rules import DEFAULT_RULES, PrincipalRules, parse_principal_rules
from magnetar.base.server_key import ServerKey, aliases

PEM: Final = "PEM"
PRINCIPAL_RULES: Final = "ssl.principal.mapping.rules"
TRUSTED: Final = "tlsTrustCertsFilePath"  # Pulsar's
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")

_B, _S, _I, _LIST, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

KAFKA_TLS_KEYS: Final = (
    ServerKey(
        "ssl.keystore.type",
        _S,
        PEM,
        "The form of Kafka's certificate and key; only PEM is served today.",
        aliases=aliases("kopSslKeystoreType"),
    ),
    ServerKey(
        "ssl.keystore.location",
        _S,
        "",
        "A PEM file with the key and the certificate chain of Kafka's SSL listeners; read again when it changes.",
        aliases=aliases("kopSslKeystoreLocation"),
    ),
    ServerKey("ssl.keystore.key", _PASSWORD, "", "The key itself as PEM (PKCS #8), instead of a file."),
    ServerKey(
        "ssl.keystore.certificate.chain",
        _PASSWORD,  # as in Kafka: a whole file with the key in it may stand here
        "",
        "The certificate chain itself as PEM, beside ssl.keystore.key.",
    ),
    ServerKey(
        "ssl.keystore.password",
        _PASSWORD,
        "",
        "A store's password; PEM has none.",
        aliases=aliases("kopSslKeystorePassword"),
    ),
    ServerKey(
        "ssl.key.password",
        _PASSWORD,
        "",
        "The password of a key that is encrypted.",
        aliases=aliases("kopSslKeyPassword"),
    ),
    ServerKey(
        "ssl.truststore.type",
        _S,
        PEM,
        "The form of the certificates that sign clients'; only PEM is served today.",
        aliases=aliases("kopSslTruststoreType"),
    ),
    ServerKey(
        "ssl.truststore.location",
        _S,
        "",
        "A PEM file with the certificates that sign clients'; read again when it changes.",
        aliases=aliases("kopSslTruststoreLocation"),
    ),
    ServerKey(
        "ssl.truststore.certificates",
        _PASSWORD,
        "",
        "These certificates themselves as PEM, instead of a file.",
    ),
    ServerKey(
        "ssl.truststore.password",
        _PASSWORD,
        "",
        "A store's password; PEM has none.",
        aliases=aliases("kopSslTruststorePassword"),
    ),
    ServerKey(
        "ssl.client.auth",
        _S,
        "none",
        "Whether Kafka's clients show a certificate: required, if they have one (requested), or not at all.",
        choices=("none", "requested", "required"),
        aliases=aliases("kopSslClientAuth"),
    ),
    ServerKey(
        PRINCIPAL_RULES,
        _S,
        DEFAULT_RULES,
        "What clients of SSL listeners are called, by the names in their certificates:"
        " `RULE:^CN=([^,]+),.*$/$1/L,DEFAULT`; the first rule that fits counts.",
    ),
    ServerKey(
        "ssl.enabled.protocols",
        _LIST,
        ",".join(TLS_VERSIONS),
        "The versions of TLS that Kafka's SSL listeners speak: TLSv1.2, TLSv1.3.",
        aliases=aliases("kopSslEnabledProtocols"),
    ),
    ServerKey(
        "ssl.cipher.suites",
        _LIST,
        "",
        "The ciphers of Kafka's SSL listeners; OpenSSL chooses them, and a list of one's own is refused.",
        aliases=aliases("kopSslCipherSuites"),
    ),
)

PULSAR_TLS_PORTS: Final = ("brokerServicePortTls", "webServicePortTls")

PULSAR_TLS_KEYS: Final = (
    ServerKey(
        "brokerServicePortTls",
        _I,
        None,
        "The port of Pulsar's binary protocol over TLS (pulsar+ssl), on `host`; 0 is a free one.",
        minimum=0,
        maximum=65535,
        default_words="there is none",
        may_be_empty=True,
    ),
    ServerKey(
        "webServicePortTls",
        _I,
        None,
        "The port of REST and metrics over TLS (https), on `host`; 0 is a free one.",
        minimum=0,
        maximum=65535,
        default_words="there is none",
        may_be_empty=True,
    ),
    ServerKey(
        "tlsCertificateFilePath",
        _S,
        "",
        "A PEM file with the certificate chain of both ports; read again when it changes.",
    ),
    ServerKey(
        "tlsKeyFilePath", _S, "", "A PEM file with its key, not encrypted; read again when it changes."
    ),
    ServerKey(
        TRUSTED,
        _S,
        "",
        "A PEM file with the certificates that sign clients'; a certificate that a client shows is looked at when this"
        " is set.",
    ),
    ServerKey(
        "tlsRequireTrustedClientCertOnConnect",
        _B,
        "false",
        "Whether clients of these ports must show a certificate that one of these has signed.",
    ),
    ServerKey("tlsProtocols", _LIST, ",".join(TLS_VERSIONS), "The versions of TLS that they speak."),
)

TLS_KEYS: Final = (*KAFKA_TLS_KEYS, *PULSAR_TLS_KEYS)
KAFKA_NAMES: Final = frozenset(key.name for key in KAFKA_TLS_KEYS)
PULSAR_NAMES: Final = frozenset(key.name for key in PULSAR_TLS_KEYS)


class ClientCertificates(Enum):
    """Whether clients show one.  The values are Kafka's words."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key: in `file`, or the `text` itself when there is none.  `setting` is the key that says so."""

    setting: str
    file: Path | None
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a listener with TLS is made of.  `key` may be in the file of `chain`; `versions` are of `TLS_VERSIONS`.

    `password` is the key's, and `password_setting` the key that it is set with, empty where there is none.
    """

    chain: Pem
    key: Pem
    trusted: Pem | None
    client_certificates: ClientCertificates
    versions: tuple[str, ...]
    password: str = field(default="", repr=False)
    password_setting: str = ""


class Given(NamedTuple):
    """The value of a key, as text, and the name that it was set by."""

    text: str
    name: str


# The value of a key as it holds where it is asked for: a listener's own, or all listeners'.
Lookup = Callable[[str], Given]


def kafka_tls(listener: str, look_up: Lookup) -> TlsSettings:
    """What `ssl.*` says about one listener.

    Raises:
        ConfigError: it asks for what is not served, or is incomplete.
    """
    _check_store("keystore", look_up)
    _check_store("truststore", look_up)
    ciphers = look_up("ssl.cipher.suites")
    if ciphers.text:
        raise ConfigError(f"{ciphers.name} cannot be set yet: OpenSSL chooses the ciphers")
    chain, key = _key_and_chain(listener, look_up)
    clients = look_up("ssl.client.auth")
    wanted = ClientCertificates(clients.text)
    trusted = _file_or_text(look_up("ssl.truststore.location"), look_up("ssl.truststore.certificates"))
    if wanted is not ClientCertificates.NONE and trusted is None:
        raise ConfigError(
            f"{clients.name} is {clients.text}, and nothing says whose certificates are good: set"
            " ssl.truststore.location"
        )
    password = look_up("ssl.key.password")
    versions = _versions(look_up("ssl.enabled.protocols"))
    return TlsSettings(chain, key, trusted, wanted, versions, password.text, password.name)


def principal_rules(look_up: Lookup) -> PrincipalRules:
    """What `ssl.principal.mapping.rules` says about one listener.

    Raises:
        ConfigError: it has no rules, or they cannot be used.
    """
    given = look_up(PRINCIPAL_RULES)
    try:
        return parse_principal_rules(given.text)
    except ValueError as error:
        raise ConfigError(f"{given.name} {error}") from None


def pulsar_tls(port_name: str, look_up: Lookup) -> TlsSettings:
    """What Pulsar's `tls...` say about the port that `port_name` sets, and about the other one.

    Raises:
        ConfigError: as `kafka_tls`.
    """
    chain, key = look_up("tlsCertificateFilePath"), look_up("tlsKeyFilePath")
    for one in (chain, key):
        if not one.text:
            raise ConfigError(f"{port_name} needs a certificate and its key: set {one.name}")
    trusted = look_up(TRUSTED)
    wanted = ClientCertificates.REQUESTED if trusted.text else ClientCertificates.NONE
    if look_up("tlsRequireTrustedClientCertOnConnect").text == "true":
        wanted = ClientCertificates.REQUIRED
        if not trusted.text:
            raise ConfigError(
                "tlsRequireTrustedClientCertOnConnect is true, and nothing says whose certificates are good: set"
                f" {TRUSTED}"
            )
    return TlsSettings(
        _in_file(chain),
        _in_file(key),
        _in_file(trusted) if trusted.text else None,
        wanted,
        _versions(look_up("tlsProtocols")),
    )


def _check_store(store: str, look_up: Lookup) -> None:
    kind = look_up(f"ssl.{store}.type")
    if kind.text.upper() != PEM:
        raise ConfigError(f"{kind.name} is {kind.text[:100]}: PEM is what is served today")
    password = look_up(f"ssl.{store}.password")
    if password.text:
        raise ConfigError(
            f"{password.name} is for stores that are not PEM, which is what is served today: leave it out (a key's"
            " password is ssl.key.password)"
        )


def _key_and_chain(listener: str, look_up: Lookup) -> tuple[Pem, Pem]:
    location = look_up("ssl.keystore.location")
    key, chain = look_up("ssl.keystore.key"), look_up("ssl.keystore.certificate.chain")
    if location.text:
        for one in (key, chain):
            if one.text:
                raise ConfigError(f"{location.name} and {one.name} both have a certificate: keep one of them")
        return _in_file(location), _in_file(location)
    if not key.text or not chain.text:
        raise ConfigError(
            f"listener {listener} speaks TLS and has no certificate: set ssl.keystore.location, or both"
            " ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    return Pem(chain.name, None, chain.text), Pem(key.name, None, key.text)


def _file_or_text(file: Given, text: Given) -> Pem | None:
    if file.text and text.text:
        raise ConfigError(f"{file.name} and {text.name} both have certificates: keep one of them")
    if file.text:
        return _in_file(file)
    return Pem(text.name, None, text.text) if text.text else None


def _in_file(given: Given) -> Pem:
    """A key that was given in the place of its file's name must not be said again, in a log or an answer."""
    if "-----BEGIN" in given.text:
        raise ConfigError(f"{given.name} is the name of a file, and what was given is PEM itself")
    return Pem(given.name, absolute_path(given.name, given.text))


def _versions(given: Given) -> tuple[str, ...]:
    wanted = [one.strip() for one in given.text.split(",") if one.strip()]
    if not wanted or not set(wanted) <= set(TLS_VERSIONS):
        raise ConfigError(f"{given.name} must be among {', '.join(TLS_VERSIONS)}, not {given.text[:200]!r}")
    return tuple(one for one in TLS_VERSIONS if one in wanted)

"""Settings of TLS, by Kafka's and Pulsar's own keys, and the part of them that one listener gets.

Certificates and keys are PEM, in files or as text, or in files of PKCS #12.  Here it is only decided where they stand;
the server reads them (`server/certificates.py`).  A Kafka listener may have values of its own,
`listener.name.<listener>.<key>` (`base/settings_listener.py`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.cipher_suites import TLS_VERSIONS, choose_suites
from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.paths import absolute_path
from magnetar.base.principal_rules import DEFAULT_RULES, PrincipalRules, parse_principal_rules
from magnetar.base.server_key import ServerKey, aliases

PEM: Final = "PEM"
# The types that a setting may give a store.  Java accepts JKS for PKCS #12 files as well, and reads both under either
# name: the file itself shows its type.
STORE_TYPES: Final = (PEM, "PKCS12", "JKS")
PRINCIPAL_RULES: Final = "ssl.principal.mapping.rules"

_B, _S, _I, _LIST, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

_BY_CONTENT: Final = "what the file is"


def _only_false(value: Value) -> str | None:
    return "must be false: a certificate that nothing vouches for says nothing" if value else None


KAFKA_TLS_KEYS: Final = (
    ServerKey(
        "ssl.keystore.type",
        _S,
        None,
        "The form of Kafka's certificate and key: PEM, PKCS12 or JKS. The file's content decides between "
        "the last two.",
        default_words=_BY_CONTENT,
        aliases=aliases("kopSslKeystoreType"),
    ),
    ServerKey(
        "ssl.keystore.location",
        _S,
        "",
        "A file with the key and the certificate chain of Kafka's SSL listeners; read again when it changes.",
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
        "The password of a store; PEM has none.",
        aliases=aliases("kopSslKeystorePassword"),
    ),
    ServerKey(
        "ssl.key.password",
        _PASSWORD,
        "",
        "The password of a key that is encrypted, in PEM; in a store it is the store's, or, in JKS alone, another one.",
        aliases=aliases("kopSslKeyPassword"),
    ),
    ServerKey(
        "ssl.truststore.type",
        _S,
        None,
        "The form of the certificates that sign clients': PEM, PKCS12 or JKS. The file's content decides "
        "between the last two.",
        default_words=_BY_CONTENT,
        aliases=aliases("kopSslTruststoreType"),
    ),
    ServerKey(
        "ssl.truststore.location",
        _S,
        "",
        "A file with the certificates that sign clients'; read again when it changes.",
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
        "The password of a store; PEM has none.",
        aliases=aliases("kopSslTruststorePassword"),
    ),
    ServerKey(
        "ssl.client.auth",
        _S,
        "none",
        "Whether Kafka's clients must show a certificate (required), may show one (requested), or show none.",
        choices=("none", "requested", "required"),
        aliases=aliases("kopSslClientAuth"),
    ),
    ServerKey(
        PRINCIPAL_RULES,
        _S,
        DEFAULT_RULES,
        "Rules that make names of SSL listeners' clients from their certificates: "
        "`RULE:^CN=([^,]+),.*$/$1/L,DEFAULT`; the first rule that matches counts.",
    ),
    ServerKey(
        "ssl.enabled.protocols",
        _LIST,
        ",".join(TLS_VERSIONS),
        "The versions of TLS that Kafka's SSL listeners use: TLSv1.2, TLSv1.3.",
        aliases=aliases("kopSslEnabledProtocols"),
    ),
    ServerKey(
        "ssl.cipher.suites",
        _LIST,
        "",
        "The suites of Kafka's SSL listeners, by the names that Java has for them; a version of TLS that has none in"
        " the list is not spoken, and without a list OpenSSL chooses. Those of TLS 1.3 can be had together only.",
        aliases=aliases("kopSslCipherSuites"),
    ),
)

PULSAR_TLS_PORTS: Final = ("brokerServicePortTls", "webServicePortTls")
_TRUSTED: Final = "tlsTrustCertsFilePath"
_WITH_STORES: Final = "tlsEnabledWithKeyStore"
_KEY_STORE: Final = "tlsKeyStore"
_TRUST_STORE: Final = "tlsTrustStore"
_PEM_NAMES: Final = frozenset(("tlsCertificateFilePath", "tlsKeyFilePath", _TRUSTED))
_STORE_NAMES: Final = frozenset(
    f"tls{store}Store{part}" for store in ("Key", "Trust") for part in ("", "Type", "Password")
)

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
        _TRUSTED,
        _S,
        "",
        "A PEM file with the certificates that sign clients'; if it is set, the server checks a "
        "certificate that a client shows.",
    ),
    ServerKey(
        _WITH_STORES,
        _B,
        "false",
        "Whether both ports use the stores of the next six keys instead of the three PEM files.",
    ),
    ServerKey(
        "tlsKeyStoreType",
        _S,
        None,
        "The form of the certificate and key: PKCS12 or JKS, of which the file decides, or PEM.",
        default_words=_BY_CONTENT,
    ),
    ServerKey(
        _KEY_STORE,
        _S,
        "",
        "A file with the certificate chain of both ports and its key; read again when it changes.",
    ),
    ServerKey("tlsKeyStorePassword", _PASSWORD, "", "The password of tlsKeyStore; PEM has none."),
    ServerKey(
        "tlsTrustStoreType",
        _S,
        None,
        "The form of the certificates that sign clients': PKCS12 or JKS, of which the file decides, or PEM.",
        default_words=_BY_CONTENT,
    ),
    ServerKey(
        _TRUST_STORE,
        _S,
        "",
        "A file with the certificates that sign clients'; if it is set, the server checks a certificate "
        "that a client shows.",
    ),
    ServerKey("tlsTrustStorePassword", _PASSWORD, "", "The password of tlsTrustStore; PEM has none."),
    ServerKey(
        "tlsRequireTrustedClientCertOnConnect",
        _B,
        "false",
        "Whether clients of these ports must show a certificate that one of these has signed.",
    ),
    ServerKey(
        "tlsAllowInsecureConnection",
        _B,
        "false",
        "Whether clients may show certificates that no authority has signed; only false can be set.",
        check=_only_false,
    ),
    ServerKey(
        "tlsProtocols",
        _LIST,
        ",".join(TLS_VERSIONS),
        "The versions of TLS that they speak; nothing at all means these as well, as in Pulsar.",
    ),
    ServerKey("tlsCiphers", _LIST, "", "The suites that they have, as ssl.cipher.suites."),
)

TLS_KEYS: Final = (*KAFKA_TLS_KEYS, *PULSAR_TLS_KEYS)
KAFKA_NAMES: Final = frozenset(key.name for key in KAFKA_TLS_KEYS)
PULSAR_NAMES: Final = frozenset(key.name for key in PULSAR_TLS_KEYS)


class ClientCertificates(Enum):
    """Whether clients show one.  The values are Kafka's words."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class Given(NamedTuple):
    """The value of a key, as text, and the name that it was set by."""

    text: str
    name: str


_NOT_GIVEN: Final = Given("", "")


@dataclass(frozen=True, slots=True)
class Material:
    """Certificates, a key, or both: in `file`, or PEM itself in `text` when there is none.

    `setting` is the key that says so.  `kind` is one of `STORE_TYPES`, or empty where the file may be any of them; what
    may be nothing but PEM has it without a name.  `password` is a store's.
    """

    setting: str
    file: Path | None
    text: str = field(default="", repr=False)
    kind: Given = _NOT_GIVEN
    password: Given = field(default=_NOT_GIVEN, repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The parts of a listener with TLS.  `key` may be in the file of `chain`; `versions` are of `TLS_VERSIONS`.

    `password` is the key's, and `password_setting` the key that it is set with, empty where there is none.
    `ciphers` are suites of TLS 1.2 in OpenSSL's words, empty for its own choice.
    """

    chain: Material
    key: Material
    trusted: Material | None
    client_certificates: ClientCertificates
    versions: tuple[str, ...]
    password: str = field(default="", repr=False)
    password_setting: str = ""
    ciphers: Given = _NOT_GIVEN


# The value of a key as it holds where it is asked for: a listener's own, or all listeners'.
Lookup = Callable[[str], Given]


def kafka_tls(listener: str, look_up: Lookup) -> TlsSettings:
    """Read the `ssl.*` keys of one listener.

    Raises:
        ConfigError: it asks for what is not served, or is incomplete.
    """
    chain, key = _key_and_chain(listener, look_up)
    clients = look_up("ssl.client.auth")
    wanted = ClientCertificates(clients.text)
    trusted = trust_store(look_up)
    if wanted is not ClientCertificates.NONE and trusted is None:
        raise ConfigError(
            f"{clients.name} is {clients.text}, and nothing says whose certificates are good: set"
            " ssl.truststore.location"
        )
    password = look_up("ssl.key.password")
    versions, ciphers = _spoken(look_up("ssl.enabled.protocols"), look_up("ssl.cipher.suites"))
    return TlsSettings(chain, key, trusted, wanted, versions, password.text, password.name, ciphers)


def principal_rules(look_up: Lookup) -> PrincipalRules:
    """Read `ssl.principal.mapping.rules` of one listener.

    Raises:
        ConfigError: it has no rules, or they cannot be used.
    """
    given = look_up(PRINCIPAL_RULES)
    try:
        return parse_principal_rules(given.text)
    except ValueError as error:
        raise ConfigError(f"{given.name} {error}") from None


def pulsar_trust(text: Callable[[str], str]) -> str:
    """The key that names the trusted authorities of Pulsar's ports; `text` looks keys up."""
    return _TRUST_STORE if text(_WITH_STORES) == "true" else _TRUSTED


def pulsar_tls(
    port_name: str, look_up: Lookup, notice: Callable[[Collection[str], str], None]
) -> TlsSettings:
    """Read Pulsar's `tls...` keys for the port that `port_name` sets, and for the other one.

    `notice` hears of keys that have no effect, and why.

    Raises:
        ConfigError: as `kafka_tls`.
    """
    with_stores = look_up(_WITH_STORES).text == "true"
    if with_stores:
        notice(_PEM_NAMES, f"{_WITH_STORES} is true")
    else:
        notice(_STORE_NAMES, f"{_WITH_STORES} is not true")
    for name in (_KEY_STORE,) if with_stores else ("tlsCertificateFilePath", "tlsKeyFilePath"):
        if not look_up(name).text:
            raise ConfigError(f"{port_name} needs a certificate and its key: set {name}")
    trust = look_up(pulsar_trust(lambda key: look_up(key).text))
    wanted = ClientCertificates.REQUESTED if trust.text else ClientCertificates.NONE
    if look_up("tlsRequireTrustedClientCertOnConnect").text == "true":
        wanted = ClientCertificates.REQUIRED
        if not trust.text:
            raise ConfigError(
                "tlsRequireTrustedClientCertOnConnect is true, and nothing says whose certificates are good: set"
                f" {trust.name}"
            )
    if with_stores:
        chain = key = _in_file(
            look_up(_KEY_STORE), _kind(look_up("tlsKeyStoreType")), look_up("tlsKeyStorePassword")
        )
        form = _kind(look_up("tlsTrustStoreType")), look_up("tlsTrustStorePassword")
    else:
        form = Given(PEM, ""), _NOT_GIVEN
        chain, key = (_in_file(look_up(name), *form) for name in ("tlsCertificateFilePath", "tlsKeyFilePath"))
    trusted = _in_file(trust, *form) if trust.text else None
    protocols = look_up("tlsProtocols")
    versions, ciphers = _spoken(
        protocols if protocols.text else Given(",".join(TLS_VERSIONS), protocols.name), look_up("tlsCiphers")
    )
    return TlsSettings(chain, key, trusted, wanted, versions, ciphers=ciphers)


def _kind(given: Given) -> Given:
    """The type that a setting gives a store, in capitals; Java accepts either case."""
    kind = given.text.upper()
    if kind and kind not in STORE_TYPES:
        raise ConfigError(f"{given.name} must be one of {', '.join(STORE_TYPES)}, not {given.text[:100]!r}")
    return Given(kind, given.name)


def _key_and_chain(listener: str, look_up: Lookup) -> tuple[Material, Material]:
    form = _kind(look_up("ssl.keystore.type")), look_up("ssl.keystore.password")
    location = look_up("ssl.keystore.location")
    key, chain = look_up("ssl.keystore.key"), look_up("ssl.keystore.certificate.chain")
    if location.text:
        for one in (key, chain):
            if one.text:
                raise ConfigError(f"{location.name} and {one.name} both have a certificate: keep one of them")
        both = _in_file(location, *form)
        return both, both
    if not key.text or not chain.text:
        raise ConfigError(
            f"listener {listener} speaks TLS and has no certificate: set ssl.keystore.location, or both"
            " ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    return _in_text(chain, *form), _in_text(key, *form)


def trust_store(look_up: Lookup) -> Material | None:
    """The certificates that `ssl.truststore.*` name, if they name any.  Raises ConfigError."""
    form = _kind(look_up("ssl.truststore.type")), look_up("ssl.truststore.password")
    file, text = look_up("ssl.truststore.location"), look_up("ssl.truststore.certificates")
    if file.text and text.text:
        raise ConfigError(f"{file.name} and {text.name} both have certificates: keep one of them")
    if file.text:
        return _in_file(file, *form)
    return _in_text(text, *form) if text.text else None


def _in_text(given: Given, kind: Given, password: Given) -> Material:
    return Material(given.name, None, given.text, kind, password)


def _in_file(given: Given, kind: Given, password: Given) -> Material:
    """A key that was given in the place of its file's name must not be said again, in a log or an answer."""
    if "-----BEGIN" in given.text:
        raise ConfigError(f"{given.name} is the name of a file, and what was given is PEM itself")
    return Material(given.name, absolute_path(given.name, given.text), "", kind, password)


def _spoken(versions: Given, suites: Given) -> tuple[tuple[str, ...], Given]:
    """The versions of TLS that are spoken, and suites as `TlsSettings.ciphers` has them."""
    wanted = [one.strip() for one in versions.text.split(",") if one.strip()]
    if not wanted or not set(wanted) <= set(TLS_VERSIONS):
        raise ConfigError(
            f"{versions.name} must be among {', '.join(TLS_VERSIONS)}, not {versions.text[:200]!r}"
        )
    allowed = tuple(one for one in TLS_VERSIONS if one in wanted)
    spoken, ciphers = choose_suites(suites.name, suites.text, allowed)
    return spoken, Given(ciphers, suites.name)

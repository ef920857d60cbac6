"""The properties that a replicator may set for Kafka's client, and the client's settings that follow from them.

Names are Kafka's own.  Only what is in `_PROPERTIES` is allowed: users of a namespace choose the properties, and the
worker's account runs the client.  So no property names a file, a command or a library (`ssl.ca.location`,
`sasl.kerberos.kinit.cmd`, `plugin.library.paths`); certificates and keys are given as PEM texts.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.properties import (
    SHOWN_CHARS,
    Properties,
    Property,
    check_credentials,
    check_properties,
    require_property,
)

_TYPE: Final = "Kafka"
SERVERS: Final = "bootstrap.servers"
TRANSACTIONAL_ID: Final = "transactional.id"
GAPLESS: Final = (
    "enable.gapless.guarantee"  # a failed batch ends the client, so that no later batch overtakes it
)

# librdkafka's name of a topic's greatest record; Kafka's brokers decide, unless a property says less.
_MESSAGE_BYTES_MAX: Final = "message.max.bytes"
_DEFAULTS: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    GAPLESS: "true",
    "linger.ms": "5",
    "reconnect.backoff.max.ms": "1000",  # librdkafka's own ten seconds are longer than most restarts
    _MESSAGE_BYTES_MAX: str(64 << 20),
}

_HOST: Final = re.compile(r"(?:[A-Za-z_]+://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


def _are_servers(text: str) -> bool:
    return all(_HOST.fullmatch(host.strip()) for host in text.split(","))


def _one_of(*allowed: str) -> Property:
    small = [one.lower() for one in allowed]
    return f"one of {', '.join(allowed)}", lambda text: text.lower() in small


def _number(least: int, most: int) -> Property:
    def is_good(text: str) -> bool:
        return text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most

    return f"a whole number from {least} to {most}", is_good


_TEXT: Final[Property] = ("a text", str.strip)
_PROPERTIES: Final[Properties] = {
    SERVERS: ("host:port, separated by commas", _are_servers),
    "acks": _one_of("all", "-1"),  # with less than that, an acknowledged record could be lost at the target
    "batch.size": _number(1, 1 << 30),
    "client.id": _TEXT,
    "compression.type": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "linger.ms": _number(0, 60_000),
    _MESSAGE_BYTES_MAX: _number(1000, 1_000_000_000),
    "request.timeout.ms": _number(1, 900_000),
    "sasl.mechanism": _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "security.protocol": _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl.ca.pem": _TEXT,
    "ssl.certificate.pem": _TEXT,
    "ssl.endpoint.identification.algorithm": _one_of("https", "none"),
    TRANSACTIONAL_ID: _TEXT,
    "transaction.timeout.ms": _number(1000, 900_000),
}
_CREDENTIALS: Final = ("sasl.username", "sasl.password", "ssl.key.pem", "ssl.key.password")
_OF_FILES: Final = re.compile(r"\.(location|path|paths|file|cmd)$|^ssl\.(key|trust)store\.|^sasl\.jaas\.")


def client_settings(properties: Mapping[str, Any], credentials: Mapping[str, Any] | None) -> dict[str, str]:
    """The settings of the client that follow from these properties.

    Raises:
        ReplicatorConfigError: one sentence that names the property.
    """
    for name in map(str, properties):
        if name in _CREDENTIALS:
            raise ReplicatorConfigError(
                f"the property {name} is a secret: give it with the credentials (--auth-param), which are not shown"
            )
        if _OF_FILES.search(name[:SHOWN_CHARS]):
            raise ReplicatorConfigError(
                f"the property {name[:SHOWN_CHARS]} cannot be given, as it makes the worker open a file or run a"
                " program: give certificates as texts (ssl.ca.pem, ssl.certificate.pem)"
            )
    given, secrets = _as_texts(properties), _as_texts(credentials or {})
    check_properties(_TYPE, given, _PROPERTIES)
    require_property(_TYPE, given, SERVERS, "host:port,host:port")
    check_credentials(_TYPE, secrets, _CREDENTIALS)
    return {**_DEFAULTS, **given, **secrets}


def _as_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Numbers and booleans as texts; a value is not in the error, because it may be a secret."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(value, str | int) or "\0" in str(value):
            raise ReplicatorConfigError(f"{str(name)[:SHOWN_CHARS]} must be a text, a number, true or false")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found

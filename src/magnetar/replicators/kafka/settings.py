"""The properties that a replicator may set for Kafka's client, and the client's settings that follow from them.

Names are Kafka's own.  Only what is in `_PROPERTIES` is allowed: users of a namespace choose the properties, and the
worker's account runs the client.  So no property names a file, a command or a library (`ssl.ca.location`,
`sasl.kerberos.kinit.cmd`, `plugin.library.paths`); certificates and keys are given as PEM texts.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from magnetar.base.config import closest
from magnetar.replicators.errors import ReplicatorConfigError

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


def _servers(text: str) -> str | None:
    hosts = text.split(",")
    return None if all(_HOST.fullmatch(host.strip()) for host in hosts) else "host:port, separated by commas"


def _text(text: str) -> str | None:
    return None if text.strip() else "a text"


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda text: None if text.lower() in map(str.lower, allowed) else f"one of {', '.join(allowed)}"


def _number(least: int, most: int) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        is_good = text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most
        return None if is_good else f"a whole number from {least} to {most}"

    return check


# {name: a check that says what the value must be, or None if it is good}
_PROPERTIES: Final[Mapping[str, Callable[[str], str | None]]] = {
    SERVERS: _servers,
    "acks": _one_of("all", "-1"),  # with less than that, an acknowledged record could be lost at the target
    "batch.size": _number(1, 1 << 30),
    "client.id": _text,
    "compression.type": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "linger.ms": _number(0, 60_000),
    _MESSAGE_BYTES_MAX: _number(1000, 1_000_000_000),
    "request.timeout.ms": _number(1, 900_000),
    "sasl.mechanism": _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "security.protocol": _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl.ca.pem": _text,
    "ssl.certificate.pem": _text,
    "ssl.endpoint.identification.algorithm": _one_of("https", "none"),
    TRANSACTIONAL_ID: _text,
    "transaction.timeout.ms": _number(1000, 900_000),
}
_CREDENTIALS: Final = ("sasl.username", "sasl.password", "ssl.key.pem", "ssl.key.password")
_OF_FILES: Final = re.compile(r"\.(location|path|paths|file|cmd)$|^ssl\.(key|trust)store\.|^sasl\.jaas\.")


def client_settings(properties: Mapping[str, Any], credentials: Mapping[str, Any] | None) -> dict[str, str]:
    """The settings of the client that follow from these properties.

    Raises:
        ReplicatorConfigError: one sentence that names the property.
    """
    given: dict[str, str] = {}
    for name, value in properties.items():
        if name in _CREDENTIALS:
            raise ReplicatorConfigError(
                f"the property {name} is a secret: give it with the credentials (--auth-param), which are not shown"
            )
        check = _PROPERTIES.get(name)
        if check is None:
            raise ReplicatorConfigError(_not_allowed(name))
        text = _as_text(name, value)
        wanted = check(text)
        if wanted is not None:
            raise ReplicatorConfigError(f"the property {name} must be {wanted}, not {text[:100]!r}")
        given[name] = text
    if SERVERS not in given:
        raise ReplicatorConfigError(
            f"a replicator to Kafka needs the property {SERVERS}: host:port,host:port"
        )
    return {**_DEFAULTS, **given, **_secrets(credentials or {})}


def _secrets(credentials: Mapping[str, Any]) -> dict[str, str]:
    for name in credentials:
        if name not in _CREDENTIALS:
            raise ReplicatorConfigError(
                f"credentials of a replicator to Kafka are {', '.join(_CREDENTIALS)}, not {str(name)[:100]!r}"
            )
    return {name: _as_text(name, value) for name, value in credentials.items()}


def _as_text(name: str, value: Any) -> str:
    """Numbers and booleans as texts; a secret is not in the error."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int) and "\0" not in str(value):
        return str(value)
    raise ReplicatorConfigError(f"{name} must be a text, a number, true or false")


def _not_allowed(name: Any) -> str:
    text = str(name)[:100]
    if _OF_FILES.search(text):
        return (
            f"the property {text} cannot be given, as it makes the worker open a file or run a program: give"
            " certificates as texts (ssl.ca.pem, ssl.certificate.pem)"
        )
    meant = closest(text, _PROPERTIES)
    hint = f"did you mean {meant}?" if meant else f"there are {', '.join(_PROPERTIES)}"
    return f"a replicator to Kafka has no property {text!r}: {hint}"

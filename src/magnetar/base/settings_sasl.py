"""Settings of SASL at Kafka's listeners, by Kafka's own keys, and the part of them that one listener gets.

A listener may have values of its own (`base/settings_listener.py`), some of them also for one mechanism:
`listener.name.<listener>.plain.sasl.jaas.config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.jaas import jaas_options
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_authentication import takes_tokens
from magnetar.base.settings_oauth import OAUTH_KEYS, OAuthSettings, kafka_oauth
from magnetar.base.settings_tls import Lookup

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
PLAIN_USERS: Final = "plain.sasl.jaas.config"

_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER: Final = "user_"
_SESSION: Final = "connections.max.reauth.ms"
_OWN_PRINCIPALS: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def _kafkas_own_principals(value: Value) -> str | None:
    return None if value in ("", _OWN_PRINCIPALS) else "cannot be a class of one's own: no Java runs here"


def _no_handler(value: Value) -> str | None:
    return "cannot be set: no Java runs here" if value else None


KAFKA_SASL_KEYS: Final = (
    ServerKey(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        "",
        f"How clients of listeners with SASL may log in: {', '.join(MECHANISMS)}.",
    ),
    ServerKey(
        PLAIN_USERS,
        ConfigType.PASSWORD,
        "",
        "The users of PLAIN, as Kafka writes them:"
        ' `org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="her password";`.'
        " Where clients may show tokens, PLAIN takes those without it, too.",
    ),
    ServerKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        "524288",
        "The largest message of a client that has not logged in yet, in bytes.",
        minimum=1,
    ),
    ServerKey(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        "100",
        "How long the server waits before it answers a failed login.",
        minimum=0,
        maximum=10_000,
    ),
    ServerKey(
        "principal.builder.class",
        ConfigType.STRING,
        "",
        f"What gives a client its name; only Kafka's own ({_OWN_PRINCIPALS}) can be set.",
        check=_kafkas_own_principals,
    ),
    ServerKey(
        "sasl.server.callback.handler.class",
        ConfigType.STRING,
        "",
        "A Java class that checks passwords; refused, because the server runs no Java.",
        check=_no_handler,
    ),
    ServerKey(
        _SESSION,
        ConfigType.LONG,
        "0",
        "After how long clients have to log in anew, on the same connection; 0 means only when a token ends.",
        minimum=0,
    ),
    *(
        ServerKey(
            f"{one.lower()}.{_SESSION}",
            ConfigType.LONG,
            None,
            f"The same for clients that log in by {one}.",
            minimum=0,
            default_words=f"`{_SESSION}`",
        )
        for one in MECHANISMS
    ),
    *OAUTH_KEYS,
)
SASL_NAMES: Final = frozenset(key.name for key in KAFKA_SASL_KEYS)


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How clients of a listener may log in; `mechanisms` in the order of the settings.

    `passwords` are PLAIN's, by user; `oauth` is for OAUTHBEARER, if that is one of them.  `session_s_max` is after how
    long clients have to log in anew, by mechanism; not in there: never.
    """

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(repr=False)
    token_bytes_max: int
    failure_delay_s: float
    oauth: OAuthSettings | None = None
    session_s_max: Mapping[str, float] = field(default_factory=dict)


def kafka_sasl(listener: str, look_up: Lookup) -> SaslSettings:
    """Read the settings of one listener.

    Raises:
        ConfigError: they ask for something that the server does not have, or are incomplete.
    """
    given = look_up("sasl.enabled.mechanisms")
    mechanisms = tuple(one.strip().upper() for one in given.text.split(",") if one.strip())
    for one in mechanisms:
        if one not in MECHANISMS:
            raise ConfigError(
                f"{given.name} has {one[:100]}, which is not served: {', '.join(MECHANISMS)} are"
            )
    if not mechanisms:
        raise ConfigError(
            f"listener {listener} asks for SASL, and nothing says how clients may log in: set"
            f" sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}"
        )
    return SaslSettings(
        mechanisms,
        _users(listener, look_up) if PLAIN in mechanisms else {},
        int(look_up("sasl.server.max.receive.size").text),
        int(look_up("connection.failed.authentication.delay.ms").text) / 1000,
        kafka_oauth(listener, look_up) if OAUTHBEARER in mechanisms else None,
        {one: session_ms / 1000 for one in mechanisms if (session_ms := _session_ms(one, look_up))},
    )


def _session_ms(mechanism: str, look_up: Lookup) -> int:
    return int(look_up(f"{mechanism.lower()}.{_SESSION}").text or look_up(_SESSION).text)


def _users(listener: str, look_up: Lookup) -> dict[str, str]:
    """PLAIN's users; there may be none if clients can log in with tokens by PLAIN."""
    given = look_up(PLAIN_USERS)
    if not given.text:
        if takes_tokens(lambda key: look_up(key).text):
            return {}
        raise ConfigError(
            f"listener {listener} takes PLAIN and has no users: set"
            f" listener.name.{listener.lower()}.{PLAIN_USERS}, or let clients show tokens: authenticationEnabled"
        )
    said = jaas_options(given.name, given.text, _PLAIN_MODULE)
    users = {name.removeprefix(_USER): password for name, password in said.items() if name.startswith(_USER)}
    # Neither could ever log in: the protocol has no such name and no such password.
    if any(not one or "\0" in one for pair in users.items() for one in pair):
        raise ConfigError(f"{given.name} has a user without a name or a password")
    return users

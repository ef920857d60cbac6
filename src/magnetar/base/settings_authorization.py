"""Settings of authorization, by Kafka's and Pulsar's own keys; both turn on the same rules.

A key of either turns it on.  Keys that contradict each other are a ConfigError: if an operator closes one door, the
other one must not stay open.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.server_key import ServerKey

AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
PROVIDER: Final = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"


def _one_of(*names: str) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        return None if value in names or not value else f"can only be {' or '.join(names)}"

    return check


def _users(value: Value) -> str | None:
    bad = [one for one in _split(str(value or "")) if not all(one.partition(":")[::2])]
    return "must be users as User:alice, with semicolons between them" if bad else None


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(";") if one.strip()]


AUTHORIZATION_KEYS: Final = (
    ServerKey(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        "Turns authorization on, by Kafka's name: its StandardAuthorizer, or the older AclAuthorizer.",
        check=_one_of(*AUTHORIZERS),
    ),
    ServerKey(
        "super.users",
        ConfigType.STRING,
        "",
        "Users who may do everything, as Kafka writes them: User:admin;User:operator.",
        check=_users,
    ),
    ServerKey(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        "false",
        "Whether every client may do what no rule is about.",
    ),
    ServerKey(
        "authorizationEnabled",
        ConfigType.BOOLEAN,
        "false",
        "Turns authorization on, by Pulsar's name.",
    ),
    ServerKey(
        "authorizationProvider",
        ConfigType.STRING,
        PROVIDER,
        "Pulsar's authorization provider; there is this one.",
        check=_one_of(PROVIDER),
    ),
    ServerKey(
        "superUserRoles",
        ConfigType.LIST,
        "",
        "Roles that may do everything, as Pulsar writes them: admin,operator.",
    ),
    ServerKey(
        "authorizationAllowWildcardsMatching",
        ConfigType.BOOLEAN,
        "false",
        "Whether `*` at the beginning or end of a role, in a grant of Pulsar's tools, matches any text: "
        "app-*, *-job.",
    ),
)
AUTHORIZATION_NAMES: Final = frozenset(key.name for key in AUTHORIZATION_KEYS)


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """`super_users` are `kind:name`."""

    super_users: frozenset[str]
    open_without_rules: bool = False
    with_wildcards: bool = False


def authorization(given: Mapping[str, str], roles: tuple[str, ...]) -> AuthorizationSettings | None:
    """Read the given keys; None when authorization is off.  `roles` are `superUserRoles`.

    Raises:
        ConfigError: they contradict each other.
    """
    authorizer, enabled = given.get("authorizer.class.name"), given.get("authorizationEnabled")
    if authorizer and enabled == "false":
        raise ConfigError(
            "authorizer.class.name turns authorization on and authorizationEnabled=false turns it off: keep one of them"
        )
    if authorizer == "" and enabled == "true":
        raise ConfigError(
            "authorizationEnabled=true turns authorization on and an empty authorizer.class.name turns it off: keep one"
            " of them"
        )
    if not authorizer and enabled != "true":
        return None
    is_open = given.get("allow.everyone.if.no.acl.found") == "true"
    if is_open and enabled == "true":
        raise ConfigError(
            "allow.everyone.if.no.acl.found=true allows what no rule is about and authorizationEnabled=true denies it:"
            " keep one of them"
        )
    by_kafka = frozenset(_split(given.get("super.users", "")))
    by_pulsar = frozenset(f"User:{role}" for role in roles)
    if by_kafka and by_pulsar and by_kafka != by_pulsar:
        raise ConfigError(
            "super.users and superUserRoles name different users: let them say the same, or keep one"
        )
    wildcards = given.get("authorizationAllowWildcardsMatching") == "true"
    return AuthorizationSettings(by_kafka | by_pulsar, is_open, wildcards)

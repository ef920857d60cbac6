"""Settings of delegation tokens (KIP-48), by Kafka's own keys.  Without the secret key there are none."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

SECRET_KEY: Final = "delegation.token.secret.key"  # noqa: S105  the name of a key
_LIFETIME: Final = "delegation.token.max.lifetime.ms"
_PERIOD: Final = "delegation.token.expiry.time.ms"
_INTERVAL: Final = "delegation.token.expiry.check.interval.ms"

DELEGATION_KEYS: Final = (
    ServerKey(
        SECRET_KEY,
        ConfigType.PASSWORD,
        "",
        "The secret from which the server makes delegation tokens: a long random text. After a change no "
        "client can log in with an existing token.",
        default_words="there are no delegation tokens",
    ),
    ServerKey(
        _LIFETIME,
        ConfigType.LONG,
        "604800000",
        "How long a delegation token lives at most, however often it is renewed.",
        minimum=1,
    ),
    ServerKey(
        _PERIOD,
        ConfigType.LONG,
        "86400000",
        "After how long a delegation token expires unless it is renewed, and for how long it can be renewed at once.",
        minimum=1,
    ),
    ServerKey(
        _INTERVAL,
        ConfigType.LONG,
        "3600000",
        "How often the server removes expired delegation tokens; clients cannot log in with them before "
        "that, either.",
        minimum=1,
    ),
)


@dataclass(frozen=True, slots=True)
class DelegationTokenSettings:
    """Without a `secret_key` there are no delegation tokens; after `period_ms` a client has to renew one."""

    secret_key: str = field(default="", repr=False)
    lifetime_ms_max: int = 604_800_000
    period_ms: int = 86_400_000
    check_interval_ms: int = 3_600_000


def delegation_tokens(
    text: Callable[[str], str],
    integer: Callable[[str], int],
    notice: Callable[[Collection[str], str], None],
) -> DelegationTokenSettings:
    """Read the keys with `text` and `integer`.  `notice` gets the keys that have no effect."""
    secret_key = text(SECRET_KEY)
    if not secret_key:
        notice({_LIFETIME, _PERIOD, _INTERVAL}, f"{SECRET_KEY} is not set")
    return DelegationTokenSettings(secret_key, integer(_LIFETIME), integer(_PERIOD), integer(_INTERVAL))

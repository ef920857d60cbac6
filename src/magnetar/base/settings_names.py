"""Which key the name of a setting stands for, and the canonical form of its text."""

from typing import Final

from magnetar.base.config import ConfigKey, ConfigType, closest, format_value
from magnetar.base.errors import ConfigError
from magnetar.base.masking import HIDDEN
from magnetar.base.plugins import PROTOCOLS, installed
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_ignored import IGNORED_KEYS, IGNORED_PREFIXES
from magnetar.base.settings_listener import own_key
from magnetar.base.settings_table import ALIASES, SERVER_KEYS

_COUNT: Final = ConfigKey("count", ConfigType.LONG, None, "A number of some unit.")


def find(name: str, origin: str) -> tuple[ServerKey, int]:
    """The key with one of its names, and the factor of the unit in that name.

    Raises:
        ConfigError: there is none.
    """
    key = SERVER_KEYS.get(name)
    if key is not None:
        return key, 1
    if name in ALIASES:
        return ALIASES[name]
    meant = closest(name, [*SERVER_KEYS, *ALIASES, *IGNORED_KEYS])
    hint = f"did you mean {meant}?" if meant is not None else "see `magnetar config list`"
    raise ConfigError(f"{origin}: unknown key {name[:200]!r}: {hint}")


def door_option(name: str) -> tuple[str, str] | None:
    """The protocol of another package to which a key belongs, and the key's name there."""
    protocol, dot, key = name.partition(".")
    return (protocol, key) if dot and protocol in installed(PROTOCOLS) else None


def ignored(name: str) -> str | None:
    """Why a key of Kafka or KoP has no effect; None for any other key."""
    if name in IGNORED_KEYS:
        return IGNORED_KEYS[name]
    place = own_key(name)
    if place is not None:
        known = max((one for one in IGNORED_KEYS if name.endswith(f".{one}")), key=len, default="")
        reason = IGNORED_KEYS.get(known)
        if reason is not None or ".ssl." in name or ".sasl." in name:
            return reason  # a misspelt one must not leave a listener open
    return next((reason for prefix, reason in IGNORED_PREFIXES.items() if name.startswith(prefix)), None)


def canonical(key: ServerKey, unit: int, name: str, text: str, origin: str) -> str:
    """The value as it is written canonically, in the unit of the key itself.

    Raises:
        ConfigError: it is not one of this key.
    """
    try:
        if unit != 1:
            count = _COUNT.parse(text)
            assert isinstance(count, int)
            text = str(count * unit if count > 0 else count)  # -1 has its meaning in every unit
        return format_value(key.parse(text)) or ""
    except ValueError as error:
        shown = HIDDEN if is_password(key.name) else repr(text[:200])
        raise ConfigError(f"{origin}: {name} {error}, not {shown}") from None


def is_password(name: str) -> bool:
    """Whether the value of a key is never to be shown."""
    return SERVER_KEYS[name].type is ConfigType.PASSWORD

"""What configurations of all kinds have in common.  Every function raises a ConfigError of one sentence, which names
the key.
"""

from collections.abc import Mapping
from typing import Any, Final

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError

TRIGGER: Final = "1 second"
_UNITS_S: Final = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


def check_keys(config: Mapping[str, Any], known: Mapping[str, bool], where: str = "config") -> None:
    """Check the keys of `config` against `known`, {key: whether it is required}; raises ConfigError."""
    for key in config:
        if key not in known:
            meant = closest(str(key), known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(known))}"
            raise ConfigError(f"{where} has no key {str(key)[:100]!r}: {hint}")
    for key, must in known.items():
        if must and key not in config:
            raise ConfigError(f"{where} needs the key {key}")


def text_at(config: Mapping[str, Any], key: str, default: str | None = None, where: str = "config") -> str:
    """A text that is not empty; raises ConfigError."""
    value = config.get(key, default)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{key} of {where} must be a text")
    return value


def options_at(config: Mapping[str, Any], key: str, reserved: Mapping[str, str]) -> dict[str, str]:
    """Options of a reader or writer, in Spark's form: names and texts.  Numbers and booleans become texts.

    `reserved` are names that a user cannot set, {in small letters: why}.
    """
    given = config.get(key)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} must be an object of options")
    options: dict[str, str] = {}
    for name, value in given.items():
        why = reserved.get(str(name).lower())
        if why is not None:
            raise ConfigError(f"the option {name} of {key} cannot be given: {why}")
        if isinstance(value, bool):
            options[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            options[name] = str(value)
        else:
            raise ConfigError(f"the option {name} of {key} must be a text, a number, true or false")
    return options


def seconds_of(trigger: str) -> float:
    """How long an interval is that `trigger_at` has let through."""
    number, _, unit = trigger.strip().partition(" ")
    return int(number) * _UNITS_S[unit.strip().lower().removesuffix("s")]


def trigger_at(config: Mapping[str, Any]) -> str:
    """`trigger`, how often a batch starts, in the form of Spark's intervals: `1 second` (the default), `10 minutes`."""
    value = text_at(config, "trigger", TRIGGER)
    number, _, unit = value.strip().partition(" ")
    if not number.isdecimal() or unit.strip().lower().removesuffix("s") not in _UNITS_S:
        raise ConfigError(
            f"trigger must be an interval such as '{TRIGGER}' or '5 minutes', not {value[:100]!r}"
        )
    return value

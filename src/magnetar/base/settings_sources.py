"""Where settings come from: the environment, `--set key=value`, flags; each as (key, value, origin)."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError
from magnetar.base.settings_ignored import IGNORED_KEYS
from magnetar.base.settings_table import ALIASES, SERVER_KEYS

ENVIRONMENT_PREFIX: Final = "MAGNETAR_"
NOT_IN_ENVIRONMENT: Final = frozenset(
    ("advertisedListeners",)
)  # its variable is that of advertised.listeners


def environment_name(key: str) -> str:
    """`MAGNETAR_NUM_PARTITIONS` for `num.partitions`, `MAGNETAR_KAFKA_TENANT` for `kafkaTenant`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", key)
    return ENVIRONMENT_PREFIX + words.replace(".", "_").upper()


def assignment(text: str) -> tuple[str, str, str]:
    """(key, value, origin) of `--set key=value`.

    Raises:
        ConfigError: it has no key or no value.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {text[:200]!r} must be key=value")
    return name.strip(), value, f"--set {name.strip()[:200]}"


def flag_of(name: str) -> str:
    """The flag of a key that has one."""
    return "--" + name.replace(".", "-")


@cache
def _variables() -> Mapping[str, str]:
    """The key of each variable."""
    names = (*IGNORED_KEYS, *(name for name in ALIASES if name not in NOT_IN_ENVIRONMENT), *SERVER_KEYS)
    return {environment_name(name): name for name in names}


def from_environment(environment: Mapping[str, str], notices: list[str]) -> list[tuple[str, str, str]]:
    """(key, value, origin) of each variable that is a setting; of those that only look like one, a notice."""
    known = _variables()
    found = []
    for variable, value in sorted(environment.items()):
        # Kubernetes gives every pod MAGNETAR_KAFKA_PORT=tcp://10.0.0.1:9092 when a service is named
        # magnetar-kafka.
        if not variable.startswith(ENVIRONMENT_PREFIX) or value.startswith(("tcp://", "udp://")):
            continue
        if variable in known:
            found.append((known[variable], value, variable))
            continue
        # Not an error: other programs of this name, and tests, have variables of their own.
        meant = closest(variable, known)
        hint = f": did you mean {meant}?" if meant is not None else ""
        notices.append(f"{variable} in the environment is no setting{hint}")
    return found

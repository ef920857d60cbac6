"""The keys with which a server seals the secrets that it stores; it reads them once, at its start
(`base/settings_sealing.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from magnetar.base.commands import printed_by
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import KEY_BYTES_MAX, read_key
from magnetar.base.private import ensure_secret
from magnetar.base.settings_sealing import COMMAND, OLD_SECRETS_KEY, SECRETS_KEY, SealingSettings
from magnetar.broker.security.sealing import KEY_BYTES_MIN

NAME: Final = "secrets.key"
COMMAND_S_MAX: Final = 60.0


def sealing_keys(
    settings: SealingSettings, data_dir: Path, environment: Mapping[str, str]
) -> tuple[bytes, bytes]:
    """The key, and the previous key, which is empty if there is none.  Blocks.

    Raises:
        ConfigError: a key cannot be read, or is too short.
        OSError: the key's file in the data directory cannot be created.
    """
    own = data_dir / NAME
    if not settings.key:
        ensure_secret(own, KEY_BYTES_MIN)
    given = settings.key or own.absolute().as_uri()
    old = settings.old_key
    key = _read(SECRETS_KEY, given, environment)
    return key, _read(OLD_SECRETS_KEY, old, environment) if old else b""


def _read(setting: str, given: str, environment: Mapping[str, str]) -> bytes:
    if given.startswith(COMMAND):
        key = _printed(setting, given.removeprefix(COMMAND))
    else:
        key = read_key(setting, given, environment)
    key = key.strip()  # editors and programs add a line end
    if len(key) < KEY_BYTES_MIN:
        raise ConfigError(f"{setting}: a key has {KEY_BYTES_MIN} bytes at least, and this one has {len(key)}")
    return key


def _printed(setting: str, command: str) -> bytes:
    """The output of the operator's command.  No error has the output or the command in its text."""
    printed = printed_by(command, f"{setting}: the command", seconds_max=COMMAND_S_MAX)
    if len(printed) > KEY_BYTES_MAX:
        raise ConfigError(f"{setting}: the command printed more than {KEY_BYTES_MAX} bytes")
    return printed

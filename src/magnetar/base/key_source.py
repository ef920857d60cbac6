"""Keys of tokens and files of passwords as settings name them, in the ways that Pulsar knows.

* `file:///path`, or the path of a file: its bytes as they are
* `data:;base64,...`: the key itself; without `;base64` the text is the key
* `env:NAME`: what the environment has there, in any of the other ways
* anything else: the key in base64

Errors repeat only names of files and variables: any other text may be the key.
"""

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from magnetar.base.errors import ConfigError

KEY_BYTES_MAX: Final = 64 << 10
FILE_BYTES_MAX: Final = 4 << 20  # of passwords: those of tens of thousands of users

_DATA: Final = re.compile(r"data:[^;,]*(?:;charset=[^;,]+)?(?P<base64>;base64)?,(?P<data>.+)", re.DOTALL)
_FILE: Final = re.compile(r"file:(?://(?:localhost)?(?=/))?(?P<path>[^?#]+)")
_VARIABLE: Final = "env:"


def read_key(
    setting: str, given: str, environment: Mapping[str, str], bytes_max: int = KEY_BYTES_MAX
) -> bytes:
    """The key that `setting` stands for; a file has `bytes_max` at most.

    Raises:
        ConfigError: there is none.
    """
    file = key_file(setting, given, environment)
    key = (
        _in_setting(setting, _without_variable(setting, given, environment))
        if file is None
        else _read_file(setting, file, bytes_max)
    )
    if not key:
        raise ConfigError(f"{setting}: the key is empty")
    return key


def key_file(setting: str, given: str, environment: Mapping[str, str]) -> Path | None:
    """The file that `setting` names; None where the key stands in the setting, or in the environment.

    Raises:
        ConfigError: as `read_key`.
    """
    given = _without_variable(setting, given, environment)
    if given.startswith("file:"):
        url = _FILE.fullmatch(given)
        if url is None:
            raise ConfigError(f"{setting}: a file is written file:///path/of/the/key")
        return Path(os.fsdecode(unquote_to_bytes(url["path"])))
    return Path(given) if not given.startswith("data:") and _is_file(given) else None


def _without_variable(setting: str, given: str, environment: Mapping[str, str]) -> str:
    if not given.startswith(_VARIABLE):
        return given
    name = given[len(_VARIABLE) :]
    if not environment.get(name):
        raise ConfigError(f"{setting}: the environment has no {name[:200]!r}")
    return environment[name]


def _in_setting(setting: str, given: str) -> bytes:
    if not given.startswith("data:"):
        return _decoded(setting, given)
    data = _DATA.fullmatch(given)
    if data is None:
        raise ConfigError(f"{setting}: a key in a data: URL is written data:;base64,...")
    return _decoded(setting, data["data"]) if data["base64"] else unquote_to_bytes(data["data"])


def _is_file(given: str) -> bool:
    try:
        return Path(given).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def _read_file(setting: str, file: Path, bytes_max: int) -> bytes:
    shown = f"{str(file)[:200]!r}"
    try:
        # Not to wait where the file is a pipe, before it is known to be none.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(f"{setting}: {shown} is not a file")
            data = stream.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: {shown} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{setting}: {shown} is not the name of a file") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{setting}: {shown} has more than {bytes_max} bytes, which is too many")
    return data


def _decoded(setting: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{setting} is neither a file that is there nor a key in base64") from None

"""Names of files and folders, as users write them."""

import os
from pathlib import Path

from magnetar.base.errors import ConfigError


def absolute_path(where: str, text: str | os.PathLike[str]) -> Path:
    """What `text` names, seen from the current folder; it may begin in a user's home (`~`, `~alice`).

    Raises:
        ConfigError: it names nothing; the error begins with `where`.
    """
    name = os.fspath(text)
    try:
        path = Path(name).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"{where} {name[:200]!r}: there is no such user") from None
    if "\0" in name:
        raise ConfigError(f"{where} {name[:200]!r} is not the name of a file")
    return path

"""The secret by which a server knows the worker that runs its pipelines: a file that only its account can read.

The server makes `worker-token` in its data directory at its first start and keeps it.  Its own worker reads the token
there, and so does a worker that a user starts by hand on the same machine.  A user gives a worker on another machine a
copy.  The file is one line of 64 hexadecimal digits.
"""

from pathlib import Path
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.base.private import ensure_secret

NAME: Final = "worker-token"
_BYTES: Final = 32
_BYTES_MAX: Final = 1024


def ensure_token(path: Path) -> str:
    """The token in the file, which is made if it is not there, and kept from others.

    Raises:
        ConfigError: the file has something else in it.
        OSError
    """
    ensure_secret(path, _BYTES)
    return read_token(path)


def read_token(path: Path) -> str:
    """The token in a server's file; ConfigError when there is none that can be read."""
    hint = f"give a copy of {NAME} of the server's data folder with --token-file"
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX).strip()
    except OSError as error:
        raise ConfigError(f"the worker's token cannot be read ({path}: {error.strerror}): {hint}") from None
    if len(text) != 2 * _BYTES or not text.isalnum():
        raise ConfigError(f"{path} has no worker's token in it: {hint}")
    return text.decode("ascii", "replace")

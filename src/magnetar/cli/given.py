"""Texts that a user gives a command in a file, or by its input."""

import sys
from pathlib import Path

from magnetar.base.errors import ConfigError


def text_of_input(chars_max: int) -> str:
    """The command's input, up to `chars_max` characters and one more, which shows that there are more."""
    return sys.stdin.read(chars_max + 1)


def text_of_file(file: Path, chars_max: int) -> str:
    """As `text_of_input`, of a file.  Raises ConfigError if it is not text, and OSError."""
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.read(chars_max + 1)
    except ValueError:
        raise ConfigError(f"{file} is not text in UTF-8") from None

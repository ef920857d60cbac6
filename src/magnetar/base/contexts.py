"""Contexts: where a server is and how to log in there, under a name; the file that has some of them.

    current = "production"

    [contexts.production]
    url = "https://kafka.example.com:8443"       its HTTP address
    kafka = "kafka.example.com:9092"             where its Kafka clients connect; without it, port 9092 of that host
    ca = "/etc/magnetar/ca.pem"                  the authorities to trust; without it, those of the machine
    token-file = "/home/alice/magnetar.token"    a file with the token, or
    token-command = "pass show magnetar"         a command that prints it

No token is in it, only where one is.  `magnetar context` writes the user's own, a server with `--secure` another.
Relative names of files are those beside the context's file.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from magnetar.base.errors import ConfigError
from magnetar.base.paths import absolute_path
from magnetar.base.private import SECRET_FOLDER_MODE, sync_folder, write_secret

VARIABLE: Final = "MAGNETAR_CONTEXT"
NAME: Final = "contexts.toml"
FILE_BYTES_MAX: Final = 1 << 20

_KEYS: Final = ("url", "ca", "token-file", "token-command", "kafka")
_BROKERS: Final = re.compile(r"[^\s,@/]+:[0-9]{1,5}(,[^\s,@/]+:[0-9]{1,5})*")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Context:
    """A server, and what it is shown.  Of `token_file` and `token_command` one at most is not empty.

    `kafka` is `host:port,...`, empty for Kafka's own port of the host in `url`.
    """

    url: str
    ca: str = ""
    token_file: str = ""
    token_command: str = ""
    kafka: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            has_login = "@" in parts.netloc
            ok = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            ok = ok and parts.path in ("", "/") and not parts.query and not parts.fragment
        except ValueError:
            ok, has_login = False, "@" in self.url
        if has_login:  # not shown: it may be a password
            raise ConfigError("a url has no user and no password in it: a token is what a server is shown")
        if not ok:
            raise ConfigError(f"url {self.url[:200]!r} is no address such as https://localhost:8443")
        if self.token_file and self.token_command:
            raise ConfigError("a token comes from a file or from a command: keep one of them")
        if self.kafka and not _BROKERS.fullmatch(self.kafka):
            raise ConfigError("kafka is host:port, or several with commas, and nothing else")


@dataclass(frozen=True, slots=True)
class Contexts:
    """Those of a file, by name; `current` is the one that holds where none is named, empty for none."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str = ""

    def of(self, name: str, file: Path) -> Context:
        """The context of that name, or the current one.  Raises ConfigError."""
        wanted = name or self.current
        found = self.by_name.get(wanted)
        if found is not None:
            return found
        if not wanted:
            raise ConfigError(f"{file} has no current context: name one")
        there = ", ".join(sorted(self.by_name)) or "none"
        raise ConfigError(f"there is no context {wanted[:100]!r} in {file}: there is {there}")


def default_file(environment: Mapping[str, str]) -> Path:
    """Where the user's own contexts are."""
    home = environment.get("XDG_CONFIG_HOME", "")
    folder = Path(home) if home.startswith("/") else absolute_path("the home of this user", "~/.config")
    return folder / "magnetar" / NAME


def is_file_name(name: str) -> bool:
    """Whether a context is named by a file that has it, which is its current one."""
    return "/" in name or name.endswith(".toml")


def find_context(name: str, environment: Mapping[str, str]) -> Context | None:
    """The context that `name` stands for: a file, or one of the user's own contexts.  If `name` is empty, it is the
    user's current context, or None if there is no current one.

    Raises:
        ConfigError: there is none of that name, or its file cannot be read.
    """
    if is_file_name(name):
        file = absolute_path("the context", name)
        if not file.exists():
            raise ConfigError(f"there is no file of contexts {file}")
        return read_contexts(file).of("", file)
    file = default_file(environment)
    contexts = read_contexts(file)
    return contexts.of(name, file) if name or contexts.current else None


def read_contexts(file: Path) -> Contexts:
    """What is in a file; nothing where there is none.  Raises ConfigError."""
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{file} is larger than {FILE_BYTES_MAX} bytes")
    try:
        import tomllib  # what only commands read need not cost a server's start

        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    rows = document.get("contexts", {})
    current = document.get("current", "")
    unknown = [key for key in document if key not in ("contexts", "current")]
    if unknown or not isinstance(rows, dict) or not isinstance(current, str):
        raise ConfigError(f"{file} is no file of contexts: it has `current` and [contexts.NAME]")
    return Contexts({name: _context(file, name, row) for name, row in rows.items()}, current)


def write_contexts(file: Path, contexts: Contexts) -> None:
    """Replace a file of contexts, or make it, for this account alone.  Raises ConfigError, OSError."""
    text = contexts_text(contexts)
    file.parent.mkdir(mode=SECRET_FOLDER_MODE, parents=True, exist_ok=True)
    write_secret(file, text.encode())
    sync_folder(file.parent)


def contexts_text(contexts: Contexts) -> str:
    """What a file with these contexts has in it.  Raises ConfigError."""
    lines = [f"current = {_quoted(contexts.current)}"] if contexts.current else []
    for name, one in contexts.by_name.items():
        check_name(name)
        values = zip(_KEYS, (one.url, one.ca, one.token_file, one.token_command, one.kafka), strict=True)
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(value)}" for key, value in values if value]
    return "\n".join(lines).lstrip() + "\n"


def check_name(name: str) -> None:
    """Raises ConfigError: no context can have this name."""
    if not _NAME.fullmatch(name) or is_file_name(name):
        raise ConfigError(
            f"{name[:100]!r} is no name of a context: it has letters, digits, dots, dashes and underscores, and does"
            " not end with .toml"
        )


def _context(file: Path, name: str, row: Any) -> Context:
    if not isinstance(row, dict) or not all(
        key in _KEYS and isinstance(value, str) for key, value in row.items()
    ):
        raise ConfigError(
            f"{file}: context {name[:100]!r} has {', '.join(_KEYS)}, and their values are texts"
        )
    try:
        return Context(
            row.get("url", ""),
            _beside(file, row.get("ca", "")),
            _beside(file, row.get("token-file", "")),
            row.get("token-command", ""),
            row.get("kafka", ""),
        )
    except ConfigError as error:
        raise ConfigError(f"{file}: context {name[:100]!r}: {error}") from None


def _beside(file: Path, name: str) -> str:
    return os.path.join(file.parent, os.path.expanduser(name)) if name else ""


def _quoted(text: str) -> str:
    """A basic string of TOML, which is one of JSON but for a character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""How a client knows a server, and shows who it is: whose certificates are good, and the token.

A token comes from a file or from a command, when it is needed first, and again when the server refuses it: tokens end,
and others take their place.  A file is looked at every minute, too, so that a token which is replaced in time is never
refused.  Neither it nor what a command prints is part of any error.
"""

import os
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from magnetar.base.commands import printed_by
from magnetar.base.contexts import Context, find_context
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import KEY_BYTES_MAX, read_key

COMMAND_S_MAX: Final = 120.0  # it may ask its user for something
LOOK_EVERY_S: Final = 60.0
KAFKA_PORT_DEFAULT: Final = 9092
_FILE: Final = "file:"
_COMMAND: Final = "the token's command"


class Login:
    """`ca` is a file with the certificates to trust, empty for those of the machine.

    Of `token`, which may be `file:///path`, and `command` one at most is not empty.
    """

    def __init__(self, *, ca: str = "", token: str = "", command: str = "") -> None:
        self.ca = ca
        self._given = token
        self._command = command
        self._token: str | None = None
        self._read_s = 0.0

    @classmethod
    def of(cls, context: Context) -> Self:
        token = Path(context.token_file).as_uri() if context.token_file else ""
        return cls(ca=context.ca, token=token, command=context.token_command)

    @property
    def token(self) -> str:
        """The token, empty where there is none to show.  Raises ConfigError."""
        if self._token is None:
            self._token = self._read()
        elif self._given.startswith(_FILE) and time.monotonic() - self._read_s > LOOK_EVERY_S:
            with suppress(ConfigError):  # what was there before may be good for some time
                self._token = self._read()
        return self._token

    def has_another_token(self) -> bool:
        """Look again: whether there is another one than `token` was.  Raises ConfigError."""
        before, self._token = self._token, self._read()
        return self._token != before

    def trusting(self) -> ssl.SSLContext:
        """What connections are made with whose server has to have a good certificate.  Raises ConfigError."""
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            reason = error.strerror or "there is no certificate in it"
            raise ConfigError(f"the certificates to trust cannot be read from {self.ca}: {reason}") from None

    def _read(self) -> str:
        self._read_s = time.monotonic()
        where = "the token"
        text = self._given
        if self._command:
            where, text = "the token of the token's command", _printed(self._command)
        elif text.startswith(_FILE):
            text = read_key(where, text, {}).decode("ascii", "replace")
        token = text.strip()
        if (text and not token) or not token.isascii() or any(char.isspace() for char in token):
            raise ConfigError(f"{where} is none: one has no spaces, and letters of ASCII only")
        return token


class Server(NamedTuple):
    """Where a server is, as other processes may be told: its HTTP address, and the context that says how to log in.

    The context is the name of one or of a file; empty where the server asks for nothing.
    """

    url: str
    context: str = ""

    @classmethod
    def of(cls, context: str) -> "Server":
        """The one that a context is about.  Raises ConfigError."""
        found = find_context(context, os.environ)
        assert found is not None, "a context was named"
        return cls(found.url.rstrip("/"), context)

    def login(self) -> Login:
        """Raises ConfigError."""
        found = find_context(self.context, os.environ) if self.context else None
        return Login() if found is None else Login.of(found)

    def brokers(self) -> str:
        """Where its Kafka clients connect, `host:port,...`.  Raises ConfigError."""
        found = find_context(self.context, os.environ) if self.context else None
        return (found.kafka if found is not None else "") or brokers_at(self.url)


def brokers_at(url: str) -> str:
    """Kafka's own port of the host of another address of a server.  Raises ConfigError."""
    try:
        host = urlsplit(url.partition(",")[0]).hostname
    except ValueError:
        host = None
    if not host:
        raise ConfigError(f"{url[:200]!r} is no address of a server")
    return f"[{host}]:{KAFKA_PORT_DEFAULT}" if ":" in host else f"{host}:{KAFKA_PORT_DEFAULT}"


def _printed(command: str) -> str:
    """What a command of the user's own prints; a person may be asked for something at the terminal."""
    printed = printed_by(command, _COMMAND, seconds_max=COMMAND_S_MAX, may_ask=True)
    if not printed.strip() or len(printed) > KEY_BYTES_MAX:
        raise ConfigError(f"{_COMMAND} printed no token")
    return printed.decode("ascii", "replace")

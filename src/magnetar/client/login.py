"""How a client checks a server, and logs in: the trusted certificates, and the token.

A token comes from a file or a command.  It is read when it is first needed, and again when the server refuses it,
because tokens expire and are replaced.  A file is also read every minute, so that a token that is replaced in time is
never refused.  No error contains a token or the output of a command.
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

COMMAND_S_MAX: Final = 120.0  # the command may ask its user for something
LOOK_EVERY_S: Final = 60.0
KAFKA_PORT_DEFAULT: Final = 9092
_FILE: Final = "file:"
_COMMAND: Final = "the token's command"


class Login:
    """`ca` is a file with the trusted certificates, empty for those of the machine.

    At most one of `token`, which may be `file:///path`, and `command` is not empty.
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
        """The token; empty if there is none.  Raises ConfigError."""
        if self._token is None:
            self._token = self._read()
        elif self._given.startswith(_FILE) and time.monotonic() - self._read_s > LOOK_EVERY_S:
            with suppress(ConfigError):  # the previous token may still be valid
                self._token = self._read()
        return self._token

    def has_another_token(self) -> bool:
        """Read the token again; returns whether it has changed.  Raises ConfigError."""
        before, self._token = self._token, self._read()
        return self._token != before

    def trusting(self) -> ssl.SSLContext:
        """The TLS context for connections to servers with a trusted certificate.  Raises ConfigError."""
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
    """A server, in a form for other processes: its HTTP address, and the context with which to log in.

    The context is a name or a file; empty if the server requires no login.
    """

    url: str
    context: str = ""

    @classmethod
    def of(cls, context: str) -> "Server":
        """The server of a context.  Raises ConfigError."""
        found = find_context(context, os.environ)
        assert found is not None, "a context was named"
        return cls(found.url.rstrip("/"), context)

    def login(self) -> Login:
        """The login of the server's context.  Raises ConfigError."""
        found = find_context(self.context, os.environ) if self.context else None
        return Login() if found is None else Login.of(found)

    def kafka_addresses(self) -> str:
        """The addresses for Kafka clients, `host:port,...`.  Raises ConfigError."""
        found = find_context(self.context, os.environ) if self.context else None
        return (found.kafka if found is not None else "") or kafka_address_at(self.url)


def kafka_address_at(url: str) -> str:
    """The host of a server's URL with Kafka's default port.  Raises ConfigError."""
    try:
        host = urlsplit(url.partition(",")[0]).hostname
    except ValueError:
        host = None
    if not host:
        raise ConfigError(f"{url[:200]!r} is no address of a server")
    return f"[{host}]:{KAFKA_PORT_DEFAULT}" if ":" in host else f"{host}:{KAFKA_PORT_DEFAULT}"


def _printed(command: str) -> str:
    """The output of the user's command, which may ask for input at the terminal.  Raises ConfigError."""
    printed = printed_by(command, _COMMAND, seconds_max=COMMAND_S_MAX, may_ask=True)
    if not printed.strip() or len(printed) > KEY_BYTES_MAX:
        raise ConfigError(f"{_COMMAND} printed no token")
    return printed.decode("ascii", "replace")

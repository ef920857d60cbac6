"""How a client knows a server, and shows who it is: whose certificates are good, and the token.

A token comes from a file or from a command, when it is needed first, and again when the server refuses it: tokens end,
and others take their place.  Neither it nor what a command prints is part of any error.
"""

import os
import ssl
import subprocess
from pathlib import Path
from typing import Final, NamedTuple, Self

from magnetar.base.contexts import Context, find_context
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import KEY_BYTES_MAX, read_key

COMMAND_S_MAX: Final = 120.0  # it may ask its user for something


class Login:
    """`ca` is a file with the certificates to trust, empty for those of the machine.

    Of `token`, which may be `file:///path`, and `command` one at most is not empty.
    """

    def __init__(self, *, ca: str = "", token: str = "", command: str = "") -> None:
        self.ca = ca
        self._given = token
        self._command = command
        self._token: str | None = None

    @classmethod
    def of(cls, context: Context) -> Self:
        token = Path(context.token_file).as_uri() if context.token_file else ""
        return cls(ca=context.ca, token=token, command=context.token_command)

    @property
    def token(self) -> str:
        """The token, empty where there is none to show.  Raises ConfigError."""
        if self._token is None:
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
        where = "the token"
        text = self._given
        if self._command:
            where, text = "the token of the token's command", _printed(self._command)
        elif text.startswith("file:"):
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


def _printed(command: str) -> str:
    """What a command of the user's own prints; a person may be asked for something at the terminal."""
    try:
        done = subprocess.run(  # noqa: S602 - a line for the shell, as its user wrote it
            command, shell=True, stdout=subprocess.PIPE, timeout=COMMAND_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the token's command has not ended after {COMMAND_S_MAX:g} s") from None
    if done.returncode:
        raise ConfigError(f"the token's command failed with exit code {done.returncode}")
    if not done.stdout.strip() or len(done.stdout) > KEY_BYTES_MAX:
        raise ConfigError("the token's command printed no token")
    return done.stdout.decode("ascii", "replace")

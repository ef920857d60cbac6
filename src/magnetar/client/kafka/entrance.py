"""TLS and login of a new connection: by PLAIN with a token, as KoP's brokers accept it.

The token of a pipeline's query has a mechanism of its own (`base/job_token.py`).
"""

import socket
import ssl
from typing import Final, NamedTuple, Self

from magnetar.base.job_token import MECHANISM, is_pipeline_token
from magnetar.client.kafka.errors import ConnectionLost, KafkaClientError
from magnetar.client.login import Login, Server

PLAIN: Final = "PLAIN"
_USER: Final = "token"  # brokers use the role in the token, and need some name


class Shown(NamedTuple):
    """The mechanism of a login, and its only message."""

    mechanism: str
    message: bytes


class Entrance:
    """TLS and login by a context: brokers use TLS if its address is https, and require a login if it has a token."""

    def __init__(self, login: Login, *, with_tls: bool) -> None:
        """Raises ConfigError if the trusted certificates cannot be read."""
        self._login = login
        self._trusting = login.trusting() if with_tls else None

    @classmethod
    def of(cls, context: str) -> Self:
        """The entrance for a context, given by name or file.  Raises ConfigError."""
        server = Server.of(context)
        return cls(server.login(), with_tls=server.url.startswith("https:"))

    def secured(self, connected: socket.socket, host: str) -> socket.socket:
        """The connection with TLS, if the brokers use it; otherwise the same one.

        Raises:
            KafkaClientError: the broker's certificate is not trusted.
            OSError: TLS fails for another reason.
        """
        if self._trusting is None:
            return connected
        try:
            return self._trusting.wrap_socket(connected, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise KafkaClientError(f"the certificate of {host} is not good: {error.verify_message}") from None

    @property
    def shown(self) -> Shown | None:
        """The login; None if the brokers require none.  Raises ConfigError."""
        token = self._login.token
        if is_pipeline_token(token):
            return Shown(MECHANISM, token.encode())
        return Shown(PLAIN, f"\0{_USER}\0token:{token}".encode()) if token else None

    def refused(self, address: object, reason: str) -> KafkaClientError:
        """The error of a refused login: ConnectionLost, so that the caller tries again, if there is a new token by
        now.
        """
        what = f"{address} refuses the token of the context: {reason}"
        return ConnectionLost(what) if self._login.has_another_token() else KafkaClientError(what)

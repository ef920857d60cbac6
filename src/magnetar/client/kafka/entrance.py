"""What a broker asks of a new connection: TLS, and a login by PLAIN with a token, as KoP's brokers take it.

What a pipeline's query shows has a mechanism of its own (`base/pipeline_token.py`).
"""

import socket
import ssl
from typing import Final, NamedTuple, Self

from magnetar.base.pipeline_token import MECHANISM, is_pipeline_token
from magnetar.client.kafka.errors import ConnectionLost, KafkaClientError
from magnetar.client.login import Login, Server

PLAIN: Final = "PLAIN"
_USER: Final = "token"  # brokers go by the role in the token, and want some name


class Shown(NamedTuple):
    """How a client logs in, and the only message of that."""

    mechanism: str
    message: bytes


class Entrance:
    """As a context says it: with an https address brokers speak TLS, and with a token they ask for it."""

    def __init__(self, login: Login, *, with_tls: bool) -> None:
        """Raises ConfigError: the certificates to trust cannot be read."""
        self._login = login
        self._trusting = login.trusting() if with_tls else None

    @classmethod
    def of(cls, context: str) -> Self:
        """Raises ConfigError."""
        server = Server.of(context)
        return cls(server.login(), with_tls=server.url.startswith("https:"))

    def secured(self, connected: socket.socket, host: str) -> socket.socket:
        """The connection as it is used from now on.

        Raises:
            KafkaClientError: the broker's certificate is not good.
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
        """None where nothing is to be shown.  Raises ConfigError."""
        token = self._login.token
        if is_pipeline_token(token):
            return Shown(MECHANISM, token.encode())
        return Shown(PLAIN, f"\0{_USER}\0token:{token}".encode()) if token else None

    def refused(self, address: object, reason: str) -> KafkaClientError:
        """What a refusal comes to: with another token than the one that was shown, it may be tried again."""
        what = f"{address} refuses the token of the context: {reason}"
        return ConnectionLost(what) if self._login.has_another_token() else KafkaClientError(what)

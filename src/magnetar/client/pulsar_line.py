"""One connection to a server that speaks Pulsar's protocol, for one thread: commands, answers, what comes unasked.

A caller asks one thing at a time.  Commands that come meanwhile and are no answer to it wait for `next`, in order.
Whenever the line reads, it answers pings, and shows its login anew if the server asks for it.
"""

import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.client.errors import ClientError
from magnetar.client.login import Login
from magnetar.wire.pulsar.commands import (
    FRAME_PADDING_BYTES,
    PROTOCOL_VERSION,
    UnknownCommand,
    frame_command,
    read_command,
)
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPong,
    ServerError,
)

ANSWER_S: Final = 10.0
WAIT_S: Final = 1.0
_METHOD: Final = "token"
_MESSAGE_BYTES_MAX: Final = 5 << 20  # what servers take unless they say otherwise
_READ_BYTES: Final = 1 << 20
_SIZE: Final = Struct(">I")
_PONG: Final = frame_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
_LOGIN: Final = frozenset((ServerError.AuthenticationError, ServerError.AuthorizationError))


class LineLost(ClientError):
    """The connection is of no use any more, or the server does not answer."""


class AskedInVain(ClientError):
    """The server answers with an error: its `code`, one of `ServerError`."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code

    @property
    def is_about_login(self) -> bool:
        """Whether the login is refused, or does not have the right."""
        return self.code in _LOGIN


class Said(NamedTuple):
    """A command of the server's, and the entry behind it, which only a MESSAGE has."""

    kind: "BaseCommand.Type"
    body: Any
    entry: memoryview


def connection_to(server: tuple[str, int], login: Login, *, with_tls: bool) -> socket.socket:
    """A connection for a `PulsarLine` to a host and port.

    Raises:
        LineLost: there is none.
        ConfigError: the certificates to trust cannot be read.
    """
    try:
        connected = socket.create_connection(server, ANSWER_S)
    except OSError as error:
        raise LineLost(error.strerror or str(error)) from None
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return login.trusting().wrap_socket(connected, server_hostname=server[0]) if with_tls else connected
    except OSError as error:
        connected.close()
        raise LineLost(f"no connection with TLS: {error}") from None
    except BaseException:
        connected.close()
        raise


class PulsarLine:
    """See the module's text.  `token` is what the line shows when it logs in, empty for no login."""

    def __init__(self, connected: socket.socket, client: str, token: Callable[[], str]) -> None:
        """Takes the socket over: `close` closes it."""
        self.socket = connected
        self._client = client
        self._token = token
        self._socket_waits(WAIT_S)
        self._read = bytearray()
        self._unasked: deque[Said] = deque()
        self._frame_bytes_max = _MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES
        self._requests = 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def log_in(self, proxied_to: str = "") -> None:
        """The first thing on a line.  `proxied_to` is the broker behind a proxy, `host:port`.

        Raises as `ask`.
        """
        connect = CommandConnect(client_version=self._client, protocol_version=PROTOCOL_VERSION)
        connect.feature_flags.supports_auth_refresh = True
        if proxied_to:
            connect.proxy_to_broker_url = proxied_to
        if token := self._token():
            connect.auth_method_name, connect.auth_data = _METHOD, token.encode()
        connected = self.ask(BaseCommand(type=BaseCommand.CONNECT, connect=connect), BaseCommand.CONNECTED)
        if connected.max_message_size > 0:
            self._frame_bytes_max = connected.max_message_size + FRAME_PADDING_BYTES

    def request_id(self) -> int:
        """The number of another request."""
        self._requests += 1
        return self._requests

    def send(self, command: BaseCommand) -> None:
        """Send a command and wait for nothing.  Raises LineLost."""
        self._write(frame_command(command))

    def ask(self, command: BaseCommand, answer: "BaseCommand.Type", request_id: int | None = None) -> Any:
        """The answer to a command, of this kind and, if that is given, with this number.

        Raises:
            AskedInVain: there is another one.
            LineLost: there is none.
            WireError: the server does not speak Pulsar's protocol.
        """
        self.send(command)
        give_up_at = time.monotonic() + ANSWER_S
        found: Said | None = None
        while found is None:
            if time.monotonic() > give_up_at:
                raise LineLost("the server does not answer")
            for said in self._arrived():
                is_answer = said.kind in (answer, BaseCommand.ERROR) and (
                    request_id is None or getattr(said.body, "request_id", request_id) == request_id
                )
                if found is None and is_answer:
                    found = said
                else:
                    self._unasked.append(said)
        if found.kind == BaseCommand.ERROR:
            raise AskedInVain(found.body.message, found.body.error)
        return found.body

    def next(self) -> Said | None:
        """What the server says unasked; None if that was nothing for a second.

        Raises:
            LineLost, WireError
        """
        if not self._unasked:
            self._unasked.extend(self._arrived())
        return self._unasked.popleft() if self._unasked else None

    @property
    def has_unasked(self) -> bool:
        """Whether `next` has something without reading."""
        return bool(self._unasked)

    @property
    def has_more(self) -> bool:
        """Whether `next` has something that the socket does not show: it has come already."""
        return bool(self._unasked) or (isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _arrived(self) -> list[Said]:
        """What one read brings, without what the line answers itself; nothing after a second."""
        try:
            more = self.socket.recv(_READ_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            raise LineLost(f"the connection is lost: {error}") from None
        if not more:
            raise LineLost("the server has closed the connection")
        self._read += more
        return [said for said in self._cut() if not self._answers(said)]

    def _cut(self) -> list[Said]:
        """The whole frames of what was read."""
        found: list[Said] = []
        at = 0
        while len(self._read) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._read, at)
            if size > self._frame_bytes_max:
                raise WireError(f"the server does not speak Pulsar's protocol: a frame of {size} bytes")
            end = at + _SIZE.size + size
            if end > len(self._read):
                break
            frame = memoryview(bytes(self._read[at + _SIZE.size : end]))
            at = end
            with contextlib.suppress(UnknownCommand):
                found.append(Said(*read_command(frame)))
        del self._read[:at]
        return found

    def _answers(self, said: Said) -> bool:
        if said.kind == BaseCommand.PING:
            self._write(_PONG)
        elif said.kind == BaseCommand.AUTH_CHALLENGE:
            shown = AuthData(auth_method_name=_METHOD, auth_data=self._token().encode())
            response = CommandAuthResponse(client_version=self._client, response=shown)
            self._write(frame_command(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=response)))
        else:
            return said.kind == BaseCommand.PONG
        return True

    def _write(self, frame: bytes) -> None:
        self._socket_waits(ANSWER_S)
        try:
            self.socket.sendall(frame)
        except OSError as error:
            raise LineLost(f"the connection is lost: {error}") from None
        finally:
            self._socket_waits(WAIT_S)

    def _socket_waits(self, seconds: float) -> None:
        with contextlib.suppress(OSError):
            self.socket.settimeout(seconds)

"""Whether a target refuses a login.  pulsar-client does not report that: it tries again until its time-out."""

import socket
import ssl
from struct import Struct
from typing import Final
from urllib.parse import urlsplit

from magnetar.base.errors import WireError
from magnetar.wire.pulsar.commands import PROTOCOL_VERSION, frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect, ServerError

ANSWER_S: Final = 5.0
_FRAME_BYTES_MAX: Final = 1 << 20
_SIZE: Final = Struct(">I")
_REFUSALS: Final = (ServerError.AuthenticationError, ServerError.AuthorizationError)


def refusal(url: str, token: str | None) -> str | None:
    """Why the first host of a service URL refuses the login; None if it does not, or does not answer."""
    parts = urlsplit(url.partition(",")[0])
    if parts.hostname is None or parts.port is None:
        return None
    connect = CommandConnect(client_version="magnetar-replicator", protocol_version=PROTOCOL_VERSION)
    if token is not None:
        connect.auth_method_name, connect.auth_data = "token", token.encode()
    try:
        with socket.create_connection((parts.hostname, parts.port), ANSWER_S) as plain:
            if parts.scheme == "pulsar+ssl":
                with ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname) as line:
                    return _answer(line, connect)
            return _answer(plain, connect)
    except (OSError, WireError):
        return None


def _answer(line: socket.socket, connect: CommandConnect) -> str | None:
    line.sendall(frame_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))
    with line.makefile("rb") as stream:
        head = stream.read(_SIZE.size)
        size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
        frame = stream.read(min(size, _FRAME_BYTES_MAX))
    kind, body, _ = read_command(memoryview(frame))
    return str(body.message) if kind == BaseCommand.ERROR and body.error in _REFUSALS else None

"""A connection that asks a server in Kafka's protocol, for requests that no client library makes as we need them."""

import socket
from collections.abc import Iterator
from struct import pack
from typing import Any, Final

from bench.process import RunFailed
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import asking

PATIENCE_S: Final = 60.0


class Connection:
    """One client's connection; its frames are cut out of what comes in."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def say(self, key: int, version: int, request: Any) -> None:
        parts: list[Any] = [encode_request_header(key, version, 1, "bench")]
        asking.load(key).encode_request(version, request, parts)
        body = b"".join(parts)
        self.socket.sendall(pack(">i", len(body)) + body)

    def frames(self) -> Iterator[bytes]:
        """What one read of the socket has completed, without sizes and correlation ids."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise RunFailed("the server has closed the connection")
        data = self._received + part
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            yield data[8:end]
            data = data[end:]
        self._received = data

    def call(self, key: int, version: int, request: Any) -> Any:
        """The answer to a request whose response header has no tags, when nothing else is under way."""
        self.say(key, version, request)
        while not (frames := list(self.frames())):
            pass
        return asking.load(key).decode_response(version, memoryview(frames[0]))

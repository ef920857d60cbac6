"""A TLS connection between a socket of the tests' own and a session that notes what it is told, and its clients."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.settings_connections import ConnectionRules
from magnetar.base.settings_tls import TlsSettings
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.server.certificates import Certificate
from magnetar.server.connection import Connection, ConnectionLimits
from magnetar.server.listeners import Connections
from magnetar.server.tls import (
    TlsConnection,
)
from magnetar.testing.certificates import Authority
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore


class Socket:
    """What the event loop's transport is to the connection; `room` is what the kernel takes."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.host = host
        self.protocol: TlsConnection
        self.room = 1 << 30
        self.taken = bytearray()
        self.waiting = bytearray()
        self.is_full = self.is_paused = self.is_closed = self.has_ended = False
        self.limits = (0, 0)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.host, 1234) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def write(self, data: bytes) -> None:
        self.waiting += data
        self.drain()
        if len(self.waiting) > self.limits[0] and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def drain(self) -> None:
        count = min(self.room, len(self.waiting))
        self.room -= count
        self.taken += self.waiting[:count]
        del self.waiting[:count]

    def take(self, count: int) -> None:
        """The client reads so much more."""
        self.room += count
        self.drain()
        if self.is_full and len(self.waiting) <= self.limits[1]:
            self.is_full = False
            self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Session:
    """Keeps what it receives, and does as it is told."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.buffer = memoryview(bytearray(100_000))
        self.received_bytes = bytearray()
        self.slow: list[bool] = []
        self.is_closed = False
        self.on_received: Callable[[], None] = lambda: None

    def get_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None:
        self.received_bytes += self.buffer[:count]
        self.on_received()

    def peer_is_slow(self, slow: bool) -> None:
        self.slow.append(slow)

    def closed(self) -> None:
        self.is_closed = True

    def finish(self) -> None: ...


class Client:
    """The other end."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def hear(self, socket: Socket) -> None:
        self.incoming.write(bytes(socket.taken))
        socket.taken.clear()

    def read(self, socket: Socket) -> bytes:
        """All that has come."""
        self.hear(socket)
        found = bytearray()
        while True:
            try:
                piece = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(found)
            if not piece:
                return bytes(found)
            found += piece


def admitting(clock: FakeClock, rules: ConnectionRules | None = None) -> Admission:
    """What lets connections in by `rules`; addresses have no quotas."""
    admission = Admission(clock, ClientQuotas(MemoryMetadataStore(), clock))
    if rules is not None:
        admission.govern(rules)
    return admission


class World:
    def __init__(
        self, authority: Authority, settings: TlsSettings, rules: ConnectionRules | None = None
    ) -> None:
        self.clock = FakeClock()
        self.authority = authority
        self.certificate = Certificate(settings)
        self.memory = MemoryBudget(64 << 20, self.clock)
        admission = admitting(self.clock, rules)
        self.connections = Connections(ConnectionLimits(), self.clock, self.memory, admission)
        self.sessions: list[Session] = []

    def accept(self, host: str = "10.0.0.1") -> Socket:
        def make(connection: Connection, number: int) -> Session:
            self.sessions.append(Session(connection))
            return self.sessions[-1]

        socket = Socket(host)
        socket.protocol = self.connections.tls_factory("SSL", make, self.certificate)()
        socket.protocol.connection_made(socket)  # type: ignore[arg-type]
        return socket

    def client(self) -> Client:
        return Client(ssl.create_default_context(cafile=str(self.authority.certificate)))

    async def shake_hands(self, socket: Socket, client: Client) -> None:
        for _ in range(4):
            try:
                client.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            else:
                break
            await self.say(socket, client.outgoing.read())
            client.hear(socket)
        await self.say(socket, client.outgoing.read())

    async def say(self, socket: Socket, data: bytes) -> None:
        """The client sends bytes; as a socket does, as long as they are taken."""
        while data and not socket.is_paused and not socket.is_closed:
            buffer = socket.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            socket.protocol.buffer_updated(count)
            data = data[count:]
            for _ in range(3):
                await asyncio.sleep(0)
        assert not data or socket.is_closed or socket.is_paused

    async def open(self) -> tuple[Socket, Client, Session]:
        socket, client = self.accept(), self.client()
        await self.shake_hands(socket, client)
        return socket, client, self.sessions[-1]

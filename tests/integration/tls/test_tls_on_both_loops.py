"""Slow readers and paused sessions over real sockets: on uvloop, as in the server, and on asyncio's own loop."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from magnetar.base.clock import SystemClock
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.server.certificates import Certificate
from magnetar.server.connection import WRITE_BUFFER_HIGH_BYTES, Connection, ConnectionLimits
from magnetar.server.listeners import Connections, bind
from magnetar.testing.certificates import Authority
from magnetar.testing.metadata import MemoryMetadataStore

from .secured import HOSTS

PART = bytes(range(256)) * 4096
PARTS = 40

both_loops = pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])


class Session:
    """Sends while its client takes it, and receives as it is told."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.buffer = memoryview(bytearray(1 << 20))
        self.received_bytes = 0
        self.parts_sent = 0
        self.is_slow = False
        self.rests = 0  # how often it still pauses when it has received something
        self.is_paused = False
        self.has_received = asyncio.Event()
        self.went_slow = asyncio.Event()
        self.has_closed = asyncio.Event()

    def send_on(self) -> None:
        while not self.is_slow and self.parts_sent < PARTS:
            self.parts_sent += 1
            self.connection.send([PART])

    def get_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None:
        assert not self.is_paused, "nothing was to be read"
        self.received_bytes += count
        self.has_received.set()
        if self.rests:
            self.rests -= 1
            self.is_paused = True
            self.connection.pause_reading()

    def peer_is_slow(self, slow: bool) -> None:
        self.is_slow = slow
        if slow:
            self.went_slow.set()
        else:
            self.send_on()

    def closed(self) -> None:
        self.has_closed.set()

    def finish(self) -> None: ...


class World:
    def __init__(self, authority: Authority) -> None:
        pem = Material("ssl.keystore.location", authority.issue("server", hosts=HOSTS).both)
        settings = TlsSettings(pem, pem, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3"))
        clock = SystemClock()
        self.memory = MemoryBudget(256 << 20, clock)
        admission = Admission(clock, ClientQuotas(MemoryMetadataStore(), clock))
        self.connections = Connections(ConnectionLimits(), clock, self.memory, admission)
        self.sessions: asyncio.Queue[Session] = asyncio.Queue()
        self._certificate = Certificate(settings)
        self._trust = ssl.create_default_context(cafile=str(authority.certificate))

    async def open(self) -> tuple[Session, ssl.SSLSocket]:
        def make(connection: Connection, number: int) -> Session:
            session = Session(connection)
            self.sessions.put_nowait(session)
            return session

        (listening,) = bind("127.0.0.1", 0)
        factory = self.connections.tls_factory("SSL", make, self._certificate)
        server = await asyncio.get_running_loop().create_server(factory, sock=listening)
        client = await asyncio.to_thread(self._connect, listening.getsockname()[1])
        session = await self.sessions.get()
        server.close()
        return session, client

    def _connect(self, port: int) -> ssl.SSLSocket:
        bare = socket.create_connection(("127.0.0.1", port), timeout=60)
        return self._trust.wrap_socket(bare, server_hostname=HOSTS[0])


def read_exactly(client: ssl.SSLSocket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = client.recv(1 << 16)
        assert piece
        found += piece
    return bytes(found)


def run(new_loop: Callable[[], Any], scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario)


@both_loops
def test_a_slow_reader_is_noticed_and_counted(new_loop: Callable[[], Any], authority: Authority) -> None:
    async def scenario() -> None:
        world = World(authority)
        session, client = await world.open()
        with client:
            session.send_on()
            await asyncio.wait_for(session.went_slow.wait(), 30)
            await asyncio.sleep(0)
            assert session.is_slow
            assert session.parts_sent < PARTS
            unsent = session.connection.unsent_bytes()
            assert WRITE_BUFFER_HIGH_BYTES - (1 << 20) < unsent <= WRITE_BUFFER_HIGH_BYTES + 2 * len(PART)
            assert world.memory.used >= unsent
            assert await asyncio.to_thread(read_exactly, client, PARTS * len(PART)) == PARTS * PART
            assert session.connection.unsent_bytes() == 0
        await asyncio.wait_for(session.has_closed.wait(), 30)
        assert world.memory.used == 0
        assert len(world.connections) == 0

    run(new_loop, scenario())


@both_loops
def test_a_paused_session_is_told_nothing(new_loop: Callable[[], Any], authority: Authority) -> None:
    async def scenario() -> None:
        world = World(authority)
        session, client = await world.open()
        with client:
            session.rests = 5
            sending = threading.Thread(target=client.sendall, args=(PARTS * PART,))
            sending.start()
            for round_number in range(5):
                await asyncio.wait_for(session.has_received.wait(), 30)
                assert session.is_paused
                held = session.received_bytes
                for _ in range(20):
                    await asyncio.sleep(0.01)
                assert session.received_bytes == held <= (round_number + 1) * len(session.buffer)
                session.is_paused = False
                session.has_received.clear()
                session.connection.resume_reading()
            while session.received_bytes < PARTS * len(PART):
                session.has_received.clear()
                await asyncio.wait_for(session.has_received.wait(), 30)
            await asyncio.to_thread(sending.join)
            session.connection.send([b"end"])
            session.connection.close()
            assert await asyncio.to_thread(read_exactly, client, 3) == b"end"
            assert await asyncio.to_thread(client.recv, 10) == b""
        await asyncio.wait_for(session.has_closed.wait(), 30)

    run(new_loop, scenario())

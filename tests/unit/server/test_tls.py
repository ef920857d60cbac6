"""TLS between a socket and a connection, with no socket: a client of Python's own `ssl` at the other end."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from magnetar.base.settings_connections import ConnectionRules, ListenerRules
from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.protocols.door import Buffer
from magnetar.server.certificates import Certificate
from magnetar.server.connection import WRITE_BUFFER_HIGH_BYTES
from magnetar.server.tls import (
    HANDSHAKE_S_MAX,
    RECORDS_AT_ONCE,
    TlsConnection,
)
from magnetar.server.tls_handshakes import CIPHERTEXT_BYTES, Handshakes
from magnetar.server.tls_records import PIECE_BYTES
from magnetar.testing.certificates import Authority
from magnetar.testing.clock import FakeClock
from tests.unit.server.tls_world import Client, Socket, World


@pytest.fixture(scope="module")
def tls_settings(authority: Authority) -> TlsSettings:
    pem = Material("ssl.keystore.location", authority.issue("server", hosts=["localhost"]).both)
    return TlsSettings(pem, pem, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3"))


@pytest.fixture
def world(authority: Authority, tls_settings: TlsSettings) -> World:
    return World(authority, tls_settings, ConnectionRules(ListenerRules(4), per_address_max=2))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_bytes_go_both_ways(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        client.tls.write(b"question" * 100_000)
        await world.say(socket, client.outgoing.read())
        assert session.received_bytes == b"question" * 100_000
        parts: list[Buffer] = [b"an", memoryview(bytearray(b"swer")), b"", b"!" * 300_000, b"end"]
        session.connection.send(parts)
        assert client.read(socket) == b"answer" + b"!" * 300_000 + b"end"
        assert session.slow == []

    run(scenario)


def test_a_paused_connection_is_told_nothing_of_what_has_come(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        session.buffer = session.buffer[:1000]
        session.on_received = session.connection.pause_reading
        client.tls.write(b"x" * 10_000)
        await world.say(socket, client.outgoing.read())
        assert len(session.received_bytes) == 1000
        assert socket.is_paused
        session.on_received = lambda: None
        session.connection.resume_reading()
        assert len(session.received_bytes) == 1000, "not in the middle of what the caller does"
        for _ in range(3):
            await asyncio.sleep(0)
        assert session.received_bytes == b"x" * 10_000
        assert not socket.is_paused

    run(scenario)


def test_many_small_records_take_many_passes_of_the_loop(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        for _ in range(RECORDS_AT_ONCE * 3 + 1):
            client.tls.write(b"x")
        words = client.outgoing.read()
        socket.protocol.get_buffer(-1)[: len(words)] = words
        socket.protocol.buffer_updated(len(words))
        seen = []
        for _ in range(5):
            seen.append((len(session.received_bytes), socket.is_paused))
            await asyncio.sleep(0)
        once = RECORDS_AT_ONCE
        end = (3 * once + 1, False)
        assert seen == [(once, True), (2 * once, True), (3 * once, True), end, end]

    run(scenario)


def test_a_client_that_takes_nothing_is_counted_whole_and_waits_as_it_was_given(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        socket.room = 100_000
        block = memoryview(bytearray(1 << 20))
        for _ in range(4):
            session.connection.send([block])
        assert session.slow == []
        session.connection.send([block])
        unsent = session.connection.unsent_bytes()
        assert session.slow == [True]
        assert abs(unsent + 100_000 - 5 * len(block)) < 10_000
        assert world.memory.used == unsent
        assert len(socket.waiting) <= 400_000, "what is encrypted is a copy, and only a step of it"
        found = b""
        for _ in range(200):
            socket.take(40_000)
            found += client.read(socket)
        assert len(found) == 5 * len(block)
        assert session.slow == [True, False]
        assert session.connection.unsent_bytes() == 0

    run(scenario)


def test_a_client_is_told_to_go_on_although_the_limits_shrank_meanwhile(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        world.memory.take(60 << 20)  # short: from here on 64 KiB count as much
        socket.room = 0
        session.connection.send([bytes(70_000)])
        session.connection.send([bytes(10)])
        assert session.slow == [True]
        while socket.waiting:
            socket.take(1000)
        assert session.slow == [True, False]
        assert len(client.read(socket)) == 70_010

    run(scenario)


def test_what_was_sent_leaves_before_the_connection_closes(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        socket.room = 0
        session.connection.send([bytes(2 << 20)])
        session.connection.close()
        session.connection.send([b"too late"])
        assert not socket.is_closed
        while not socket.is_closed:
            socket.take(100_000)
        socket.take(1 << 20)
        assert len(client.read(socket)) == 2 << 20
        assert client.tls.read(10) == b"", "the server has said goodbye"
        socket.protocol.connection_lost(None)
        assert session.is_closed
        assert len(world.connections) == 0

    run(scenario)


def test_a_client_that_says_goodbye_is_answered_and_closed(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        client.tls.write(b"last words")
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        await world.say(socket, client.outgoing.read())
        assert session.received_bytes == b"last words"
        assert socket.is_closed

    run(scenario)


def test_a_record_that_was_changed_on_its_way_ends_the_connection(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        client.tls.write(b"x" * 100)
        changed = bytearray(client.outgoing.read())
        changed[50] ^= 1
        await world.say(socket, bytes(changed))
        assert socket.is_closed
        assert session.received_bytes == b""

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len(caplog.records) == 1


def test_handshakes_have_places_and_give_them_back(world: World) -> None:
    async def scenario() -> None:
        first, second, third = (world.accept() for _ in range(3))
        assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, True)
        third.protocol.connection_lost(None)
        others = [world.accept(f"10.0.0.{index}") for index in (2, 3, 4)]
        assert [one.is_closed for one in others] == [False, False, True]
        assert world.connections.refused_count == 2
        assert len(world.connections) == 0, "none of them has shaken hands"
        first.protocol.connection_lost(None)
        fourth = world.accept()
        await world.shake_hands(fourth, world.client())
        assert len(world.connections) == 1
        assert len(world.connections.handshakes) == 3
        assert world.accept().is_closed, "a connection keeps the place of its handshake"
        fourth.protocol.connection_lost(None)
        assert not world.accept().is_closed

    run(scenario)


def test_a_handshake_ends_in_time(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        silent, slow = world.accept(), world.accept()
        client = world.client()
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        hello = client.outgoing.read()
        for position in range(int(HANDSHAKE_S_MAX)):
            assert not slow.is_closed
            await world.say(slow, hello[position : position + 1])
            world.clock.advance(1)
        assert silent.is_closed
        assert slow.is_closed
        for one in (silent, slow):
            one.protocol.connection_lost(None)
        assert len(world.connections.handshakes) == 0
        opened = await world.open()
        world.clock.advance(HANDSHAKE_S_MAX + 1)
        assert not opened[0].is_closed

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len(caplog.records) == 1
    assert "10.0.0.1 failed: the handshake was not over after 10 s" in caplog.text


def test_the_oldest_of_many_handshakes_gives_way(tls_settings: TlsSettings) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        places: list[tuple[str, str]] = []

        def take(*place: str) -> bool:
            places.append((place[0], place[1]))
            return True

        handshakes = Handshakes(clock, take, lambda *place: places.remove(place), 3)
        context = Certificate(tls_settings).context
        sockets = []
        for number in range(5):
            socket = Socket(f"10.0.0.{number}")
            socket.protocol = TlsConnection(None, context, handshakes)  # type: ignore[arg-type]
            socket.protocol.connection_made(socket)  # type: ignore[arg-type]
            sockets.append(socket)
        assert [one.is_closed for one in sockets] == [True, True, False, False, False]
        for one in sockets:
            one.protocol.connection_lost(None)
        assert places == []
        assert handshakes.failed_count == 2

    run(scenario)


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\x00\x00\x00\x15\x00\x12\x00\x03", b"\x16\x03\x01\xff\xff"],
)
def test_what_is_not_tls_is_said_once_and_the_client_told(
    world: World, caplog: pytest.LogCaptureFixture, words: bytes
) -> None:
    async def scenario() -> None:
        for _ in range(5):
            socket = world.accept()
            await world.say(socket, words)
            assert socket.has_ended
            await world.say(socket, bytes(CIPHERTEXT_BYTES * 2))  # not looked at
            assert socket.protocol._received.pending < 1000
            world.clock.advance(1)
            socket.protocol.connection_lost(None)
        assert world.sessions == []
        assert world.connections.handshakes.failed_count == 5

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len(caplog.records) == 1
    assert "10.0.0.1 failed" in caplog.text


def test_a_look_at_the_port_is_not_worth_a_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.accept().protocol.connection_lost(None)
        socket = world.accept()
        await world.say(socket, b"\x16\x03\x01")
        socket.protocol.connection_lost(ConnectionResetError())

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "TLS with 10.0.0.1 failed: it hung up in the handshake"
    ]


def test_a_stop_ends_handshakes(world: World) -> None:
    async def scenario() -> None:
        socket = world.accept()
        await world.connections.drain(1)
        assert socket.is_closed

    run(scenario)


def test_a_client_that_sends_no_more_still_gets_what_was_sent(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        socket.room = 0
        session.connection.send([bytes(2 << 20)])
        assert socket.protocol.eof_received(), "the socket stays open for it"
        while not socket.is_closed:
            socket.take(100_000)
        socket.take(1 << 20)
        assert len(client.read(socket)) == 2 << 20

    run(scenario)


def test_a_hello_that_would_keep_the_server_busy_is_not_looked_at(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        socket = world.accept()
        pieces = [
            b"\x16\x03\x01\x40\x00" + piece for piece in (b"\x01\x00\xff\xfc" + bytes(16380), bytes(16384))
        ]
        await world.say(socket, b"".join(pieces))
        assert socket.is_closed

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "10.0.0.1 failed: its first message is larger than 16384 bytes" in caplog.text


def test_what_a_paused_connection_has_received_is_not_in_the_memory_of_openssl(world: World) -> None:
    """It never gives back what it took."""

    async def scenario() -> None:
        socket, client, session = await world.open()
        session.buffer = session.buffer[:1000]
        session.on_received = session.connection.pause_reading
        client.tls.write(bytes(50_000))
        words = client.outgoing.read()
        socket.protocol.get_buffer(-1)[: len(words)] = words
        socket.protocol.buffer_updated(len(words))
        assert socket.protocol._received.pending <= PIECE_BYTES
        session.on_received = lambda: None
        session.connection.resume_reading()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(session.received_bytes) == 50_000
        assert socket.protocol._kept == b""

    run(scenario)


def test_high_water_is_that_of_connections_without_tls(world: World) -> None:
    async def scenario() -> None:
        socket, _, session = await world.open()
        socket.room = 0
        session.connection.send([bytes(WRITE_BUFFER_HIGH_BYTES - 1000)])
        assert session.slow == []
        session.connection.send([bytes(5000)])
        assert session.slow == [True]

    run(scenario)


def test_the_name_in_a_certificate_that_was_verified_is_the_connections(
    authority: Authority, tls_settings: TlsSettings
) -> None:
    async def scenario() -> None:
        trusted = Material("ssl.truststore.location", authority.certificate)
        asking = replace(tls_settings, trusted=trusted, client_certificates=ClientCertificates.REQUESTED)
        world = World(authority, asking)
        dave = authority.issue("dave", subject="/O=Magnetar/OU=People/CN=Dave")
        for issued, name in ((dave, "CN=Dave,OU=People,O=Magnetar"), (None, None)):
            context = ssl.create_default_context(cafile=str(authority.certificate))
            if issued is not None:
                context.load_cert_chain(issued.both)
            socket, client = world.accept(), Client(context)
            await world.shake_hands(socket, client)
            assert world.sessions[-1].connection.certificate_name == name
        other = await World(authority, tls_settings).open()
        assert other[2].connection.certificate_name is None

    run(scenario)

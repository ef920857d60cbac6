"""Many small records at once: OpenSSL gets them in pieces that end anywhere, and nothing of them waits or is lost."""

import asyncio
import random
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.server.tls import EMPTY_BYTES_MAX
from magnetar.server.tls_handshakes import CIPHERTEXT_BYTES
from magnetar.server.tls_records import PIECE_BYTES
from magnetar.testing.certificates import Authority
from tests.unit.server.tls_world import Client, Session, Socket, World

PASSES_MAX = 1000  # of the loop, in which a socket may be read again
BURSTS = ((1, 9), (300, 9), (2000, 1), (60, 1024), (3, 16_384))  # so many records, each with so many bytes


@pytest.fixture
def world(authority: Authority) -> World:
    pem = Material("ssl.keystore.location", authority.issue("server", hosts=["localhost"]).both)
    return World(authority, TlsSettings(pem, pem, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3")))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def opened(world: World, version: ssl.TLSVersion) -> tuple[Socket, Client, Session]:
    context = ssl.create_default_context(cafile=str(world.authority.certificate))
    context.maximum_version = version
    socket, client = world.accept(), Client(context)
    await world.shake_hands(socket, client)
    return socket, client, world.sessions[-1]


async def give(socket: Socket, data: bytes) -> None:
    """The socket receives all of it, and the connection has done what it can with it."""
    while data:
        buffer = socket.protocol.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        socket.protocol.buffer_updated(count)
        data = data[count:]
        for _ in range(PASSES_MAX):
            if not socket.is_paused:
                break
            await asyncio.sleep(0)
        assert not socket.is_paused
        assert not socket.is_closed


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("seed", range(8))
def test_each_record_is_told_as_soon_as_it_is_whole(world: World, seed: int, version: ssl.TLSVersion) -> None:
    async def scenario() -> None:
        chance = random.Random(seed)
        socket, client, session = await opened(world, version)
        session.buffer = session.buffer[: chance.choice((50, 3_000, 100_000))]
        data, words = bytearray(), bytearray()
        ends = [(0, 0)]  # of each record: in the words of the client, and in the data
        for _ in range(12):
            count, length = chance.choice(BURSTS)
            for _ in range(count):
                record = chance.randbytes(length)
                client.tls.write(record)
                data += record
                words += client.outgoing.read()
                ends.append((len(words), len(data)))
        at = whole = 0
        while at < len(words):
            count = chance.choice((1, 7, 1448, 20_000, CIPHERTEXT_BYTES))
            await give(socket, bytes(words[at : at + count]))
            at += count
            while whole + 1 < len(ends) and ends[whole + 1][0] <= at:
                whole += 1
            assert len(session.received_bytes) == ends[whole][1]
        assert session.received_bytes == data

    run(scenario)


def test_ends_are_followed_again_where_no_record_is_begun(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        for _ in range(1000):
            client.tls.write(b"123456789")
        words = client.outgoing.read()
        await give(socket, words[:28_000])
        assert 28_000 % (len(words) // 1000) != 0, "within a record"
        assert not socket.protocol._ends.are_followed
        await give(socket, words[28_000:])
        assert socket.protocol._ends.are_followed
        assert session.received_bytes == b"123456789" * 1000

    run(scenario)


def test_openssl_has_no_more_than_a_piece_of_them(world: World) -> None:
    async def scenario() -> None:
        socket, client, session = await world.open()
        session.on_received = session.connection.pause_reading
        for _ in range(EMPTY_BYTES_MAX // 31):
            client.tls.write(b"123456789")
        words = client.outgoing.read()
        socket.protocol.get_buffer(-1)[: len(words)] = words
        socket.protocol.buffer_updated(len(words))
        told = len(session.received_bytes)
        assert 0 < told < 9 * PIECE_BYTES // 31
        assert 0 < socket.protocol._received.pending < PIECE_BYTES
        assert len(socket.protocol._kept) == len(words) - PIECE_BYTES
        session.on_received = lambda: None
        session.connection.resume_reading()
        for _ in range(PASSES_MAX):
            await asyncio.sleep(0)
        assert session.received_bytes == b"123456789" * (EMPTY_BYTES_MAX // 31)

    run(scenario)

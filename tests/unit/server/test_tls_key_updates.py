"""Clients that go on and on with messages without data.  Python's `ssl` sends none: OpenSSL itself is the client."""

import asyncio
import ctypes
import ctypes.util

import pytest

from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.server.tls import ANSWERS_BYTES_MAX, EMPTY_BYTES_MAX
from magnetar.testing.certificates import Authority
from tests.unit.server.tls_world import Socket, World

_SSL, _CRYPTO = (ctypes.util.find_library(name) for name in ("ssl", "crypto"))
pytestmark = pytest.mark.skipif(_SSL is None or _CRYPTO is None, reason="there is no library of OpenSSL")
_BIO_CTRL_PENDING = 10
_BIO_SET_MEM_EOF_RETURN = 130


class OpenSsl:
    """A client of TLS 1.3 that looks at no certificate."""

    def __init__(self) -> None:
        assert _SSL is not None
        assert _CRYPTO is not None
        self.ssl, self.crypto = ctypes.CDLL(_SSL), ctypes.CDLL(_CRYPTO)
        for library, names in (
            (self.ssl, ("TLS_client_method", "SSL_CTX_new", "SSL_new")),
            (self.crypto, ("BIO_new", "BIO_s_mem")),
        ):
            for name in names:
                getattr(library, name).restype = ctypes.c_void_p
        context = self._pointer(self.ssl.SSL_CTX_new(self._pointer(self.ssl.TLS_client_method())))
        self.session = self._pointer(self.ssl.SSL_new(context))
        kind = self._pointer(self.crypto.BIO_s_mem())
        self.incoming, self.outgoing = (self._pointer(self.crypto.BIO_new(kind)) for _ in range(2))
        for one in (self.incoming, self.outgoing):
            self.crypto.BIO_ctrl(one, _BIO_SET_MEM_EOF_RETURN, ctypes.c_long(-1), None)
        self.ssl.SSL_set_bio(self.session, self.incoming, self.outgoing)
        self.ssl.SSL_set_connect_state(self.session)

    @staticmethod
    def _pointer(address: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(address)

    def words(self) -> bytes:
        """What it wants to send."""
        count = self.crypto.BIO_ctrl(self.outgoing, _BIO_CTRL_PENDING, ctypes.c_long(0), None)
        found = ctypes.create_string_buffer(count + 1)
        if count:
            self.crypto.BIO_read(self.outgoing, found, count)
        return found.raw[:count]

    async def shake_hands(self, world: World, socket: Socket) -> None:
        for _ in range(4):
            self.ssl.SSL_do_handshake(self.session)
            await world.say(socket, self.words())
            heard = bytes(socket.taken)
            socket.taken.clear()
            self.crypto.BIO_write(self.incoming, heard, len(heard))

    def new_keys(self) -> bytes:
        """A message that asks the server for new keys of its own, too."""
        assert self.ssl.SSL_key_update(self.session, 1) == 1
        assert self.ssl.SSL_do_handshake(self.session) == 1
        return self.words()

    def write(self, data: bytes) -> bytes:
        assert self.ssl.SSL_write(self.session, data, len(data)) == len(data)
        return self.words()


@pytest.fixture
def world(authority: Authority) -> World:
    pem = Material("ssl.keystore.location", authority.issue("server", hosts=["localhost"]).both)
    return World(authority, TlsSettings(pem, pem, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3")))


@pytest.mark.skipif(_SSL is None or _CRYPTO is None, reason="OpenSSL's libraries are not to be found")
@pytest.mark.parametrize(
    ("has_data", "reason"), [(False, "bytes came without data"), (True, "does not read them")]
)
def test_new_keys_without_end_end_the_connection(
    world: World, has_data: bool, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        socket, client = world.accept(), OpenSsl()
        await client.shake_hands(world, socket)
        assert len(world.connections) == 1
        socket.room = 0
        sent = 0
        while not socket.is_closed:
            words = b"".join(client.new_keys() for _ in range(500)) + (
                client.write(b"x") if has_data else b""
            )
            await world.say(socket, words)
            sent += len(words)
            assert sent <= 2 * (ANSWERS_BYTES_MAX if has_data else EMPTY_BYTES_MAX)
        assert len(socket.waiting) <= 2 * ANSWERS_BYTES_MAX

    asyncio.run(scenario())
    assert reason in caplog.text

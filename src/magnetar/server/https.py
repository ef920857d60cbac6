"""HTTP over TLS: the same `TlsConnection` as for the doors, before a protocol that receives bytes.

HTTP has its own places for handshakes: if the doors' clients have taken all of theirs, probes and the administrator
can still connect.  `admin/slots.py` limits open connections.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.server.certificates import Certificate
from magnetar.server.tls import TlsConnection
from magnetar.server.tls_handshakes import Handshakes

RECEIVE_BYTES: Final = 64 << 10


class Https:
    """Creates the connections of one port."""

    def __init__(self, certificate: Certificate, clock: Clock) -> None:
        self._certificate = certificate
        self.handshakes = Handshakes(clock, lambda *_: True, lambda *_: None)
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))

    def factory(self, make_protocol: Callable[[], asyncio.Protocol]) -> Callable[[], TlsConnection]:
        """The function that a listener calls for each accepted socket."""

        def make() -> TlsConnection:
            behind = _Bytes(make_protocol(), self._scratch)
            return TlsConnection(behind, self._certificate.context, self.handshakes)

        return make


class _Bytes:
    """Gives received data to a protocol as bytes."""

    def __init__(self, protocol: asyncio.Protocol, scratch: memoryview) -> None:
        self._scratch = scratch
        self._protocol = protocol
        self.connection_made = protocol.connection_made
        self.connection_lost = protocol.connection_lost
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._scratch[:nbytes]))

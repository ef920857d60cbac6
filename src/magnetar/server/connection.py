"""The socket side of a connection: it moves bytes, and tells the session if the peer is slow or has disconnected.

It receives directly into memory that the session names (`asyncio.BufferedProtocol`), and sends lists of buffers
without joining them.  The session knows what the bytes mean (`protocols/`).
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.distinguished_name import CERTIFICATE_NAME
from magnetar.base.memory_budget import MemoryBudget
from magnetar.protocols.door import Buffer, Session

log = logging.getLogger(__name__)

WRITE_BUFFER_HIGH_BYTES: Final = 4 << 20  # unsent bytes after which a peer counts as slow
WRITE_BUFFER_LOW_BYTES: Final = 1 << 20
SHORT_WRITE_BUFFER_HIGH_BYTES: Final = 64 << 10  # the same while memory is short
SHORT_WRITE_BUFFER_LOW_BYTES: Final = 16 << 10
FIRST_WORD_S_MAX: Final = 30.0  # as long as Pulsar's brokers wait for CONNECT; Kafka's clients send at once
UNSENT_BYTES_COUNTED: Final = (
    64 << 10
)  # fewer unsent bytes are not counted: the kernel gives a socket more memory than this
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)  # Linux
_ESTABLISHED: Final = 1  # tcpi_state, its first byte


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`connections_max` leaves enough of the process's open files to storage, so that it can always open its
    segments.

    `idle_s_max` is Kafka's `connections.max.idle.ms`.
    `first_word_s_max` is how long a client may take to send anything at all.
    """

    connections_max: int = 2**31 - 1
    idle_s_max: float = 600.0
    first_word_s_max: float = FIRST_WORD_S_MAX


def host_of(transport: asyncio.BaseTransport, end: str) -> str:
    """The address of one end of a connection (`peername`, `sockname`); empty if the kernel gives none."""
    name = transport.get_extra_info(end)
    return str(name[0]) if name else ""


class Connection(asyncio.BufferedProtocol):
    """One accepted socket; the peer that its session talks to."""

    def __init__(
        self,
        make_session: Callable[["Connection"], Session | None],
        forget: Callable[["Connection"], None],
        clock: Clock,
        limits: ConnectionLimits,
        memory: MemoryBudget,
    ) -> None:
        self._make_session = make_session
        self._memory = memory
        self._has_short_buffer = False
        self._forget = forget
        self._clock = clock
        self._limits = limits
        self._has_spoken = False
        self._transport: asyncio.Transport
        self._session: Session | None = None
        self._last_heard_s = clock.monotonic()
        self._idle_timer: TimerHandle | None = None
        self.client_host = ""
        self.local_host = ""  # the address that the client connected to
        self.certificate_name: str | None = None

    # --- asyncio's side ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.client_host = host_of(transport, "peername") or "unknown"
        self.local_host = host_of(transport, "sockname")
        self.certificate_name = transport.get_extra_info(CERTIFICATE_NAME)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_HIGH_BYTES, WRITE_BUFFER_LOW_BYTES)
        self._session = self._make_session(self)
        if self._session is None:
            self._transport.abort()
            return
        limits = self._limits
        first_s = min(limits.first_word_s_max, limits.idle_s_max or limits.first_word_s_max)
        self._idle_timer = self._clock.call_later(first_s, self._check_first_word)

    def get_buffer(self, sizehint: int) -> memoryview:
        session = self._session
        if session is None:
            return memoryview(bytearray(1))  # the connection was refused
        # Sessions replace `get_buffer` and `received` as attributes, so look them up as attributes, not as methods.
        get_buffer = session.get_buffer
        return get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        session = self._session
        if session is not None:
            self._last_heard_s = self._clock.monotonic()
            self._has_spoken = True
            received = session.received
            received(nbytes)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.peer_is_slow(True)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.peer_is_slow(False)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._memory.sent(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        session, self._session = self._session, None
        if session is not None:
            session.closed()
        self._forget(self)

    # --- the session's side ------------------------------------------------------------------------------------------

    def send(self, parts: list[Buffer]) -> None:
        transport = self._transport
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)
        unsent = transport.get_write_buffer_size()
        if unsent > UNSENT_BYTES_COUNTED and not transport.is_closing():
            self._memory.sending(self, unsent)
            self._fit_buffer()

    def _fit_buffer(self) -> None:
        """While memory is short, a peer counts as slow earlier, so sessions that can stop send it no more."""
        is_short = self._memory.is_short
        if is_short != self._has_short_buffer:
            self._has_short_buffer = is_short
            if is_short:
                self._transport.set_write_buffer_limits(
                    SHORT_WRITE_BUFFER_HIGH_BYTES, SHORT_WRITE_BUFFER_LOW_BYTES
                )
            else:
                self._transport.set_write_buffer_limits(WRITE_BUFFER_HIGH_BYTES, WRITE_BUFFER_LOW_BYTES)

    def unsent_bytes(self) -> int:
        """How many bytes were sent that the socket has not accepted yet."""
        return self._transport.get_write_buffer_size()

    def cut_off(self, reason: str) -> None:
        """Close at once, and drop the unsent bytes."""
        log.warning("closing connection from %s: %s", self.client_host, reason)
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def has_hung_up(self) -> bool:
        """Whether the peer has closed the connection, according to the kernel; False if the kernel gives no state."""
        if _TCP_INFO is None:
            return False
        try:
            state = self._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)
        except (OSError, ValueError):
            return True  # the transport has closed it
        return bool(state[0] != _ESTABLISHED)

    def close(self) -> None:
        """Send the queued bytes, then close.  The idle check cuts off a peer that accepts nothing."""
        self._transport.close()

    # --- the server's side -------------------------------------------------------------------------------------------

    def close_when_idle(self) -> None:
        """Stop gracefully: the session answers the requests in flight, then the connection closes."""
        if self._session is not None:
            self._transport.pause_reading()
            self._session.finish()

    def abort(self) -> None:
        self._transport.abort()

    def _check_first_word(self) -> None:
        if not self._has_spoken:
            log.info("closing connection from %s: the client has sent nothing", self.client_host)
            self._transport.abort()
        elif self._limits.idle_s_max > 0:
            self._check_idle()

    def _check_idle(self) -> None:
        idle_s = self._clock.monotonic() - self._last_heard_s
        if idle_s < self._limits.idle_s_max:
            self._idle_timer = self._clock.call_later(self._limits.idle_s_max - idle_s, self._check_idle)
            return
        log.info("closing connection from %s: the client has sent nothing for %d s", self.client_host, idle_s)
        self._transport.abort()

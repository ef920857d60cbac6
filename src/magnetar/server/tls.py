"""TLS between a socket and its connection: decrypts the received bytes, and encrypts those that the connection sends.

For the event loop a `TlsConnection` is the protocol of a socket; for a `Connection` it is the transport.  We do not
use asyncio's own TLS, because

* it reports a connection only after the handshake.  Here a connection in its handshake has a place among the open ones
  and a time limit, but no session yet;
* it encrypts all data at once and keeps the result, which our count of memory cannot see.  Here data that the socket
  does not accept yet stay unencrypted, without a copy, and `get_write_buffer_size` counts all of them;
* it still delivers decrypted data after `pause_reading`.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Protocol, cast

from magnetar.base.clock import TimerHandle
from magnetar.base.distinguished_name import CERTIFICATE_NAME, distinguished_name
from magnetar.base.turns import TURN_S
from magnetar.protocols.door import Buffer
from magnetar.server.connection import host_of
from magnetar.server.tls_handshakes import Handshakes
from magnetar.server.tls_records import PIECE_BYTES, RecordEnds

HANDSHAKE_S_MAX: Final = 10.0
# The most bytes from a client before the first answer: OpenSSL's work grows with the square of that message's length.
HELLO_BYTES_MAX: Final = 16 << 10
EMPTY_BYTES_MAX: Final = 64 << 10  # the most bytes in succession without data
ANSWERS_BYTES_MAX: Final = 1 << 20  # the most unsent answers to such messages: nothing else limits them
RECORD_BYTES: Final = 16 << 10  # the most that TLS encrypts as one piece
# In one pass of the loop.  A record may have one byte, and costs a call, 2 or 3 microseconds.  The client librdkafka
# sends two records for a message of 1 KiB, so that what is received at once has 120.
RECORDS_AT_ONCE: Final = 128
STEP_BYTES: Final = 256 << 10  # encrypted before the socket gets them
STEP_PART_BYTES: Final = 64 << 10  # taken from OpenSSL at once, for the same reason as with `PIECE_BYTES`
# Few encrypted bytes should wait in the socket's buffer, because they are a copy.  The low mark is the lowest that a
# connection sets for itself, so the socket always reports when the connection may continue.
ENCRYPTED_HIGH_BYTES: Final = 64 << 10
ENCRYPTED_LOW_BYTES: Final = 16 << 10


class _State(Enum):
    HANDSHAKE = "handshake"
    REFUSED = "refused"  # the client gets the reason, and the server ignores what it still sends
    OPEN = "open"
    CLOSING = "closing"  # the unsent bytes are sent, and nothing is received
    CLOSED = "closed"  # or will be, and sends nothing more


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's text, none of which comes from the client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good ({error.verify_message})"
    return (error.reason or "it broke off").lower().replace("_", " ")


class Decrypted(Protocol):
    """The protocol that gets the decrypted bytes: a `Connection`, or another one that receives into a buffer."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def buffer_updated(self, nbytes: int, /) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, error: Exception | None, /) -> None: ...


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """See the module's text."""

    def __init__(
        self, connection: Decrypted, context: ssl.SSLContext, handshakes: Handshakes, listener: str = ""
    ) -> None:
        asyncio.Transport.__init__(self)
        self.listener = listener
        self.client_host = ""
        self._connection = connection
        self._handshakes = handshakes
        self._kept = b""  # received, but not given to OpenSSL yet
        self._hello_bytes = 0
        self._has_answered = False
        self._empty_bytes = 0
        self._received = ssl.MemoryBIO()
        self._ends = RecordEnds()
        self._has_whole_record = False  # whether `_received` may have one
        self._encrypted = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._encrypted, server_side=True)
        # Into a buffer.  `_sslobj` is what `ssl` wraps: a small record costs a twentieth less without the wrapper.
        unwrapped: Any = getattr(self._tls, "_sslobj", self._tls)
        self._read: Callable[[int, memoryview], int] = unwrapped.read
        self._socket: asyncio.Transport
        self._state = _State.HANDSHAKE
        self._timer: TimerHandle | None = None
        self._certificate_name: str | None = None
        self._has_place = False
        self._has_connection = False
        self._has_heard = False
        self._is_paused = False
        self._will_go_on = False
        self._unsent: deque[Buffer] = deque()  # not encrypted yet
        self._unsent_bytes = 0
        self._socket_is_full = False
        self._high_bytes = ENCRYPTED_HIGH_BYTES
        self._low_bytes = ENCRYPTED_LOW_BYTES
        self._peer_is_slow = False

    # --- the socket's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self.client_host = host_of(transport, "peername") or "unknown"
        self._socket.set_write_buffer_limits(ENCRYPTED_HIGH_BYTES, ENCRYPTED_LOW_BYTES)
        self._has_place = self._handshakes.begin(self)
        if not self._has_place:
            self.abort()
            return
        self._timer = self._handshakes.clock.call_later(HANDSHAKE_S_MAX, self._is_late)

    def get_buffer(self, sizehint: int) -> memoryview:
        ciphertext = self._handshakes.ciphertext
        return ciphertext if self._state is _State.OPEN else ciphertext[:PIECE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is _State.OPEN:
            if self._decrypt(self._handshakes.ciphertext[:nbytes]):
                self._socket.pause_reading()
                self._go_on_soon()
        elif self._state is _State.HANDSHAKE:
            self._has_heard = True
            self._give_openssl(self._handshakes.ciphertext[:nbytes])
            self._socket.pause_reading()
            self._hello_bytes += nbytes
            self._handshakes.has_received(self)

    def eof_received(self) -> bool:
        """As without TLS, send the unsent bytes before the socket closes; asyncio does so for the bytes that it has."""
        if self._state is _State.OPEN and self._unsent:
            self._state = _State.CLOSING
        elif self._state is _State.OPEN:
            self._state = _State.CLOSED
        return self._state is _State.CLOSING

    def pause_writing(self) -> None:
        self._socket_is_full = True

    def resume_writing(self) -> None:
        self._socket_is_full = False
        self._send_on()
        if self._peer_is_slow and (
            not self._socket_is_full or self.get_write_buffer_size() <= self._low_bytes
        ):
            self._peer_is_slow = False
            self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        state, self._state = self._state, _State.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._kept = b""
        connection = self._connection
        del self._connection  # it has this as its transport: the memory of such a circle waits (`garbage.py`)
        if not self._has_place:
            return
        if self._has_connection:
            connection.connection_lost(error)
            return
        if state is _State.HANDSHAKE and self._has_heard:
            self._handshakes.failed(self, "it hung up in the handshake")
        self._handshakes.ended(self)

    # --- the handshake -----------------------------------------------------------------------------------------------

    def _give_openssl(self, fresh: memoryview) -> None:
        """Give it all bytes, even part of a record: during a handshake OpenSSL asks for the missing ones."""
        self._received.write(fresh)
        position = 0
        while position < len(fresh):
            position, _ = self._ends.take(fresh, position)

    def shake_hands(self) -> None:
        """Continue the handshake with the received bytes."""
        if self._state is not _State.HANDSHAKE:
            return
        if not self._has_answered and self._hello_bytes > HELLO_BYTES_MAX:
            self.give_up(f"its first message is larger than {HELLO_BYTES_MAX} bytes")
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._has_answered = self._has_answered or bool(self._encrypted.pending)
            self._flush()
            self._read_on()
        except ssl.SSLError as error:
            self._refuse(error)
        else:
            self._flush()
            # A certificate here is verified: otherwise the handshake would have failed.
            certificate = self._tls.getpeercert(binary_form=True)
            try:
                self._certificate_name = distinguished_name(certificate) if certificate else None
            except ValueError:
                self.give_up("its certificate has a name that cannot be read")
                return
            self._handshakes.succeeded(self)
            if self._timer is not None:
                self._timer.cancel()
            self._state = _State.OPEN
            self._has_whole_record = True
            self._has_connection = True
            self._connection.connection_made(self)
            self._go_on()

    def give_up(self, reason: str) -> None:
        """Count the handshake as failed for `reason`, and close the connection at once."""
        self._handshakes.failed(self, reason)
        self.abort()

    def _refuse(self, error: ssl.SSLError) -> None:
        """Tell the client, and wait for it to close: if the server closed first, the client might lose the message."""
        self._state = _State.REFUSED
        self._handshakes.failed(self, _reason(error))
        self._flush()
        if self._socket.can_write_eof():
            self._socket.write_eof()
        self._read_on()

    def _is_late(self) -> None:
        if self._state is _State.HANDSHAKE:
            # A client that has sent nothing may only have checked whether the port is open.
            reason = f"the handshake was not over after {HANDSHAKE_S_MAX:g} s" if self._has_heard else ""
            self._handshakes.failed(self, reason)
        self.abort()

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def _decrypt(self, fresh: memoryview) -> bool:
        """Give the connection decrypted data, as much as it accepts; whether there are more that it would accept."""
        received, tls, read, connection = self._received, self._tls, self._read, self._connection
        ends = self._ends
        monotonic = self._handshakes.clock.monotonic
        over_s = monotonic() + TURN_S
        left, end, position = RECORDS_AT_ONCE, len(fresh), 0
        is_over = False
        may_be_used_up = True  # whether it pays to ask if OpenSSL has anything left
        try:
            while not is_over and self._state is _State.OPEN and not self._is_paused:
                buffer = connection.get_buffer(-1)
                size, filled = len(buffer), 0
                while filled < size:
                    if left <= 0:
                        is_over = True
                        break
                    if not self._has_whole_record and not tls.pending():
                        if position >= end or (position and monotonic() >= over_s):
                            is_over = True
                            break
                        piece_end, self._has_whole_record = ends.take(fresh, position)
                        self._empty_bytes += received.write(fresh[position:piece_end])
                        may_be_used_up = ends.are_followed or piece_end - position < PIECE_BYTES
                        position = piece_end
                        if not self._has_whole_record:
                            continue
                    begun = filled
                    try:
                        while left and filled < size:  # what stands here is the price of each record
                            count = read(size - filled, buffer[filled:])
                            if not count:
                                self._peer_has_closed(filled)
                                return False
                            filled += count
                            left -= 1
                            if may_be_used_up and not received.pending:
                                self._has_whole_record = False
                                ends.are_followed = True
                                break
                    except ssl.SSLWantReadError:
                        self._has_whole_record = False
                    if filled > begun:
                        self._empty_bytes = 0
                    elif self._empty_bytes > EMPTY_BYTES_MAX:
                        self.give_up(f"{EMPTY_BYTES_MAX} bytes came without data")
                        return False
                if filled:
                    connection.buffer_updated(filled)
        except ssl.SSLError as error:
            self.give_up(_reason(error))
            return False
        self._kept = bytes(fresh[position:])
        if self._encrypted.pending:
            self._flush()
            self._look_at_size()
            if self._socket.get_write_buffer_size() > ANSWERS_BYTES_MAX:
                self.give_up("it asks for answers and does not read them")
        return self._may_go_on() and bool(self._kept or self._has_whole_record or tls.pending())

    def _may_go_on(self) -> bool:
        return self._state is _State.OPEN and not self._is_paused

    def _peer_has_closed(self, filled: int) -> None:
        """Handle the client's close message, which followed `filled` bytes that the connection does not know yet."""
        if filled:
            self._connection.buffer_updated(filled)
        self.close()

    def _go_on_soon(self) -> None:
        if not self._will_go_on:
            self._will_go_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._will_go_on = False
        if not self._may_go_on():
            return
        kept, self._kept = self._kept, b""
        if self._decrypt(memoryview(kept)):
            self._go_on_soon()
        elif self._may_go_on():
            self._read_on()

    def _read_on(self) -> None:
        if not self._socket.is_closing():
            self._socket.resume_reading()

    # --- bytes out ---------------------------------------------------------------------------------------------------

    def _send_on(self) -> None:
        """Encrypt and send as much as the socket accepts."""
        try:
            while self._unsent and not self._socket_is_full:
                done = 0
                parts = []
                while self._unsent and done < STEP_BYTES:
                    piece = self._next_piece()
                    done += self._tls.write(piece)
                    if self._encrypted.pending >= STEP_PART_BYTES:
                        parts.append(self._encrypted.read())
                self._unsent_bytes -= done
                if parts:
                    parts.append(self._encrypted.read())
                    self._socket.writelines(parts)
                else:
                    self._flush()
        except ssl.SSLError as error:
            self.give_up(_reason(error))
            return
        if self._state is _State.CLOSING and not self._unsent:
            self._say_goodbye()

    def _next_piece(self) -> Buffer:
        """The data for the next record: several small buffers, or a part of a large one."""
        unsent = self._unsent
        first = unsent[0]
        if len(first) > RECORD_BYTES:
            view = memoryview(first)
            unsent[0] = view[RECORD_BYTES:]
            return view[:RECORD_BYTES]
        unsent.popleft()
        size = len(first)
        if not unsent or size + len(unsent[0]) > RECORD_BYTES:
            return first
        parts = [first]
        while unsent and size + len(unsent[0]) <= RECORD_BYTES:
            part = unsent.popleft()
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def _flush(self) -> None:
        if self._encrypted.pending:
            self._socket.write(self._encrypted.read())

    def _look_at_size(self) -> None:
        if not self._peer_is_slow and self.get_write_buffer_size() > self._high_bytes:
            self._peer_is_slow = True
            self._connection.pause_writing()

    def _say_goodbye(self) -> None:
        with suppress(ssl.SSLError):  # do not wait for the client's own close message
            self._tls.unwrap()
        self._flush()
        self._state = _State.CLOSED
        self._socket.close()

    # --- the connection's side ---------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._state is not _State.OPEN:
            return
        for part in list_of_data:
            if len(part):
                self._unsent.append(part)
                self._unsent_bytes += len(part)
        self._send_on()
        self._look_at_size()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None, "a connection says what it wants"
        assert low is not None, "a connection says what it wants"
        assert high >= ENCRYPTED_HIGH_BYTES, "or nothing would tell it to go on"
        self._high_bytes, self._low_bytes = high, low
        self._look_at_size()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._go_on_soon()  # not at once: the caller may be in the middle of something

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == CERTIFICATE_NAME:
            return self._certificate_name
        if name == "sslcontext":  # asyncio's own TLS has it, too
            return self._tls.context
        return self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._state is not _State.OPEN or self._socket.is_closing()

    def close(self) -> None:
        """Send the unsent bytes, then TLS's close message, and close."""
        if self._state is _State.OPEN:
            self._state = _State.CLOSING
            self._socket.pause_reading()
            self._send_on()

    def abort(self) -> None:
        self._state = _State.CLOSED
        self._unsent.clear()
        self._unsent_bytes = 0
        self._socket.abort()

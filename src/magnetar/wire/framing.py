"""Frames out of a byte stream: 4 bytes of size, then so many bytes.  No socket here, only memory.

Both protocols frame that way: a Kafka request, a Pulsar command with its payload.

Small frames are received into one scratch buffer that all connections share, several in one read; they are *borrowed*:
valid until the next call.  A frame that does not fit in what was read gets memory of its own, into which the rest is
received directly, so a large batch is never copied between the socket and the log.

The shell asks `get_buffer`, receives into it, and calls `received` before anything else can use the scratch buffer.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from magnetar.base.errors import WireError

SCRATCH_BYTES: Final = 64 * 1024
SMALL_FRAME_BYTES_MAX: Final = 16 * 1024  # below, ordinary memory is cheaper than a recycled block
_SIZE: Final = Struct(">i")


class Frame(NamedTuple):
    """One frame without its size.  `owned`: its memory is nobody else's and may be kept."""

    data: memoryview
    owned: bool


class FrameReader:
    """See the module's text."""

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_head", "_scratch", "_take")

    def __init__(self, scratch: memoryview, take: Callable[[int], memoryview], frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._take = take
        self._frame_bytes_max = frame_bytes_max
        self._head = b""  # up to three bytes of a size
        self._frame: memoryview | None = None  # a frame that is being received
        self._filled = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong."""
        if self._frame is not None:
            return self._frame[self._filled :]
        if self._head:
            self._scratch[: len(self._head)] = self._head
            return self._scratch[len(self._head) :]
        return self._scratch

    def received(self, count: int) -> list[Frame]:
        """The frames that are complete now that `count` more bytes have come.

        Raises:
            WireError: a frame of impossible size is announced; nothing after it can be read.
        """
        if self._frame is not None:
            self._filled += count
            if self._filled < len(self._frame):
                return []
            frame, self._frame = self._frame, None
            return [Frame(frame, True)]
        scratch = self._scratch
        end = count + len(self._head)
        self._head = b""
        frames: list[Frame] = []
        position = 0
        while True:
            left = end - position
            if left < 4:
                self._head = bytes(scratch[position:end])
                return frames
            (size,) = _SIZE.unpack_from(scratch, position)
            if not 0 < size <= self._frame_bytes_max:
                raise WireError(f"a frame of {size} bytes; 1 to {self._frame_bytes_max} are allowed")
            position += 4
            if size > end - position:
                self._frame = (
                    self._take(size) if size > SMALL_FRAME_BYTES_MAX else memoryview(bytearray(size))
                )
                self._filled = end - position
                self._frame[: self._filled] = scratch[position:end]
                return frames
            frames.append(Frame(scratch[position : position + size], False))
            position += size

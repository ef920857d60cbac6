"""Frames out of a byte stream: 4 bytes of size, then so many bytes.  No socket here, only memory.

Both protocols frame that way: a Kafka request, a Pulsar command with its payload.

Small frames are received into one scratch buffer that all connections share, several in one read; they are *borrowed*:
valid until the next call.  A frame that does not fit in what was read gets memory of its own, and the rest is received
directly into that.  So a large batch is never copied between the socket and the log.  Behind a large frame another one
is likely: only its beginning is received into the scratch buffer.  `admit` is asked first; while it has said no, the
reader *waits*: nothing should be received, and `go_on` takes up where it stopped.  So it does when one read has brought
very many frames (`has_more`): they are cut a few at a time.

The shell asks `get_buffer`, receives into it, and calls `received` before anything else can use the scratch buffer.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from magnetar.base.errors import WireError

SCRATCH_BYTES: Final = 64 * 1024
SHORT_RECEIVE_BYTES: Final = 4 * 1024  # of a frame that will likely have memory of its own
RECEIVE_BYTES_MAX: Final = 1024 * 1024  # at once, so that others may have their turn in between
FRAMES_AT_ONCE: Final = 256  # a quarter of a millisecond of work
SMALL_FRAME_BYTES_MAX: Final = 16 * 1024  # below, ordinary memory is cheaper than a recycled block
_unpack_size: Final = Struct(">i").unpack_from


class Frame:
    """One frame without its size.  `owned`: its memory belongs to this frame alone, and may be kept and written to."""

    __slots__ = ("data", "owned")

    def __init__(self, data: memoryview, owned: bool) -> None:
        self.data = data
        self.owned = owned


class FrameReader:
    """See the module's text."""

    __slots__ = (
        "_admit", "_expects_large", "_filled", "_frame", "_frame_bytes_max", "_head", "_scratch", "_take", "_uncut",
        "_untouched", "is_stopped",
    )  # fmt: skip

    def __init__(
        self,
        scratch: memoryview,
        take: Callable[[int], memoryview],
        frame_bytes_max: int,
        admit: Callable[[int], bool],
    ) -> None:
        """`admit(size)` is asked once for each frame that is to be received into memory of its own."""
        self._scratch = scratch
        self._take = take
        self._frame_bytes_max = frame_bytes_max
        self._admit = admit
        self._untouched: bytes | None = None  # what came from a frame on that was not admitted, size included
        self._uncut: memoryview | None = None  # what came behind the frames that were cut
        self._head = b""  # up to three bytes of a size
        self._frame: memoryview | None = None  # a frame that is being received
        self._filled = 0
        self._expects_large = False  # the last frame did not fit into the scratch buffer
        self.is_stopped = False  # `is_waiting` or `has_more`: nothing should be received

    @property
    def is_waiting(self) -> bool:
        """A frame has been announced that is not admitted yet."""
        return self._untouched is not None

    @property
    def has_more(self) -> bool:
        """What has come is not cut yet: `go_on` does so before anything is received."""
        return self._uncut is not None

    @property
    def uncut_bytes(self) -> int:
        """How much that is."""
        return 0 if self._uncut is None else len(self._uncut)

    @property
    def is_receiving(self) -> bool:
        """A frame has come in part that has, or waits for, memory of its own."""
        return self._frame is not None or self._untouched is not None

    @property
    def filled_bytes(self) -> int:
        """How much of that frame has come."""
        return self._filled

    def allow(self, frame_bytes_max: int) -> None:
        """Frames from now on may be so large."""
        self._frame_bytes_max = frame_bytes_max

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong."""
        if self._frame is not None:
            return self._frame[self._filled : self._filled + RECEIVE_BYTES_MAX]
        if self._head:
            self._scratch[: len(self._head)] = self._head
            return self._scratch[len(self._head) :]
        return self._scratch[:SHORT_RECEIVE_BYTES] if self._expects_large else self._scratch

    def received(self, count: int) -> list[Frame]:
        """The frames that are complete now that `count` more bytes have come.

        Raises:
            WireError: a frame of impossible size is announced; nothing after it can be read.
        """
        if not self._head and not self.is_stopped and self._frame is None and count > 4:
            (size,) = _unpack_size(self._scratch)
            if size == count - 4 and size <= self._frame_bytes_max:  # just one, and all of it: most are so
                return [Frame(self._scratch[4:count], False)]
        if self._frame is not None:
            self._filled += count
            if self._filled < len(self._frame):
                return []
            frame, self._frame = self._frame, None
            self._expects_large = len(frame) > len(self._scratch)
            return [Frame(frame, True)]
        if self._untouched is not None:
            self._untouched += bytes(self._scratch[:count])  # was on its way when reading stopped
            return []
        if self._uncut is not None:
            self._uncut = memoryview(bytes(self._uncut) + self._scratch[:count])  # the same
            return []
        end = count + len(self._head)
        self._head = b""
        return self._cut(self._scratch, end, is_admitted=False)

    def go_on(self) -> list[Frame]:
        """More frames of what has come, in memory that stays as it is.

        Called when the frame that was announced is admitted, or to cut what is not cut.

        Raises:
            WireError: as `received`.
        """
        self.is_stopped = False
        uncut, self._uncut = self._uncut, None
        if uncut is not None:
            return self._cut(uncut, len(uncut), is_admitted=False)
        untouched, self._untouched = self._untouched, None
        assert untouched is not None
        return self._cut(memoryview(bytearray(untouched)), len(untouched), is_admitted=True)

    def close(self) -> None:
        """Nothing that comes is of interest any more: let go of memory, and of the session that was asked for it."""
        self._frame = None
        self._untouched = b""
        self.is_stopped = True
        self._uncut = None
        self._admit = _refuse

    def _cut(self, scratch: memoryview, end: int, *, is_admitted: bool) -> list[Frame]:
        frames: list[Frame] = []
        position = 0
        self._expects_large = False
        while True:
            left = end - position
            if left < 4:
                self._head = bytes(scratch[position:end])
                return frames
            (size,) = _unpack_size(scratch, position)
            if not 0 < size <= self._frame_bytes_max:
                raise WireError(f"a frame of {size} bytes; 1 to {self._frame_bytes_max} are allowed")
            position += 4
            if size > end - position or is_admitted:
                if not is_admitted and not self._admit(size):
                    self._untouched = bytes(scratch[position - 4 : end])
                    self.is_stopped = True
                    return frames
                self._frame = (
                    self._take(size) if size > SMALL_FRAME_BYTES_MAX else memoryview(bytearray(size))
                )
                self._filled = min(end - position, size)
                self._frame[: self._filled] = scratch[position : position + self._filled]
                if self._filled < size:
                    return frames
                frame, self._frame = self._frame, None
                frames.append(Frame(frame, True))
                is_admitted = False
            else:
                frames.append(Frame(scratch[position : position + size], False))
            position += size
            if len(frames) == FRAMES_AT_ONCE and position < end:
                rest = scratch[position:end]
                self._uncut = memoryview(bytes(rest)) if scratch is self._scratch else rest
                self.is_stopped = True
                return frames


def _refuse(_: int) -> bool:
    return False

"""The input of a connection: it cuts the received bytes into frames, counts them, and gives each to the session in
its turn.

The intake handles a frame at once, with three exceptions.  Reading is paused (`backpressure.py`); a request is at work
for which all others wait; or the pass of the event loop has no time left (`base/turns.py`).  64 KiB can be 1,500
requests, each of which describes a large topic.  A frame that cannot be handled now is *held*, and nothing is read
before it has been handled.  A connection in the middle of a large frame continues to read in its turn.

A frame that is being received or held counts in the memory of all connections (`base/memory_budget.py`).  The session
counts what it keeps of a handled frame.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar.base.arena import Arena
from magnetar.base.clock import Clock
from magnetar.base.errors import WireError
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.turn_end import TurnEnd
from magnetar.protocols.backpressure import Backpressure, nothing
from magnetar.protocols.door import Peer
from magnetar.protocols.traffic import Traffic
from magnetar.wire.framing import (
    RECEIVE_BYTES_MAX,
    SCRATCH_BYTES,
    SHORT_RECEIVE_BYTES,
    SMALL_FRAME_BYTES_MAX,
    Frame,
    FrameReader,
)

LIGHT_S: Final = 0.00025
OWN_COPY_BYTES_MIN: Final = 4 << 10  # a frame that is held and has so many bytes is copied once only
RECEIVED_S: Final = 0.25e-9  # what a received byte of a large frame counts in its pass of the loop


class FramedTraffic(Traffic):
    """What the sessions of a door share to receive frames."""

    def __init__(self, memory: MemoryBudget, clock: Clock, arena: Arena, turn_end: TurnEnd) -> None:
        super().__init__(memory, clock, turn_end)
        self.arena = arena
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))


class Limits(NamedTuple):
    """The largest frame, and how many requests and bytes of one connection may be unanswered."""

    frame_bytes: int
    requests: int
    bytes: int


class Intake:
    """See the module's text."""

    __slots__ = (
        "_abort", "_admits_large", "_frame_cost", "_handle", "_held", "_holds_all", "_is_closed", "_is_light",
        "_memory", "_peer", "_reader", "_traffic", "_uncut_cost", "allow", "backpressure", "monotonic",
    )  # fmt: skip

    def __init__(
        self,
        traffic: FramedTraffic,
        peer: Peer,
        limits: Limits,
        handle: Callable[[Frame], None],
        abort: Callable[[str], None],
        ran_short: Callable[[], None] | None = None,
        admits_large: Callable[[int], bool] | None = None,
    ) -> None:
        """It calls `abort` with the reason why the connection must be closed.

        It calls `ran_short` when one of its requests makes all connections together hold too much.  If `ran_short` is
        given, no received frame is handled before they hold less.

        Until `let_in`, `admits_large` returns whether a large frame may come at all.
        """
        self._peer = peer
        self._traffic = traffic
        self._memory = traffic.memory
        self.monotonic = traffic.monotonic
        self._handle = handle
        self._abort = abort
        self._holds_all = ran_short is not None
        self._admits_large = admits_large
        self.backpressure = Backpressure(
            peer, traffic, limits.requests, limits.bytes, self._handle_held, ran_short
        )
        self._reader = FrameReader(traffic.scratch, traffic.arena.take, limits.frame_bytes, self._admit)
        self.allow = self._reader.allow
        self._held: deque[Frame] = deque()
        self._frame_cost = 0  # what frames count that are being received or held
        self._uncut_cost = 0  # the part of it that is not cut into frames yet
        self._is_closed = False
        self._is_light = False  # its last frames took very little time

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        reader = self._reader
        buffer = reader.get_buffer()
        if (
            self._memory.frames_waiting and not reader.is_receiving
        ):  # they have a part of their memory already
            return buffer[:SHORT_RECEIVE_BYTES]
        return buffer

    def received(self, count: int) -> None:
        """`count` bytes were put into the buffer that `get_buffer` returned."""
        self._traffic.received_bytes += count
        backpressure = self.backpressure
        reader = self._reader
        try:
            frames = reader.received(count)
        except WireError as error:
            self._abort(str(error))
            return
        if frames:
            if frames[0].owned:
                self._memory.end_frame(self)
            monotonic = self.monotonic
            turns = self._traffic.turns
            turns.has_received = True
            began_s = monotonic()
            over_s = began_s + turns.left_s
            memory = self._memory
            # Mostly decided without a call; the back-pressure checks again with each request that begins.
            is_over = self._holds_all and memory.used > memory.bytes_max and memory.is_over
            for position, frame in enumerate(frames):
                if self._is_closed:
                    return
                has_turn = (self._is_light and not position) or monotonic() < over_s
                if backpressure.is_paused or backpressure.at_work is not None or is_over or not has_turn:
                    self._hold(frames[position:])
                    if has_turn:
                        backpressure.pause()
                    else:
                        backpressure.await_turn()
                    break
                handle = self._handle  # changes when the client has logged in
                handle(frame)
                if frame.owned:
                    self._give_back(frame)
            used_s = monotonic() - began_s
            turns.left_s -= used_s
            if turns.left_s <= 0.0:
                turns.serve_soon()
            self._is_light = used_s < LIGHT_S
        elif reader.is_receiving:
            turns = self._traffic.turns
            turns.has_received = True
            turns.spend(count * RECEIVED_S)
            if turns.left_s <= 0.0:
                backpressure.await_turn(RECEIVE_BYTES_MAX * RECEIVED_S)
        if reader.is_stopped:
            if reader.is_waiting:
                backpressure.awaits_memory = True
                backpressure.pause()
            else:
                self._count_uncut()
                backpressure.await_turn()

    def _handle_held(self) -> None:
        turns = self._traffic.turns
        backpressure = self.backpressure
        began_s = self.monotonic()
        over_s = began_s + turns.left_s
        while (
            (self._held or self._cut_more()) and not backpressure.is_paused and backpressure.at_work is None
        ):
            if self.monotonic() >= over_s:
                break  # the back-pressure lets it await its turn, because it may go on
            frame = self._held.popleft()
            self._handle(frame)
            self._give_back(frame)
        turns.spend(self.monotonic() - began_s)
        if self._held:
            backpressure.pause()  # until its next turn, or until the request at work has ended

    def _cut_more(self) -> bool:
        """Cut more received bytes into held frames; returns whether there are any."""
        reader = self._reader
        if not reader.has_more:
            return False
        try:
            self._hold(reader.go_on())
        except WireError as error:
            self._abort(str(error))
            return False
        self._count_uncut()
        self.backpressure.awaits_memory = reader.is_waiting
        return bool(self._held)

    def _hold(self, frames: list[Frame]) -> None:
        if frames and frames[0].owned:
            self._held.append(frames[0])
            frames = frames[1:]
        # One copy for all small frames.  Each counts as borrowed, so that no frame keeps the memory of all.
        copy = memoryview(b"".join([frame.data for frame in frames if len(frame.data) < OWN_COPY_BYTES_MIN]))
        start = 0
        for frame in frames:
            size = len(frame.data)
            self._charge(size)
            if size < OWN_COPY_BYTES_MIN:
                self._held.append(Frame(copy[start : start + size], False))
                start += size
            else:
                self._held.append(Frame(memoryview(bytearray(frame.data)), True))

    def let_in(self, handle: Callable[[Frame], None], frame_bytes_max: int) -> None:
        """The client has logged in: from now on its frames go to `handle`, and may have `frame_bytes_max` bytes."""
        self._handle = handle
        self._admits_large = None
        self.allow(frame_bytes_max)

    # --- the memory of all connections -------------------------------------------------------------------------------

    def _admit(self, frame_bytes: int) -> bool:
        """Whether there is memory for a frame now; a small one always gets it."""
        if frame_bytes <= SMALL_FRAME_BYTES_MAX:
            self._charge(frame_bytes)
        elif self._admits_large is not None and not self._admits_large(frame_bytes):
            raise WireError(f"a frame of {frame_bytes} bytes before the client is known")
        else:
            cost = self._memory.begin_frame(self, frame_bytes)
            self._frame_cost += cost
            return cost > 0
        return True

    def _charge(self, frame_bytes: int) -> None:
        cost = self._memory.cost(frame_bytes)
        self._frame_cost += cost
        self._memory.take_frame(cost)

    def _give_back(self, frame: Frame) -> None:
        """Release the memory of a handled frame; at the connection's end all of it is released."""
        if not self._is_closed:
            cost = self._memory.cost(len(frame.data))
            self._frame_cost -= cost
            self._memory.give_frame(cost)

    def _count_uncut(self) -> None:
        """Count received bytes that are not cut yet as one frame."""
        counted, self._uncut_cost = self._uncut_cost, self._memory.cost(self._reader.uncut_bytes)
        self._frame_cost += self._uncut_cost - counted
        self._memory.take_frame(self._uncut_cost)
        self._memory.give_frame(counted)

    def memory_granted(self, cost: int) -> None:
        """Receive the frame that waited for memory, because there is room now."""
        self._frame_cost += cost
        try:
            frames = self._reader.go_on()
        except WireError as error:
            self._abort(str(error))
            return
        if not self._reader.is_receiving:
            self._memory.end_frame(self)
        self._hold(frames)
        self._count_uncut()
        self.backpressure.awaits_memory = self._reader.is_waiting
        self.backpressure.resume_if_possible()

    def frame_filled(self) -> int:
        """How many bytes of the present frame have been received."""
        return self._reader.filled_bytes

    def is_paused(self) -> bool:
        return self.backpressure.is_paused

    def has_hung_up(self) -> bool:
        return self._peer.has_hung_up()

    def hang_up(self) -> None:
        self._peer.close()

    def cut_off(self, reason: str) -> None:
        self._abort(reason)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Receive no more, and drop held frames."""
        self._is_closed = True
        self._handle = self._abort = (
            nothing  # the session refers to this object: a cycle would need the collector
        )
        self._admits_large = None
        self._held.clear()
        self._reader.close()
        self._memory.end_frame(self)
        self._memory.give_frame(self._frame_cost)
        self.backpressure.close()

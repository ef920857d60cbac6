"""One account of the memory that connections make the server hold, over all of them and both protocols.

What counts: requests that are being received (all of a large one as soon as it is announced), requests that are not
answered, and responses that sockets have not taken.  Entries that are stored belong to the entry cache instead.

No connection may take the last of it, and every connection must get on:

- **Large frames** are received only once there is room for all of them and as much as three times their size (a quarter
  of everything at most) besides.  So the server can finish a frame that it lets in, and small frames find room when
  large ones do not.  The others wait in the order in which they came; a frame that fits passes one that does not.  A
  frame counts half of the budget at most, so that a budget smaller than a frame still lets one in at a time.
- **Objects** that large requests are read into have a quarter of their own, beside the rest (`objects`): a few large
  requests would hold up all others.  A request that needs more gets in alone.  Requests wait for this memory in the
  order in which they came, and count as frames meanwhile.
- **Responses** get a quarter of what is left of three quarters of the budget (`response_bytes_max`): the fuller it
  is, the smaller they are.  A first batch may be larger than that.  When memory is nearly full, and responses take part
  of it, a large response must wait (`refuses`), so that small ones still leave.  Everything that the server can send
  later must wait, too (`is_crowded`).
- **Past the limit** sessions handle no further request until an eighth is free again, or until nearly all of it is
  requests that wait to be handled.
- **While large frames wait** the server receives little at a time (`frames_waiting`), because it also keeps the bytes
  behind the announcement.  If a client hangs up meanwhile, the server notices within `CHECK_S`, unless the client has
  sent so much that its end is still behind unread bytes.  So no frame waits longer than `WAIT_S`; by then clients have
  given up as well.
- **A connection that makes no progress** (its frame does not grow, its socket takes nothing) is cut off.  It has
  `STALL_S` while memory is short.  In any case it has only `FRAME_STALL_S` for a frame that its session would read.
  While sessions are held or answers must wait, the server cuts off sockets that take next to nothing after
  `HELD_STALL_S`, until there is room.  It begins with the sockets that have most to take.  Otherwise a few dozen
  clients that ask and do not read would make all others wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.rare_line import RareLine
from magnetar.base.turns import TURN_S

log = logging.getLogger(__name__)

STALL_S: Final = 10.0
HELD_STALL_S: Final = 1.0
FRAME_STALL_S: Final = 60.0
WAIT_S: Final = 30.0  # Kafka's request.timeout.ms, and what Pulsar's clients wait
# What a frame must grow by in `STALL_S` while memory is short, and a socket must take before it is cut off.
GROWTH_BYTES: Final = 64 << 10
CHECK_S: Final = 1.0
REFUSED_MS: Final = 100  # after which a client may ask again for a batch that had to wait


class Receiver(Protocol):
    """A session that receives a large frame, or waits for room for it."""

    def frame_filled(self) -> int:
        """Bytes of it that have come."""
        ...

    def is_paused(self) -> bool:
        """Whether it does not read now, so that nothing can come."""
        ...

    def has_hung_up(self) -> bool:
        """Whether its client has gone, as far as that can be known while nothing is read from it."""
        ...

    def hang_up(self) -> None:
        """Close the connection; what it holds is given back in due course."""
        ...

    def memory_granted(self, cost: int) -> None:
        """There is room, and `cost` has been taken of it: go on."""
        ...

    def cut_off(self, reason: str) -> None:
        """Close the connection; what it holds is given back in due course."""
        ...


class Sender(Protocol):
    """A connection whose socket has not taken all that was sent."""

    def unsent_bytes(self) -> int: ...

    def cut_off(self, reason: str) -> None: ...


class Held(Protocol):
    """A session that handles nothing until there is room."""

    def resume_if_possible(self) -> None: ...


class _Progress:
    """How far something had got, and since when it has got no further."""

    __slots__ = ("mark", "since_s", "taken")

    def __init__(self, mark: int, taken: int, now_s: float) -> None:
        self.mark = mark
        self.taken = taken
        self.since_s = now_s


class MemoryBudget:
    """See the module's text.  All methods run on the event loop."""

    def __init__(self, bytes_max: int, clock: Clock) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._frames = 0  # of it, for frames that are being received or wait to be handled
        self.peak = 0
        self.cut_off_count = 0
        self._clock = clock
        self._receiving: dict[Receiver, _Progress] = {}
        # What the frame counts, what it needs, and since when it waits; oldest first.
        self.frames_waiting: dict[Receiver, tuple[int, int, float]] = {}
        self._least_needed = 0  # no frame that waits needs less
        self._sending: dict[Sender, _Progress] = {}
        self._answers = 0  # of `used`: what is to be sent, or was sent and is not taken
        self._has_refused = False  # since the last check
        self._for_room: set[Callable[[], None]] = set()  # called when it is not crowded any more
        self._held: set[Held] = set()
        self.objects_used = 0  # not part of `used`
        self._objects_waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_checking = False
        self._is_serving = False
        self._given_up = RareLine(log, clock)

    # --- what is small, or already there -----------------------------------------------------------------------------

    def take(self, size: int) -> None:
        used = self.used = self.used + size
        if used > self.peak:
            self.peak = used

    def give(self, size: int) -> None:
        self.used -= size
        if (self.frames_waiting or self._held or self._for_room) and not self._is_serving:
            self._serve_soon()

    @property
    def is_over(self) -> bool:
        """Sessions may handle no further request now.

        Not so when nearly all of it is requests that were received: only handling them makes room.
        """
        return self.used > self.bytes_max and self.used - self._frames > self.bytes_max // 4

    @property
    def is_short(self) -> bool:
        """A connection that makes no progress is cut off."""
        return bool(self.frames_waiting) or self.used > self.bytes_max // 4 * 3

    def response_bytes_max(self) -> int:
        """How large a response may be now that can be as large as its client likes."""
        return max((self.bytes_max // 4 * 3 - self.used) // 4, 0)

    def first_batch_bytes(self, batch_bytes_max: int) -> int:
        """What a response counts, while it is read, for the batch that is sent however little is left.

        A sixteenth of everything at most: few batches are as large as their topic takes.
        """
        return min(batch_bytes_max, self.bytes_max // 16)

    def refuses(self, batch_bytes: int) -> bool:
        """Whether a response must do without a first batch of this size now; ask again after `REFUSED_MS`."""
        size = self.first_batch_bytes(batch_bytes)
        if size <= self.bytes_max >> 10 or not self._is_crowded_with(size):
            return False
        self._has_refused = True
        return True

    @property
    def is_crowded(self) -> bool:
        """Memory is nearly full, also of answers: what can be sent later waits."""
        return self._is_crowded_with(0)

    def _is_crowded_with(self, size: int) -> bool:
        return self.used + size > self.bytes_max // 8 * 7 and self._answers > self.bytes_max >> 5

    def tell_when_room(self, callback: Callable[[], None]) -> None:
        """Call it once, when memory is not crowded any more."""
        self._for_room.add(callback)

    def tell_no_more(self, callback: Callable[[], None]) -> None:
        self._for_room.discard(callback)

    def hold(self, session: Held) -> None:
        """`resume_if_possible` is called when requests are handled again."""
        self._held.add(session)

    def let_go(self, session: Held) -> None:
        self._held.discard(session)

    @property
    def held_count(self) -> int:
        return len(self._held)

    # --- frames -----------------------------------------------------------------------------------------------------

    def cost(self, frame_bytes: int) -> int:
        """What a frame counts; `give_frame` that much back when it has been handled."""
        return min(frame_bytes, self.bytes_max // 2)

    def take_frame(self, cost: int) -> None:
        self._frames += cost
        self.take(cost)

    def give_frame(self, cost: int) -> None:
        self._frames -= cost
        # As `give`, without the call: once for each large frame.
        self.used -= cost
        if (self.frames_waiting or self._held or self._for_room) and not self._is_serving:
            self._serve_soon()

    def begin_frame(self, receiver: Receiver, frame_bytes: int) -> int:
        """Take memory for a frame that was announced: what it counts, or 0.  Then `memory_granted` is called when there
        is some.
        """
        half = self.bytes_max // 2
        cost = frame_bytes if frame_bytes < half else half
        needed = cost + (3 * cost if 6 * cost < half else half // 2)
        if needed > self.bytes_max - self.used:
            self._look_at_senders()
            if needed > self.bytes_max - self.used:
                self.frames_waiting[receiver] = (cost, needed, self._clock.monotonic())
                self._least_needed = min(self._least_needed, needed)
                self._check_later()
                return 0
        self._begin(receiver, cost)
        return cost

    def end_frame(self, receiver: Receiver) -> None:
        """It is complete, or will never be."""
        self._receiving.pop(receiver, None)
        self.frames_waiting.pop(receiver, None)

    def _begin(self, receiver: Receiver, cost: int) -> None:
        self._frames += cost
        self.take(cost)
        self._receiving[receiver] = _Progress(0, 0, self._clock.monotonic())
        if not self._is_checking:
            self._check_later()

    def _serve_soon(self) -> None:
        self._is_serving = True
        asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_serving = False
        over_s = self._clock.monotonic() + TURN_S
        self._grant(over_s)
        if self._held and self._has_room_without(0):
            held, self._held = self._held, set()
            while held and self._clock.monotonic() < over_s:
                held.pop().resume_if_possible()
            if held:  # each handles what it has received: all in one turn would block the loop
                self._held |= held
                self.give(0)

        while self._for_room and not self.is_crowded:
            if self._clock.monotonic() >= over_s:
                self.give(0)
                break
            self._for_room.pop()()

    def _has_room_without(self, size: int) -> bool:
        """Whether sessions that are held may go on once `size` bytes of responses have been given back."""
        used = self.used - size
        # What is held may itself be what fills it: then only handling it makes room.
        return used <= self.bytes_max // 8 * 7 or used - self._frames <= self.bytes_max // 8

    def _grant(self, over_s: float) -> None:
        """Let frames in for which there is room now."""
        # There may be hundreds, of which none fits, in each turn of the loop.
        if self.bytes_max - self.used < self._least_needed:
            return
        for receiver, (cost, needed, _) in list(self.frames_waiting.items()):
            if needed <= self.bytes_max - self.used and receiver in self.frames_waiting:
                # Each takes memory, and handles what came behind the frame.
                if self._clock.monotonic() >= over_s:
                    self.give(0)
                    return
                del self.frames_waiting[receiver]
                self._begin(receiver, cost)
                receiver.memory_granted(cost)
        self._least_needed = min([needed for _, needed, _ in self.frames_waiting.values()], default=0)

    # --- objects -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def objects(self, request_bytes: int, size: int) -> AsyncIterator[None]:
        """Inside, `size` bytes of objects may be made out of a request of `request_bytes`, which counts already."""
        await self.take_objects(request_bytes, size)
        try:
            yield
        finally:
            self.give_objects(size)

    async def take_objects(self, request_bytes: int, size: int) -> None:
        """As `objects`; `give_objects` must follow.  Who has taken some must not wait here for more."""
        if self._objects_waiting or not self.has_room_for_objects(size):
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._objects_waiting.append((size, granted))
            self._frames += request_bytes  # as good as a frame that is still to be handled
            try:
                await granted
            except asyncio.CancelledError:
                if granted.done() and not granted.cancelled():
                    self.give_objects(size)
                raise
            finally:
                self._frames -= request_bytes
        else:
            self.objects_used += size

    def has_room_for_objects(self, size: int) -> bool:
        """Whether so many could be made at this moment."""
        return not self.objects_used or self.objects_used + size <= self.bytes_max // 4

    @property
    def objects_waiting(self) -> int:
        """Requests that wait until there is."""
        return sum(not granted.done() for _, granted in self._objects_waiting)

    def give_objects(self, size: int) -> None:
        """Give back what `take_objects` has taken."""
        self.objects_used -= size
        waiting = self._objects_waiting
        while waiting and (waiting[0][1].done() or self.has_room_for_objects(waiting[0][0])):
            wanted, granted = waiting.popleft()
            if not granted.done():  # the request that waited may have gone
                self.objects_used += wanted
                granted.set_result(None)

    # --- responses ---------------------------------------------------------------------------------------------------

    def take_answer(self, size: int) -> None:
        """So much is to be sent; `give_answer` when the socket has been given it."""
        self._answers += size
        self.take(size)

    def give_answer(self, size: int) -> None:
        self._answers -= size
        self.give(size)

    def sending(self, sender: Sender, unsent_bytes: int) -> None:
        """So much of what was sent waits in its socket."""
        progress = self._sending.get(sender)
        if progress is None:
            progress = self._sending[sender] = _Progress(unsent_bytes, 0, self._clock.monotonic())
            self._check_later()
        more = unsent_bytes - progress.taken
        progress.taken = unsent_bytes
        self._answers += more
        if more > 0:
            self.take(more)
        else:
            self.give(-more)

    def sent(self, sender: Sender) -> None:
        """All of it has been taken, or never will be."""
        progress = self._sending.pop(sender, None)
        if progress is not None:
            self._answers -= progress.taken
            self.give(progress.taken)

    def _look_at_senders(self) -> None:
        for sender in list(self._sending):
            unsent = sender.unsent_bytes()
            if unsent:
                self.sending(sender, unsent)
            else:
                self.sent(sender)

    # --- connections that make no progress ---------------------------------------------------------------------------

    def _check_later(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._clock.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        self._is_checking = False
        self._look_at_senders()
        now_s = self._clock.monotonic()
        for receiver, (_, _, since_s) in list(self.frames_waiting.items()):
            if now_s - since_s >= WAIT_S:
                self.cut_off_count += 1
                line = f"a request that was announced has waited {WAIT_S:.0f} s for memory: its connection is closed"
                self._given_up.warn(line, "were closed")
            elif not receiver.has_hung_up():
                continue
            self.end_frame(receiver)
            receiver.hang_up()
        is_short = self.is_short
        for receiver, progress in list(self._receiving.items()):
            filled = receiver.frame_filled()
            if filled >= progress.mark + (GROWTH_BYTES if is_short else 1):
                progress.mark, progress.since_s = filled, now_s
            elif not is_short and receiver.is_paused():
                progress.since_s = now_s  # it waits for an answer of ours, such as that of a long fetch
            elif now_s - progress.since_s >= (STALL_S if is_short else FRAME_STALL_S):
                self._cut_off(receiver, now_s - progress.since_s, "a request that is announced does not come")
        self._check_senders(now_s, is_short)
        if self._receiving or self._sending or self.frames_waiting:
            self._check_later()

    def _check_senders(self, now_s: float, is_short: bool) -> None:
        freed = 0
        must_wait, self._has_refused = self._has_refused or bool(self._for_room), False
        for sender, progress in sorted(self._sending.items(), key=lambda item: item[1].taken, reverse=True):
            if progress.taken <= progress.mark - GROWTH_BYTES:
                progress.since_s = now_s
                progress.mark = progress.taken
            progress.mark = max(progress.mark, progress.taken)
            is_in_the_way = (self._held and not self._has_room_without(freed)) or (
                must_wait and self.used - freed > self.bytes_max // 4 * 3
            )
            stalled_s = now_s - progress.since_s
            if stalled_s >= (HELD_STALL_S if is_in_the_way else STALL_S) and is_short:
                freed += progress.taken  # given back once the connection is lost
                self._cut_off(sender, stalled_s, "what it asked for is not taken")

    def _cut_off(self, one: Receiver | Sender, stalled_s: float, reason: str) -> None:
        self.cut_off_count += 1
        one.cut_off(f"{reason}, for {stalled_s:.0f} s")

    # --- for metrics -------------------------------------------------------------------------------------------------

    def shares(self) -> Iterable[tuple[str, int]]:
        """How many connections do what."""
        yield "receiving", len(self._receiving)
        yield "waiting", len(self.frames_waiting)
        yield "sending", len(self._sending)
        yield "held", len(self._held)
        yield "queued", self.objects_waiting

"""The output of one connection: what waits to be written to the peer, and whether the peer reads it.

All parts that become ready in one turn of the event loop leave in one write at its end, in the order of the calls.
An answer that must keep the order of requests has a *place*: it leaves when it is ready and no place before it is
empty.  Until then whatever is large counts in the memory of all connections.  Once it has left, its request has ended
(`backpressure.py`).

**A slow peer** does not read what it is sent; the connection reports that.  The session then sends only what cannot
wait (`is_writable`, `when_writable`).  Once `untaken_bytes_max` bytes of that have piled up, no more is read from the
peer.  Bytes that the socket has not taken count in the memory of all connections.  While memory is short, that also
limits the time for which a peer may read nothing (`base/memory_budget.py`, `server/connection.py`).  While the untaken
bytes of all peers fill the memory, what can wait is sent to no peer.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, Generic, Protocol, TypeVar

from magnetar.protocols.backpressure import Backpressure
from magnetar.protocols.door import Buffer
from magnetar.protocols.traffic import Traffic

UNSENT_BYTES_MAX: Final = 4 << 20  # in this turn's write: above it, the peer is not writable now
JOIN_BYTES_MAX: Final = 16 << 10  # an answer up to this size is joined: cheaper than many parts
JOIN_PART_BYTES_MAX: Final = 2 << 10  # so are parts without a place that are smaller on average


class Writing(Protocol):
    """The writing side of a connection."""

    def send(self, parts: list[Buffer]) -> None: ...


class Place:
    """One request's place in the order of answers."""

    __slots__ = ("counted_bytes", "parts", "request_bytes")

    def __init__(self, request_bytes: int) -> None:
        self.request_bytes = request_bytes  # the size with which back-pressure counts the request
        self.parts: list[Buffer] | None = None  # the answer, once it is ready; empty when none is due
        self.counted_bytes = 0  # bytes of the answer that count in the memory of all connections


AnyPlace = TypeVar("AnyPlace", bound=Place)


class Outbox(Generic[AnyPlace]):
    """See the module's text."""

    __slots__ = (
        "_backpressure", "_counted_bytes", "_is_closed", "_is_scheduled", "_is_slow", "_memory", "_parts", "_size",
        "_tells_writable", "_traffic", "_untaken_bytes", "_untaken_bytes_max", "_writing", "places", "when_writable",
    )  # fmt: skip

    def __init__(
        self, writing: Writing, traffic: Traffic, backpressure: Backpressure, untaken_bytes_max: int = 0
    ) -> None:
        """If `untaken_bytes_max` is 0, nothing is read from a slow peer."""
        self._writing = writing
        self._traffic = traffic
        self._memory = traffic.memory
        self._backpressure = backpressure
        self._untaken_bytes_max = untaken_bytes_max
        self._parts: list[Buffer] = []
        self._size = 0  # of `_parts`
        self._counted_bytes = 0  # of `_parts`: they count in the memory of all connections
        self.places: deque[AnyPlace] = deque()  # in the order in which their requests began
        self._is_scheduled = False
        self._is_closed = False
        self._is_slow = False
        self._untaken_bytes = 0
        self.when_writable: set[Callable[[], None]] = set()  # called when `is_writable` is true again
        self._tells_writable = False  # because `is_writable` was asked, and was false

    # --- what is to be sent ------------------------------------------------------------------------------------------

    def put(self, parts: list[Buffer], size: int) -> None:
        """Send `size` bytes at the end of this turn; no part may change afterwards."""
        if self._is_closed:
            return
        self._traffic.sent_bytes += size
        self._parts += parts
        self._size += size
        if size > JOIN_BYTES_MAX:
            self._counted_bytes += size
            self._memory.take_answer(size)
        if self._is_slow:
            self._leave_untaken(size)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._traffic.at_turn_end(self.flush)

    def fill(self, place: Place, parts: list[Buffer], size: int) -> None:
        """Fill `place` with its answer; the outbox must not be closed, and no part may change afterwards."""
        self._traffic.sent_bytes += size
        if size <= JOIN_BYTES_MAX:
            place.parts = [b"".join(parts)] if parts else parts
        else:
            place.parts = parts
            place.counted_bytes = size
            self._memory.take_answer(size)
        if not self._is_scheduled and self.places[0].parts is not None:
            self._is_scheduled = True
            self._traffic.at_turn_end(self.flush)

    def flush(self) -> None:
        """Send what is ready now."""
        self._is_scheduled = False
        self._traffic.turns.end_pass()
        out = self._parts
        if out:
            if len(out) > 1 and self._size < JOIN_PART_BYTES_MAX * len(out):
                out = [b"".join(out)]
            self._parts, self._size = [], 0
        counted_bytes, self._counted_bytes = self._counted_bytes, 0
        count = request_bytes = 0
        places = self.places
        if places:
            backpressure = self._backpressure
            out = [*out]  # it may be `_parts` itself
            while places and (parts := places[0].parts) is not None:
                place = places.popleft()
                out += parts
                counted_bytes += place.counted_bytes
                request_bytes += place.request_bytes
                count += 1
                if place is backpressure.at_work:
                    backpressure.at_work = None
        if counted_bytes:
            self._memory.give_answer(counted_bytes)  # from here on the socket counts them
        if out:
            self._writing.send(out)
        if count:
            self._backpressure.ended(request_bytes, count)
        if self._tells_writable:
            self._tell_writable()

    # --- whether the peer takes it -----------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        """Whether data that can wait may be sent now; if not, all functions in `when_writable` are called when it
        may.
        """
        memory, unsent_bytes_max = self._memory, UNSENT_BYTES_MAX
        is_filling = memory.used > memory.bytes_max >> 1  # so it is mostly decided without a call
        if is_filling:
            # All connections have their part of what is left.
            unsent_bytes_max = min(unsent_bytes_max, max(memory.response_bytes_max(), 1))
        is_writable = not self._is_slow and self._size < unsent_bytes_max
        if not is_writable:
            self._tells_writable = True
        elif is_filling and memory.is_crowded:
            is_writable = False
            memory.tell_when_room(self._tell_writable)
        return is_writable

    def peer_is_slow(self, slow: bool) -> None:
        """The peer does not read what it is sent (True), or does again (False)."""
        self._is_slow = slow
        self._untaken_bytes = 0
        if slow:
            self._leave_untaken(0)
        else:
            self._backpressure.outbox_is_full = False
            self._backpressure.resume_if_possible()
            if self._tells_writable:
                self._tell_writable()

    def _leave_untaken(self, size: int) -> None:
        self._untaken_bytes += size
        if self._untaken_bytes >= self._untaken_bytes_max:
            self._backpressure.outbox_is_full = True
            self._backpressure.pause()

    def _tell_writable(self) -> None:
        if self.is_writable:
            self._tells_writable = False
            for callback in list(self.when_writable):
                callback()

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> Collection[AnyPlace]:
        """Send no more; returns the places whose answers have not left, and ends their requests."""
        self._is_closed = True
        self._parts.clear()
        self.when_writable.clear()
        self._memory.tell_no_more(self._tell_writable)
        self._memory.give_answer(self._counted_bytes)
        self._counted_bytes = 0
        places, self.places = self.places, deque()
        for place in places:
            self._memory.give_answer(place.counted_bytes)
            self._backpressure.ended(place.request_bytes)
        return places

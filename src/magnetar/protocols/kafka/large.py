"""Requests and responses of very many elements: worked on without holding up other connections.

Reading a hundred thousand elements takes the better part of a second, and so does writing them.  Both happen on a
thread, one message at a time and with rests (`base/pacing.py`).  To let go of so many objects at once is one step of
the interpreter, of 10 ms and more; so they go on that thread, too, a few at a time, whatever becomes of the request.
What a handler does with elements is the loop's work, as everything is that touches state.  It is done in pieces, one
piece of one request per turn of the loop, however many connections ask for as much (`LargeMessages.turn`).

A handler whose answer is the sum of the answers to its parts says so (`PIECES`), and is simply asked piece by piece.
Others count for themselves (Metadata, Fetch, Produce) or take no more elements than they can handle in one go: a
message's budget is in its codec (`wire/kafka/runtime.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from magnetar.base.pacing import Pace
from magnetar.wire.kafka.runtime import Buffer, Message, changed

LARGE_REQUEST_BYTES: Final = 16 << 10  # 4,000 elements at most; fewer are not worth a thread
ELEMENTS_AT_ONCE: Final = 1_000  # up to there a handler does not divide its work
ELEMENTS_PER_TURN: Final = 100  # otherwise: half a millisecond of it
CRUMB_BYTES: Final = 2048  # parts that are smaller on average are joined
PARTS_AT_ONCE: Final = 1_000  # a tenth of a millisecond

T = TypeVar("T")


class Pieces(NamedTuple):
    """Where a request can be cut: `asked` names its array, `inner` an array of each element that is cut as well (empty:
    none), and `answered` the array of the response where the answers to all pieces are put one after the other.
    """

    asked: str
    inner: str
    answered: str


class Large(NamedTuple):
    """A response of very many elements."""

    response: Any


class Encoded(NamedTuple):
    """A response as it goes on the wire, the header left out."""

    parts: list[Buffer]


class LargeMessages:
    """See the module's text; one for each service."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._pace = Pace(monotonic)
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="magnetar-large", initializer=self._pace.enter
        )
        self._lane = asyncio.Lock()
        self._is_closed = False
        self.turns = 0  # pieces of work done
        self.elements_in_turn_max = 0  # of the largest

    async def decode(self, decode: Callable[[], T]) -> T:
        """What `decode` makes of a request; give it to `let_go_of` afterwards."""
        made: list[T] = []
        try:
            await self.work(lambda: made.append(decode()))
        except asyncio.CancelledError:
            self._let_go_of_all(made)
            raise
        return made.pop()

    async def work(self, work: Callable[[], T]) -> T:
        """What `work` returns, which may be `paced`, on the thread."""
        if self._is_closed:
            raise asyncio.CancelledError  # as what was queued when it was closed
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def encode(
        self, encode: Callable[[int, Any, list[Buffer]], None], version: int, response: object
    ) -> Encoded:
        """The elements of a `Large` response are gone afterwards."""

        def work() -> Encoded:
            parts: list[Buffer] = []
            if isinstance(response, Large):
                encode(version, response.response, parts)
                _take_apart(response.response, self._pace.rest_if_due, with_inner=False)
            else:
                encode(version, response, parts)
            return Encoded(_joined(parts, self._pace.rest_if_due))

        return await self.work(work)

    def let_go_of(self, request: Any) -> None:
        """Free what `request` holds, which is needed no longer: its arrays are empty afterwards.

        That is before anything else is decoded.
        """
        self._let_go_of_all([request])

    def _let_go_of_all(self, requests: list[Any]) -> None:
        """What is in the list when the thread gets to it."""

        def work() -> None:
            for request in requests:
                _take_apart(request, self._pace.rest_if_due)

        if not self._is_closed:
            self._thread.submit(work)

    def close(self) -> None:
        """Begin nothing more, and cancel what is queued: its clients will get no answer, so the stop need not wait."""
        self._is_closed = True
        self._pace.hurry()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def turn(self, element_count: int) -> AsyncIterator[None]:
        """Work on so many elements inside; the next piece of work gets another turn of the event loop."""
        async with self._lane:
            self.turns += 1
            self.elements_in_turn_max = max(self.elements_in_turn_max, element_count)
            yield
            await asyncio.sleep(0)

    async def each(self, elements: Sequence[T], work: Callable[[T], object]) -> None:
        """`work` on all elements, `ELEMENTS_PER_TURN` in each turn of the loop."""
        for start in range(0, len(elements), ELEMENTS_PER_TURN):
            some = elements[start : start + ELEMENTS_PER_TURN]
            async with self.turn(len(some)):
                for element in some:
                    work(element)

    async def in_pieces(self, ask: Callable[[Any], Any], request: Any, pieces: Pieces) -> Large:
        """The answer to `request`, put together from those to pieces of it, which `ask` gives or promises."""
        whole: Any = None
        for size, piece in cut(request, pieces):
            async with self.turn(size):
                answer = ask(piece)
            if isinstance(answer, Awaitable):
                answer = await answer
            if whole is None:
                whole = answer
            else:
                getattr(whole, pieces.answered).extend(getattr(answer, pieces.answered))
        return Large(whole)


def _arrays_of(element: object) -> tuple[str, ...]:
    """Names of the arrays that a message has; anything else has none."""
    return element.arrays if isinstance(element, Message) else ()


def _take_apart(message: Any, rest_if_due: Callable[[], None], *, with_inner: bool = True) -> None:
    """Empty the arrays of a message, a few elements at a time, and before that `with_inner` those of its elements."""
    for name in _arrays_of(message):
        array = getattr(message, name)
        holds_arrays = with_inner and array and _arrays_of(array[0])
        while array:
            rest_if_due()
            last = array[-ELEMENTS_PER_TURN:]
            del array[-ELEMENTS_PER_TURN:]
            if holds_arrays:
                for element in last:
                    _take_apart(element, rest_if_due)


def _joined(parts: list[Buffer], rest_if_due: Callable[[], None]) -> list[Buffer]:
    """The same bytes in fewer parts, unless the parts are long; `parts` is empty afterwards."""
    last_first: list[Buffer] = []
    while parts:
        rest_if_due()
        some = parts[-PARTS_AT_ONCE:]
        del parts[-PARTS_AT_ONCE:]
        if sum(map(len, some)) < len(some) * CRUMB_BYTES:
            last_first.append(b"".join(some))
        else:
            last_first += reversed(some)
    last_first.reverse()
    return last_first


def cut(request: Any, pieces: Pieces) -> Iterator[tuple[int, Any]]:
    """(elements, request with only these) for all of `request`; at least one."""
    piece: list[Any] = []
    size = 0
    for element in getattr(request, pieces.asked):
        inner = getattr(element, pieces.inner) if pieces.inner else ()
        position = 0
        while True:
            some = inner[position : position + ELEMENTS_PER_TURN - size]
            position += len(some)
            size += len(some) + 1
            piece.append(element if len(some) == len(inner) else changed(element, **{pieces.inner: some}))
            if size >= ELEMENTS_PER_TURN:
                yield size, changed(request, **{pieces.asked: piece})
                piece, size = [], 0
            if position >= len(inner):
                break
    if piece or not getattr(request, pieces.asked):
        yield size, changed(request, **{pieces.asked: piece})

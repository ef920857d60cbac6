"""Requests and responses with very many elements, without delay for other connections.

Decoding a hundred thousand elements takes most of a second, and so does encoding them.  Both happen on a thread, one
message at a time and with pauses (`base/pacing.py`).  To free so many objects at once is one step of the interpreter,
of 10 ms or more.  So that thread frees them, too, a few at a time, however the request ends.  A handler's work on
elements runs on the loop, like everything that touches state.  It is done in pieces, one piece of one request in each
turn of the loop, however many connections send such requests (`LargeMessages.turn`).

If the answer to a request is the concatenation of the answers to its parts, the handler declares that (`PIECES`), and
is called piece by piece.  Other handlers divide their work themselves (Metadata, Fetch, Produce), or accept no more
elements than they can handle at once: a message's limit is in its codec (`wire/kafka/runtime.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from magnetar.base.lane import Lane
from magnetar.base.pacing import Pace
from magnetar.base.thread_time import counted
from magnetar.wire.kafka.runtime import Buffer, Message, changed

LARGE_REQUEST_BYTES: Final = 16 << 10  # at most 4,000 elements; fewer are not worth a thread
ELEMENTS_AT_ONCE: Final = 1_000  # up to this number a handler does not divide its work
ELEMENTS_PER_TURN: Final = 100  # otherwise: 0.5 ms of work
CRUMB_BYTES: Final = 2048  # parts that are smaller on average are joined
PARTS_AT_ONCE: Final = 1_000  # 0.1 ms

T = TypeVar("T")


class Pieces(NamedTuple):
    """Where a request can be cut.  `asked` names its array; `inner` an array of each element that is cut, too (empty:
    none).  `answered` names the array of the response in which the answers to all pieces are joined.
    """

    asked: str
    inner: str
    answered: str


def _nothing() -> None: ...


class Large(NamedTuple):
    """A response of very many elements; `give_back` is called when its objects are gone."""

    response: Any
    give_back: Callable[[], None] = _nothing


class Encoded(NamedTuple):
    """An encoded response without its header."""

    parts: list[Buffer]


class LargeMessages:
    """See the module's text; one for each service."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._pace = Pace(monotonic)
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="magnetar-large", initializer=self._pace.enter
        )
        self._lane = Lane()
        self._is_closed = False
        self.elements_in_turn_max = 0  # of the largest turn

    async def decode(self, decode: Callable[[], T]) -> T:
        """Run `decode` on the thread; the caller must pass the result to `let_go_of` afterwards."""
        made: list[T] = []
        try:
            await self.work(lambda: made.append(decode()))
        except asyncio.CancelledError:
            self._let_go_of_all(made)
            raise
        return made.pop()

    async def work(self, work: Callable[[], T]) -> T:
        """Run `work`, which may be `paced`, on the thread; returns its result."""
        if self._is_closed:
            raise asyncio.CancelledError  # like work that was queued when it was closed
        return await asyncio.get_running_loop().run_in_executor(self._thread, counted(work))

    async def encode(
        self, encode: Callable[[int, Any, list[Buffer]], None], version: int, response: object
    ) -> Encoded:
        """Encode a `Large` response on the thread, which empties the response's arrays."""

        def work() -> Encoded:
            parts: list[Buffer] = []
            if isinstance(response, Large):
                encode(version, response.response, parts)
                _take_apart(response.response, self._pace.rest_if_due, with_inner=False)
            else:
                encode(version, response, parts)
            return Encoded(_joined(parts, self._pace.rest_if_due))

        try:
            return await self.work(work)
        finally:
            if isinstance(response, Large):
                response.give_back()

    def let_go_of(self, request: Any) -> None:
        """Free the elements of `request`, which is not needed any more; its arrays are empty afterwards.

        The thread does this before it decodes another request.
        """
        self._let_go_of_all([request])

    def _let_go_of_all(self, requests: list[Any]) -> None:
        """Free all requests that are in the list when the thread runs this."""

        def work() -> None:
            for request in requests:
                _take_apart(request, self._pace.rest_if_due)

        if not self._is_closed:
            self._thread.submit(work)

    def close(self) -> None:
        """Begin no more work, and cancel queued work: its clients get no answer, so the stop need not wait."""
        self._is_closed = True
        self._pace.hurry()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def turns(self) -> int:
        """How many pieces of work were done."""
        return self._lane.pieces

    @asynccontextmanager
    async def turn(self, element_count: int) -> AsyncIterator[None]:
        """A context for work on `element_count` elements; the next such context gets another turn of the event loop."""
        async with self._lane.piece():
            self.elements_in_turn_max = max(self.elements_in_turn_max, element_count)
            yield

    async def each(self, elements: Sequence[T], work: Callable[[T], object]) -> None:
        """Call `work` for each element, `ELEMENTS_PER_TURN` in each turn of the loop."""
        for start in range(0, len(elements), ELEMENTS_PER_TURN):
            some = elements[start : start + ELEMENTS_PER_TURN]
            async with self.turn(len(some)):
                for element in some:
                    work(element)

    async def each_piece(self, pieces: Iterator[T], work: Callable[[T], object]) -> None:
        """Take pieces of about `ELEMENTS_PER_TURN` elements, and call `work` for each, in a turn of its own."""
        self.elements_in_turn_max = max(self.elements_in_turn_max, ELEMENTS_PER_TURN)
        await self._lane.each(pieces, work)

    async def in_pieces(self, ask: Callable[[Any], Any], request: Any, pieces: Pieces) -> Large:
        """The answer to `request`, joined from the answers to its pieces, which `ask` returns or awaits."""
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
    """The names of a message's arrays; empty for any other object."""
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
    """The same bytes in fewer parts, unless the parts are long already; empties `parts`."""
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
    """Yields pairs (number of elements, request with only these), at least one, for all of `request`."""
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

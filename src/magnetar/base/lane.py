"""Long work on the event loop, piece by piece: one piece in each turn of the loop, however many ask for such work.

`base/turns.py` shares a pass of the loop among connections.  A `Lane` is for work that one request causes and that
grows with what is stored: its owner cuts it into pieces of about a millisecond.  A lane for work that can wait rests
between its pieces, so that all of it together takes no more than its share of the server's time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from heapq import merge
from itertools import islice
from typing import Final, TypeVar

from magnetar.base.clock import Clock, sleep

TEXTS_PER_PIECE: Final = 1_000  # a millisecond at most to make, to sort or to encode

T = TypeVar("T")


class Lane:
    """See the module's text."""

    def __init__(self, clock: Clock | None = None, *, rest: int = 0) -> None:
        """With a clock, the lane rests behind each piece, `rest` times as long as the piece took."""
        self._clock = clock
        self._rest = rest
        self._lock = asyncio.Lock()  # it is fair: it goes to waiters in the order in which they came
        self.pieces = 0  # how many were done

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """A context for one piece of work; the next such context gets another turn of the event loop."""
        async with self._lock:
            self.pieces += 1
            if self._clock is None:
                yield
                await asyncio.sleep(0)
            else:
                began_s = self._clock.monotonic()
                yield
                await sleep(self._clock, self._rest * (self._clock.monotonic() - began_s))

    async def rest(self) -> None:
        """A caller whose pieces may wait for other things, too, calls this between them: its next piece gets a turn in
        which no other caller does one.
        """
        async with self.piece():
            pass

    async def each(self, pieces: Iterator[T], work: Callable[[T], object]) -> None:
        """Take the pieces, and call `work` for each; to take one is a part of its work.  None is no piece."""
        while True:
            async with self.piece():
                one = next(pieces, None)
                if one is None:
                    return
                work(one)

    async def in_order(self, pieces: Iterator[list[str]]) -> list[str]:
        """The texts of all pieces, ascending.  To sort very many at once would be one step of the interpreter."""
        runs: list[list[str]] = []
        await self.each(pieces, lambda texts: runs.append(sorted(texts)))
        if len(runs) <= 1:
            return runs[0] if runs else []
        merged = merge(*runs)
        ordered: list[str] = []
        await self.each(cut(merged), ordered.extend)
        return ordered


def cut(items: Iterable[T], size: int = TEXTS_PER_PIECE) -> Iterator[list[T]]:
    """The items in pieces of `size`; the last one may be shorter."""
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece

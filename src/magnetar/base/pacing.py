"""Long work on a thread, done with rests, so that the event loop hardly ever waits for the interpreter.

A thread that computes gives the interpreter up half a millisecond after another one has asked for it.  The event loop
gives it up with each send and receive: beside such a thread, a pass that has sixty sockets to read waits sixty times.
A thread with a `Pace` works for `WORK_S` and then waits for `REST_S`.  So most sends and receives find the interpreter
free, and the others wait for a fraction of that.  The thread's work takes two to four times as long; only the client
that asked for so much work notices that.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

WORK_S: Final = 0.0001
REST_S: Final = 0.0002
PACED_MIN: Final = 32  # fewer elements are not worth a call
_ELEMENTS_BETWEEN_LOOKS: Final = 32  # at a microsecond each, about

T = TypeVar("T")

_here = threading.local()


class Pace:
    """Of one thread, which calls `enter` before its work.

    `monotonic` gives seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._hurry = threading.Event()
        self._over_s = 0.0

    def enter(self) -> None:
        """What is `paced` on the calling thread rests from now on."""
        _here.pace = self

    def hurry(self) -> None:
        """Do not rest any more: the server is stopping."""
        self._hurry.set()

    def rest_if_due(self) -> None:
        if self._monotonic() >= self._over_s:
            self._hurry.wait(REST_S)
            self._over_s = self._monotonic() + WORK_S

    def each(self, elements: Sequence[T]) -> Iterator[T]:
        for start in range(0, len(elements), _ELEMENTS_BETWEEN_LOOKS):
            self.rest_if_due()
            yield from elements[start : start + _ELEMENTS_BETWEEN_LOOKS]


def paced(elements: Sequence[T]) -> Iterable[T]:
    """The same elements; on a thread that has a `Pace`, with rests in between."""
    pace: Pace | None = getattr(_here, "pace", None)
    return elements if pace is None else pace.each(elements)

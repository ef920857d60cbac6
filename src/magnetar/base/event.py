"""What happens in one part, and what parts that are made after it do then.

No part gets in its constructor what is made after it.  So it has an event, and the later part, which gets the earlier
one, hears the event in its own constructor.  Once all parts are made, each event has all that will ever hear it: no
other code hangs a hook on it, and none leaves (`tests/unit/house/test_wiring.py`).

Parts that hear an event are called in the order in which they were made.  If one raises an exception, the later ones
are not called, and the part where it happens gets the exception.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVarTuple

_What = TypeVarTuple("_What")


class Event(Generic[*_What]):
    """See the module's text.  It happens with values of these types."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: list[Callable[[*_What], object]] = []

    def hear(self, act: Callable[[*_What], object]) -> None:
        """Call this each time when it happens."""
        self._heard.append(act)

    def happened(self, *what: *_What) -> None:
        """It has happened: return when all parts that hear it have acted."""
        for act in self._heard:
            act(*what)


class AwaitedEvent(Generic[*_What]):
    """An event that is over when all parts that hear it have done, one after the other, what they have to wait for."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: list[Callable[[*_What], Awaitable[None]]] = []

    def hear(self, act: Callable[[*_What], Awaitable[None]]) -> None:
        """Call this, and await it, each time when it happens."""
        self._heard.append(act)

    async def happened(self, *what: *_What) -> None:
        """It has happened: return when all parts that hear it have acted."""
        for act in self._heard:
            await act(*what)

"""What callers still do with rights that were checked once: producers, consumers, waiting fetches, watchers of
topics, leases.

When rules change, each is checked again, and ended if its caller has lost the right.  This takes at most a few
milliseconds of the event loop at a time, because they are checked in turns.  Nothing is checked for each message.
Without rules nothing is kept here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from magnetar.base.event import Event
from magnetar.base.tasks import Tasks

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 256  # rights that are asked for before others have their turn


class _Held(NamedTuple):
    answers: Callable[[], Iterable[bool]]
    send_away: Callable[[], None]


class Standing:
    """See the module's text.  `has_rules`: whether rights can change at all; `rights_changed` happens when they do."""

    def __init__(self, rights_changed: Event[()], *, has_rules: bool) -> None:
        self.has_rules = has_rules
        self._held: WeakKeyDictionary[object, _Held] = WeakKeyDictionary()
        self._tasks = Tasks(_log)
        self._is_looking = False
        self._looks_again = False
        self.changes = 0  # of rights: where it grew while a caller came in, the right is asked for again
        self._changed: Final[Event[()]] = Event()
        self.hear: Final = self._changed.hear  # by which doors and use cases hear of each change of rights
        rights_changed.hear(self.changed)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, handle: object, is_permitted: Callable[[], bool], send_away: Callable[[], None]) -> None:
        """Check this right again until `handle` is dropped, or no other object holds it.  `send_away` is called once
        the right is gone.
        """
        self.add_several(handle, partial(_only, is_permitted), send_away)

    def add_several(
        self, handle: object, answers: Callable[[], Iterable[bool]], send_away: Callable[[], None]
    ) -> None:
        """As `add`, for several rights: `answers` says of each whether the caller has it.  They are checked one by
        one, with turns of the event loop in between, up to the first that is gone.
        """
        if self.has_rules:
            self._held[handle] = _Held(answers, send_away)

    def drop(self, handle: object) -> None:
        """The handle has ended by itself."""
        self._held.pop(handle, None)

    def changed(self) -> None:
        """Rights have changed: check everything again.  Changes that come meanwhile are handled together."""
        self.changes += 1
        self._changed.happened()
        if self._is_looking:
            self._looks_again = True
        elif self._held:
            self._is_looking = True
            self._tasks.spawn("look at rights again", self._look())

    async def _look(self) -> None:
        try:
            asked = 0
            self._looks_again = True
            while self._looks_again:
                self._looks_again = False
                for handle, held in list(self._held.items()):
                    for is_permitted in held.answers() if handle in self._held else ():
                        if not is_permitted:
                            self.drop(handle)
                            held.send_away()
                            break
                        asked += 1
                        if asked % _AT_ONCE == 0:
                            await asyncio.sleep(0)
                            if handle not in self._held:
                                break
        finally:
            self._is_looking = False

    async def close(self) -> None:
        """Check nothing any more: the server stops."""
        self._tasks.cancel()
        await self._tasks.ended()


def _only(is_permitted: Callable[[], bool]) -> tuple[bool]:
    return (is_permitted(),)

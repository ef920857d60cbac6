"""Subscriptions by regular expression, resolved by the server (KIP-848).

A pattern is matched against the whole name of each topic, as the client is shown it, and finds the topics that the
client may describe; those of the server's own are left out.  RE2 runs it: in time linear in the name, whatever the
pattern.

What a pattern finds is looked up beside the heartbeats, some names in each turn of the loop, with rests, so that
patterns take a quarter of the server's time at most, however many there are.  They take turns of the same length: one
that was made to be slow does not keep those of others waiting until it has gone through all names.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from magnetar.base.clock import Clock, sleep
from magnetar.base.patterns import whole_matcher

PATTERN_OVERHEAD_BYTES: Final = 1024
FOUND_BYTES: Final = 300  # what is kept of a topic that a pattern finds
_NAMES_PER_TURN: Final = 1000
_TURN_S: Final = 0.002
_REST: Final = 3  # times as long as the turn was
_PAUSE_S: Final = 1.0  # between two looks, at least
_PAUSES: Final = 50  # times as long as the look took
_LOOK_S_MAX: Final = 600.0  # rights may have changed


class InvalidPattern(ValueError):
    """It costs too much, or RE2 does not take it; the text says why."""


class ShownTopics(Protocol):
    @property
    def changes(self) -> int: ...

    def shown(self) -> Iterable[tuple[str, str]]:
        """The full name of each topic of a client, and how clients are shown it."""
        ...


class Pattern:
    """What members of a group that are the same client to the server's rules subscribe to by one expression.

    `topics` are the full names that it has found; `changes` says as of which change of the topics, -1 for never.
    """

    __slots__ = (
        "changes",
        "due_s",
        "is_resolving",
        "looked_s",
        "may_see",
        "owner",
        "text",
        "topics",
        "users",
    )

    def __init__(self, text: str, owner: str, may_see: Callable[[str], bool]) -> None:
        self.text = text
        self.owner = owner
        self.may_see = may_see
        self.topics: frozenset[str] = frozenset()
        self.changes = -1
        self.looked_s = 0.0
        self.due_s = 0.0
        self.is_resolving = False
        self.users = 0

    @property
    def key(self) -> tuple[str, str]:
        return self.text, self.owner

    def is_due(self, changes: int, now_s: float) -> bool:
        """Whether it is to be resolved again: topics have come or gone, or rights may have changed."""
        if self.is_resolving or now_s < self.due_s:
            return False
        return self.changes != changes or now_s >= self.looked_s + _LOOK_S_MAX


def matcher(text: str) -> Callable[[str], bool]:
    """Whether a topic's name, as clients are shown it, is meant.

    Raises:
        InvalidPattern
    """
    try:
        return whole_matcher(text)
    except ValueError as error:
        raise InvalidPattern(str(error)) from None


class Resolver:
    """Finds the topics of patterns: see the module's text."""

    def __init__(self, clock: Clock, topics: ShownTopics) -> None:
        self._clock = clock
        self._topics = topics
        self._lane = asyncio.Lock()

    async def resolve(self, pattern: Pattern, found: Callable[[Pattern, frozenset[str]], None]) -> None:
        """Call `found` with the full names of what it finds."""
        pattern.is_resolving = True
        try:
            changes = self._topics.changes
            topics, took_s = await self._look(pattern)
            now_s = self._clock.monotonic()
            pattern.changes, pattern.looked_s = changes, now_s
            pattern.due_s = now_s + max(_PAUSE_S, _PAUSES * took_s)
            found(pattern, topics)
        finally:
            pattern.is_resolving = False

    async def _look(self, pattern: Pattern) -> tuple[frozenset[str], float]:
        """What it finds, and how long that took with its rests, but without the turns of others."""
        found: list[str] = []
        names: Iterator[tuple[str, str]] | None = None
        matches: Callable[[str], bool] | None = None
        all_s = 0.0
        while True:
            async with self._lane:  # which is given to those that wait for it in the order in which they came
                began_s = self._clock.monotonic()
                if matches is None or names is None:
                    matches, names = matcher(pattern.text), iter(self._topics.shown())
                is_over = self._turn(pattern, names, matches, found, began_s)
                took_s = self._clock.monotonic() - began_s
                all_s += (1 + _REST) * took_s
                if is_over:
                    return frozenset(found), all_s
                await sleep(self._clock, _REST * took_s)

    def _turn(
        self,
        pattern: Pattern,
        names: Iterator[tuple[str, str]],
        matches: Callable[[str], bool],
        found: list[str],
        began_s: float,
    ) -> bool:
        """Look at some more names; whether these were the last ones."""
        for number, (full, shown) in enumerate(names, 1):
            if matches(shown) and pattern.may_see(full):
                found.append(full)
            if number == _NAMES_PER_TURN or self._clock.monotonic() - began_s > _TURN_S:
                return False
        return True

"""Subscriptions by regular expression, resolved by the server (KIP-848).

A pattern is matched against the whole name of each topic, as the client is shown it, and finds the topics that the
client may describe; those of the server's own are left out.  RE2 runs it: in time linear in the name, whatever the
pattern.

What a pattern finds is looked up beside the heartbeats, a few names in each turn of the loop and one pattern at a time,
with rests, so that patterns take a quarter of the server's time at most, however many there are.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from magnetar.base.clock import Clock, sleep
from magnetar.base.patterns import whole_matcher

PATTERN_OVERHEAD_BYTES: Final = 1024
FOUND_BYTES: Final = 300  # what is kept of a topic that a pattern finds
_NAMES_PER_TURN: Final = 100
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
            async with self._lane:
                began_s = self._clock.monotonic()
                changes = self._topics.changes
                topics = await self._look(pattern)
                now_s = self._clock.monotonic()
                pattern.changes, pattern.looked_s = changes, now_s
                pattern.due_s = now_s + max(_PAUSE_S, _PAUSES * (now_s - began_s))
                found(pattern, topics)
        finally:
            pattern.is_resolving = False

    async def _look(self, pattern: Pattern) -> frozenset[str]:
        matches = matcher(pattern.text)
        topics = []
        turn_s = self._clock.monotonic()
        for number, (full, shown) in enumerate(self._topics.shown(), 1):
            if matches(shown) and pattern.may_see(full):
                topics.append(full)
            took_s = self._clock.monotonic() - turn_s
            if number % _NAMES_PER_TURN == 0 or took_s > _TURN_S:
                await sleep(self._clock, _REST * took_s)
                turn_s = self._clock.monotonic()
        return frozenset(topics)

"""Subscriptions by regular expression, resolved by the server (KIP-848).

A pattern is matched against the whole name of each topic, as clients see it.  It finds the topics that the client may
describe, without the server's own.  RE2 runs it, in time linear in the name, whatever the pattern.

Patterns are resolved independently of heartbeats: some names in each turn of the loop, with pauses, so that all
patterns together take at most a quarter of the server's time.  They take turns of equal length, so that a slow
pattern does not delay the others until it has gone through all names.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeAlias

from magnetar.base.clock import Clock
from magnetar.base.lane import Lane
from magnetar.base.patterns import whole_matcher
from magnetar.broker.groups.viewer import Viewer, ViewerKey

PATTERN_OVERHEAD_BYTES: Final = 1024
FOUND_BYTES: Final = 300  # what a found topic takes in memory
_NAMES_PER_TURN: Final = 1000
_TURN_S: Final = 0.002
_REST: Final = 3  # times as long as the turn was
_PAUSE_S: Final = 1.0  # between two looks, at least
_PAUSES: Final = 50  # times as long as the look took
_LOOK_S_MAX: Final = 600.0  # whatever is known to have changed


PatternKey: TypeAlias = tuple[str, ViewerKey]


class InvalidPattern(ValueError):
    """The pattern costs too much, or RE2 refuses it; the text says why."""


class ShownTopics(Protocol):
    @property
    def changes(self) -> int: ...

    def shown(self) -> Iterable[tuple[str, str]]:
        """The full name of each topic except the server's own, and the name that clients see."""
        ...


class Pattern:
    """A regular expression to which members of a group subscribe; only members with the same rights share one.

    `topics` are the full names that it has found; `changes` is the catalogue's change at that time, -1 for never: then
    they are what is known from before.
    """

    __slots__ = (
        "changes",
        "due_s",
        "is_resolving",
        "looked_s",
        "text",
        "topics",
        "users",
        "viewer",
    )

    def __init__(self, text: str, viewer: Viewer, topics: Iterable[str] = ()) -> None:
        self.text = text
        self.viewer = viewer
        self.topics = frozenset(topics)
        self.changes = -1
        self.looked_s = 0.0
        self.due_s = 0.0
        self.is_resolving = False
        self.users = 0

    @property
    def key(self) -> PatternKey:
        return self.text, self.viewer.key

    def is_due(self, changes: int, now_s: float) -> bool:
        """Whether the server must resolve it again: topics have come or gone, or rights have changed, or may have."""
        if self.is_resolving or now_s < self.due_s:
            return False
        return self.changes != changes or now_s >= self.looked_s + _LOOK_S_MAX


def matcher(text: str) -> Callable[[str], bool]:
    """A function that returns whether the pattern `text` matches a topic's name, as clients see it.

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
        self._lane = Lane(clock, rest=_REST)

    async def resolve(self, pattern: Pattern, found: Callable[[Pattern, frozenset[str]], None]) -> None:
        """Call `found` with the full names of the topics that the pattern finds."""
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
        """The topics that it finds, and how many seconds that took, with pauses but without the turns of other
        patterns.
        """
        found: list[str] = []
        names: Iterator[tuple[str, str]] | None = None
        matches: Callable[[str], bool] | None = None
        all_s = 0.0
        is_over = False
        while not is_over:
            async with self._lane.piece():
                began_s = self._clock.monotonic()
                if matches is None or names is None:
                    matches, names = matcher(pattern.text), iter(self._topics.shown())
                is_over = self._turn(pattern, names, matches, found, began_s)
                all_s += (1 + _REST) * (self._clock.monotonic() - began_s)
        return frozenset(found), all_s

    def _turn(
        self,
        pattern: Pattern,
        names: Iterator[tuple[str, str]],
        matches: Callable[[str], bool],
        found: list[str],
        began_s: float,
    ) -> bool:
        """Match the next names; returns whether these were the last ones."""
        may_see = pattern.viewer.may_see
        for number, (full, shown) in enumerate(names, 1):
            if matches(shown) and may_see(full):
                found.append(full)
            if number == _NAMES_PER_TURN or self._clock.monotonic() - began_s > _TURN_S:
                return False
        return True

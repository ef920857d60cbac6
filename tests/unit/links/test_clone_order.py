"""The order in which a program that copies works, whatever its source is."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from magnetar.links.clone import Clone, Wanted
from magnetar.links.errors import SourceUnavailable
from magnetar.links.port import Copy, End, Found, FoundCopy, Place, SourceTopic

PLACE = ("t", 0)


class World:
    """A source with one empty partition, and its copy; `done` says what was asked of both."""

    def __init__(self, *, are_held_first: bool) -> None:
        self.are_held_first = are_held_first
        self.trouble = ""
        self.done: list[str] = []
        self.is_silent = False  # it says no positions

    def topics(self, is_wanted: Callable[[str], bool]) -> Sequence[SourceTopic]:
        return [SourceTopic("t", 1, "o", None)]

    def begins_at(self, place: Place, since_ms: int | None) -> int:
        return 0

    def goes_on_at(self, place: Place, end: int) -> int:
        return end

    def lag(self, place: Place, end: int) -> int:
        return 0

    def assign(self, offsets: Mapping[Place, int]) -> None:
        self.done.append("assign")

    def read(self, wait_s: float) -> Iterator[Any]:
        self.done.append("read")
        yield End(*PLACE, 0)

    def declare(self, topic: SourceTopic) -> Found:
        self.done.append("declare")
        return Found([FoundCopy(0, 0, is_new=True)], {})

    def send(self, place: Place, copy: Copy, items: Sequence[Any], source_end: int) -> int:
        return 0

    def positions(self, copies: Mapping[Place, Copy]) -> Iterator[tuple[str, Sequence[Any]]]:
        if self.is_silent:
            raise SourceUnavailable("no positions")
        yield "t", ["of a group"]

    def set_positions(self, topic: str, positions: Sequence[Any]) -> str:
        self.done.append("positions")
        return ""

    def report(self, topic: str, lag: int, error: str) -> None:
        self.done.append(f"report {error}")


@pytest.mark.parametrize("are_held_first", [False, True])
def test_subscriptions_that_hold_messages_are_made_before_the_first_message_comes(
    are_held_first: bool,
) -> None:
    """Otherwise retention could delete old messages before their subscription is there to hold them."""
    world = World(are_held_first=are_held_first)
    links: Any = world
    Clone(world, world, links, Wanted("a", bool, "t"), print).run()
    first = ["positions"] if are_held_first else []
    assert world.done == ["declare", "assign", *first, "read", "report ", "positions", "report "]


class Enough(Exception):
    """The test has seen what it wants to see."""


def test_a_program_that_follows_copies_on_if_the_source_does_not_say_positions() -> None:
    world = World(are_held_first=False)
    world.is_silent = True
    links: Any = world
    clock = itertools.count(0.0, 3.0)
    said: list[str] = []

    def now() -> float:
        if world.done.count("read") == 20:
            raise Enough
        return next(clock)

    copying = Clone(world, world, links, Wanted("a", bool, "t", follows=True), said.append, monotonic=now)
    with pytest.raises(Enough):
        copying.run()
    assert world.done.count("assign") == 1, "it did not begin again"
    assert "report no positions" in world.done
    assert any("no positions; it is tried again" in one for one in said)

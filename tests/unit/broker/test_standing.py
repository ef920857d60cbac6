"""What callers go on doing is asked about again when rights change, with turns for others in between."""

import asyncio
from collections.abc import Iterator

import pytest

from magnetar.base.event import Event
from magnetar.broker.usecases.standing import Standing

AT_ONCE = 256


class Handle:
    """Something that a caller goes on doing."""


def test_a_long_look_leaves_turns_to_others() -> None:
    asked: list[int] = []

    def answers() -> Iterator[bool]:
        for number in range(4 * AT_ONCE):
            asked.append(number)
            yield True

    async def main() -> None:
        standing = Standing(Event(), has_rules=True)
        handle = Handle()
        standing.add_several(handle, answers, pytest.fail)
        standing.changed()
        turns = []
        while len(asked) < 4 * AT_ONCE:
            before = len(asked)
            await asyncio.sleep(0)
            turns.append(len(asked) - before)
        assert max(turns) == AT_ONCE
        await standing.close()
        assert len(standing) == 1

    asyncio.run(main())


def test_the_first_right_that_is_gone_ends_it_once() -> None:
    ended: list[str] = []

    async def main() -> None:
        standing = Standing(Event(), has_rules=True)
        kept, gone = Handle(), Handle()
        standing.add_several(kept, lambda: (True, True), lambda: ended.append("kept"))
        standing.add_several(gone, lambda: (True, False, False), lambda: ended.append("gone"))
        standing.changed()
        standing.changed()
        await standing._tasks.ended()
        assert ended == ["gone"]
        assert len(standing) == 1
        await standing.close()

    asyncio.run(main())


def test_what_has_ended_by_itself_meanwhile_is_not_ended_again() -> None:
    """One that is being asked about, and one whose turn comes later."""
    ended: list[str] = []

    def answers() -> Iterator[bool]:
        yield from [True] * AT_ONCE
        yield False

    async def main() -> None:
        standing = Standing(Event(), has_rules=True)
        handles = [Handle(), Handle()]
        standing.add_several(handles[0], answers, lambda: ended.append("asked about"))
        standing.add(handles[1], lambda: False, lambda: ended.append("later"))
        standing.changed()
        await asyncio.sleep(0)
        for handle in handles:
            standing.drop(handle)
        await standing._tasks.ended()
        assert not ended

    asyncio.run(main())


def test_without_rules_nothing_is_kept() -> None:
    standing = Standing(Event(), has_rules=False)
    standing.add(Handle(), bool, pytest.fail)
    assert len(standing) == 0

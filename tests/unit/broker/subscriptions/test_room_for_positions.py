"""Room for the positions that are written at one time: who waits for it gets it in order, and gives it back."""

import asyncio
from collections.abc import Callable

from magnetar.broker.subscriptions.stored_positions import RANGES_AT_ONCE, SAVES_AT_ONCE, _Room

from .driver import settle

LEAST = RANGES_AT_ONCE // SAVES_AT_ONCE


class Held:
    """Who has room, until each is told to leave."""

    def __init__(self) -> None:
        self.room = _Room()
        self.inside: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.when_left: Callable[[], object] = lambda: None

    def begin(self, name: str, ranges: int) -> asyncio.Task[None]:
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._hold(name, ranges))

    async def _hold(self, name: str, ranges: int) -> None:
        async with self.room.held(ranges):
            self.inside.append(name)
            await self.ends[name].wait()
            self.inside.remove(name)
        self.when_left()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settle()


def test_room_is_given_in_order_and_one_that_needs_all_of_it_gets_it() -> None:
    async def main() -> None:
        held = Held()
        tasks = [
            held.begin(name, ranges)
            for name, ranges in (
                ("a", LEAST),
                ("b", RANGES_AT_ONCE - LEAST),
                ("c", 1),
                ("huge", 2 * RANGES_AT_ONCE),
                ("d", 1),
            )
        ]
        await settle()
        assert held.inside == ["a", "b"]
        await held.end("b")
        assert held.inside == ["a", "c"]
        await held.end("c")
        assert held.inside == ["a"], "who needs all of it is the next"
        await held.end("a")
        assert held.inside == ["huge"]
        await held.end("huge")
        assert held.inside == ["d"]
        await held.end("d")
        await asyncio.gather(*tasks)
        assert held.room._taken == 0

    asyncio.run(main())


def test_who_gives_up_while_it_waits_for_room_keeps_nobody_waiting() -> None:
    async def main() -> None:
        held = Held()
        tasks = [held.begin(name, ranges) for name, ranges in (("a", 1), ("huge", RANGES_AT_ONCE), ("b", 1))]
        await settle()
        assert held.inside == ["a"]
        tasks[1].cancel()
        await settle()
        assert tasks[1].cancelled()
        assert held.inside == ["a", "b"]
        tasks.append(held.begin("c", 1))
        await settle()
        assert held.inside == ["a", "b", "c"]
        for name in "abc":
            await held.end(name)
        assert held.room._taken == 0

    asyncio.run(main())


def test_who_gives_up_just_when_it_gets_room_gives_it_back() -> None:
    async def main() -> None:
        held = Held()
        names = ("a", "b", "c")
        tasks = [held.begin(name, RANGES_AT_ONCE) for name in names]
        await settle()
        held.when_left = tasks[1].cancel
        await held.end("a")
        assert tasks[1].cancelled()
        assert held.inside == ["c"]
        await held.end("c")
        assert held.room._taken == 0

    asyncio.run(main())

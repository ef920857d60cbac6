"""An event calls all that hear it, in the order in which they came."""

import asyncio

import pytest

from magnetar.base.event import AwaitedEvent, Event


def test_all_that_hear_are_called_in_order_with_what_has_happened() -> None:
    told: list[tuple[str, str, int]] = []
    event: Event[str, int] = Event()
    event.happened("before", 0)
    event.hear(lambda name, count: told.append(("first", name, count)))
    event.hear(lambda name, count: told.append(("second", name, count)))
    event.happened("it", 1)
    assert told == [("first", "it", 1), ("second", "it", 1)]


def test_a_failure_reaches_the_part_where_it_happened() -> None:
    told: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    event: Event[()] = Event()
    event.hear(lambda: told.append(1))
    event.hear(fail)
    event.hear(lambda: told.append(2))
    with pytest.raises(ZeroDivisionError):
        event.happened()
    assert told == [1]


def test_an_awaited_event_waits_for_each_before_the_next_begins() -> None:
    told: list[str] = []

    async def scenario() -> None:
        event: AwaitedEvent[str] = AwaitedEvent()
        release = asyncio.Event()

        async def slow(name: str) -> None:
            told.append(f"slow begins with {name}")
            await release.wait()
            told.append("slow ends")

        async def quick(name: str) -> None:
            told.append(f"quick has {name}")

        event.hear(slow)
        event.hear(quick)
        happening = asyncio.ensure_future(event.happened("it"))
        await asyncio.sleep(0)
        assert told == ["slow begins with it"]
        release.set()
        await happening

    asyncio.run(scenario())
    assert told == ["slow begins with it", "slow ends", "quick has it"]

"""Waiting on a clock for work that goes on."""

import asyncio

import pytest

from magnetar.base.clock import wait_at_most
from magnetar.testing.clock import FakeClock


async def begun(clock: FakeClock, work: "asyncio.Future[int]") -> "asyncio.Task[None]":
    waiting = asyncio.ensure_future(wait_at_most(clock, 3, work))
    await asyncio.sleep(0)
    return waiting


@pytest.mark.parametrize("ends", ["result", "error", "cancelled"])
def test_the_end_of_the_work_ends_the_wait_and_is_the_callers_to_look_at(ends: str) -> None:
    async def main() -> None:
        clock, work = FakeClock(), asyncio.get_running_loop().create_future()
        waiting = await begun(clock, work)
        if ends == "result":
            work.set_result(1)
        elif ends == "error":
            work.set_exception(ValueError())
        else:
            work.cancel()
        await waiting
        assert all(timer.cancelled for _, _, timer in clock._timers)
        if ends == "error":
            assert isinstance(work.exception(), ValueError)

    asyncio.run(main())


def test_the_wait_ends_by_the_clock_and_the_work_does_not() -> None:
    async def main() -> None:
        clock, work = FakeClock(), asyncio.get_running_loop().create_future()
        waiting = await begun(clock, work)
        clock.advance(2.9)
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(0.1)
        await waiting
        assert not work.done()

    asyncio.run(main())


def test_a_caller_that_is_cancelled_leaves_the_work_alone() -> None:
    async def main() -> None:
        clock, work = FakeClock(), asyncio.get_running_loop().create_future()
        waiting = await begun(clock, work)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not work.done()
        assert all(timer.cancelled for _, _, timer in clock._timers)

    asyncio.run(main())

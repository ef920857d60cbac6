"""Periodic work that fails, and tasks that end: told, and tried again."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.base.upkeep import BACK_OFF_S_MAX, Upkeep
from magnetar.testing.clock import FakeClock


class Bench:
    """A job whose next runs do what the test says."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.upkeep = Upkeep(self.clock)
        self.outcomes: list[BaseException | None] = []
        self.runs: list[float] = []

    async def work(self) -> None:
        self.runs.append(self.clock.monotonic())
        await asyncio.sleep(0)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome

    async def advance(self, seconds: float, step_s: float = 1.0) -> None:
        for _ in range(round(seconds / step_s)):
            self.clock.advance(step_s)
            await self.upkeep.idle()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError(), KeyError("x"), asyncio.CancelledError()]
)
def test_a_job_that_fails_unforeseen_is_said_once_and_tried_again_until_it_succeeds(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot and the retention loop died of the first exception that was no BrokerError, without a word."""

    async def scenario() -> None:
        bench = Bench()
        job = bench.upkeep.every(10, "retention", bench.work)
        await bench.advance(10)
        assert (bench.runs, bench.upkeep.problem) == ([10], None)
        bench.outcomes = [error] * 3
        await bench.advance(10)
        problem = bench.upkeep.problem
        assert problem is not None
        assert "retention has failed once since 2023-11-14T22:13:40+00:00" in problem
        assert type(error).__name__ in problem
        await bench.advance(10 + 20)
        assert bench.runs == [10, 20, 30, 50], "later each time"
        assert "3 times since 2023-11-14T22:13:40" in (bench.upkeep.problem or "")
        await bench.advance(40)
        assert (bench.runs[-1], bench.upkeep.problem) == (90, None)
        await bench.advance(10)
        assert (bench.runs[-1], job.failures_total) == (100, 3)
        assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.INFO]
        assert caplog.records[0].exc_info is not None
        await bench.upkeep.stop()

    with caplog.at_level(logging.INFO):
        run(scenario())


def test_a_job_that_always_fails_is_still_tried_now_and_then() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.outcomes = [ValueError()] * 10_000
        bench.upkeep.every(1, "often", bench.work)
        bench.upkeep.every(1000, "seldom", bench.work)
        await bench.advance(20_000, 100)
        waits = [after - before for before, after in zip(bench.runs, bench.runs[1:], strict=False)]
        assert max(waits) <= BACK_OFF_S_MAX + 100
        assert len(bench.runs) > 60
        await bench.upkeep.stop()

    run(scenario())


def test_runs_of_a_job_do_not_overlap_and_a_stop_ends_the_one_under_way() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        upkeep = Upkeep(clock)
        running: list[str] = []

        async def work() -> None:
            running.append("began")
            try:
                await asyncio.Event().wait()
            finally:
                running.append("ended")

        upkeep.every(1, "slow", work)
        for _ in range(5):
            clock.advance(1)
            await asyncio.sleep(0)
        assert running == ["began"]
        await upkeep.stop()
        assert running == ["began", "ended"]
        clock.advance(100)
        assert running == ["began", "ended"]
        assert upkeep.problem is None

    run(scenario())


def test_a_job_that_is_wanted_soon_runs_at_once_and_again_an_interval_later() -> None:
    async def scenario() -> None:
        bench = Bench()
        job = bench.upkeep.every(10, "retention", bench.work)
        await bench.advance(4)
        began_s = bench.clock.monotonic()
        job.soon()
        job.soon()  # it is at work
        await bench.upkeep.idle()
        assert bench.runs == [began_s]
        await bench.advance(10)
        assert bench.runs == [began_s, began_s + 10]
        await job.stop()
        job.soon()
        await bench.upkeep.idle()
        assert len(bench.runs) == 2

    run(scenario())


@pytest.mark.parametrize("error", [None, OSError("no more files")])
def test_a_task_that_ends_by_itself_is_a_problem(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        upkeep = Upkeep(FakeClock())

        async def ends() -> None:
            if error is not None:
                raise error

        loop = asyncio.get_running_loop()
        task = loop.create_task(ends())
        upkeep.watch("HTTP", task)
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert "The work of HTTP has ended" in (upkeep.problem or "")
        assert len(caplog.records) == 1

    run(scenario())


def test_a_task_that_is_cancelled_or_told_to_end_or_may_end_is_none() -> None:
    async def scenario() -> None:
        upkeep = Upkeep(FakeClock())
        event = asyncio.Event()
        loop = asyncio.get_running_loop()
        cancelled = loop.create_task(asyncio.sleep(1000))
        upkeep.watch("cancelled", cancelled)
        told = loop.create_task(event.wait())
        watch = upkeep.watch("told", told)
        upkeep.watch("short", loop.create_task(asyncio.sleep(0)), may_end=True)
        cancelled.cancel()
        watch.expect_end()
        event.set()
        await asyncio.wait([cancelled, told])
        await asyncio.sleep(0)
        assert upkeep.problem is None

    run(scenario())

"""The lanes in which batches are opened: owners in turn, what is large one at a time, nothing after the end."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.log.opening import LARGE, SMALL, Opener
from magnetar.wire.kafka.record_reader import TooLargeExpanded
from magnetar.wire.kafka.record_scan import Budget
from tests.unit.circles import error_stays


class Gate:
    """Jobs that stay on their thread until they are let go."""

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self.open = threading.Event()
        self.holders: list[asyncio.Task[None]] = []

    async def close(self, threads: int, *, is_large: bool = False) -> None:
        begun = threading.Semaphore(0)

        def hold(budget: Budget) -> None:
            begun.release()
            self.open.wait()

        for number in range(threads):
            work = self.opener.run(("gate", number), hold, is_large=is_large)
            self.holders.append(asyncio.ensure_future(work))
        for _ in range(threads):
            await asyncio.to_thread(begun.acquire)


def running(scenario: Callable[[Opener, Gate], Any]) -> None:
    async def main() -> None:
        opener = Opener()
        gate = Gate(opener)
        try:
            await scenario(opener, gate)
        finally:
            gate.open.set()
            opener.close()
            await asyncio.gather(*gate.holders, return_exceptions=True)

    asyncio.run(main())


def test_what_a_job_raises_keeps_nothing_of_it() -> None:
    """The error had the future that had brought it, and the job, with a client's batch, for good."""

    def job(budget: Budget) -> None:
        raise StorageError("it cannot be opened")

    async def opened(opener: Opener) -> None:
        try:
            await opener.run("owner", job)
        finally:
            for _ in range(5):
                await asyncio.sleep(0.001)  # the thread's part of it

    async def scenario(opener: Opener, gate: Gate) -> None:
        assert not await error_stays(StorageError, lambda: opened(opener))

    running(scenario)


@pytest.mark.parametrize("is_large", [False, True])
def test_owners_take_turns_however_many_jobs_one_of_them_has(is_large: bool) -> None:
    async def scenario(opener: Opener, gate: Gate) -> None:
        # One thread is left to the jobs, so their order is the order of their ends.
        await gate.close(0 if is_large else 1)
        order: list[str] = []
        begun, first = threading.Event(), threading.Event()

        def note(name: str) -> Callable[[Budget], None]:
            def job(budget: Budget) -> None:
                if name == "a0":
                    begun.set()
                    first.wait()
                order.append(name)

            return job

        waiting = [
            asyncio.ensure_future(opener.run(name[0], note(name), is_large=is_large))
            for name in ("a0", "a1", "a2", "a3", "b0", "b1", "c0")
        ]
        await asyncio.to_thread(begun.wait)
        assert opener.waiting == 6
        first.set()
        await asyncio.gather(*waiting)
        # While a0 was at work a1 was first in line; from then on each owner is behind those that came later.
        assert order == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]

    running(scenario)


def test_what_exceeds_the_small_budget_begins_anew_with_the_large_one() -> None:
    async def scenario(opener: Opener, gate: Gate) -> None:
        budgets = []

        def job(budget: Budget) -> str:
            budgets.append(budget)
            if budget == SMALL:
                raise TooLargeExpanded("for this one")
            return "done"

        assert await opener.run(1, job) == "done"
        assert budgets == [SMALL, LARGE]
        assert (opener.small_done, opener.large_done) == (1, 1)

    running(scenario)


def test_small_jobs_do_not_wait_for_a_large_one_and_large_ones_run_one_at_a_time() -> None:
    async def scenario(opener: Opener, gate: Gate) -> None:
        await gate.close(1, is_large=True)
        large = asyncio.ensure_future(opener.run(1, lambda budget: "large", is_large=True))
        assert await opener.run(2, lambda budget: "small") == "small"
        assert not large.done()
        assert opener.waiting == 1
        gate.open.set()
        assert await large == "large"

    running(scenario)


def test_a_job_that_no_caller_waits_for_any_more_is_not_begun() -> None:
    async def scenario(opener: Opener, gate: Gate) -> None:
        await gate.close(2)
        begun: list[str] = []
        given_up = asyncio.ensure_future(opener.run(1, lambda budget: begun.append("given up")))
        kept = asyncio.ensure_future(opener.run(1, lambda budget: begun.append("kept")))
        await asyncio.sleep(0)
        given_up.cancel()
        gate.open.set()
        await kept
        assert begun == ["kept"]

    running(scenario)


def test_what_a_job_raises_reaches_its_owner_and_the_next_one_runs() -> None:
    async def scenario(opener: Opener, gate: Gate) -> None:
        def fail(budget: Budget) -> None:
            raise ValueError("bad")

        for _ in range(5):
            with pytest.raises(ValueError, match="bad"):
                await opener.run(1, fail)
        assert await opener.run(1, lambda budget: 1) == 1

    running(scenario)


def test_closed_it_begins_nothing_and_no_caller_waits_for_ever() -> None:
    async def scenario(opener: Opener, gate: Gate) -> None:
        await gate.close(2)
        waiting = asyncio.ensure_future(opener.run(1, lambda budget: 1))
        await asyncio.sleep(0)
        opener.close()
        with pytest.raises(StorageError):
            await waiting
        with pytest.raises(StorageError):
            await opener.run(1, lambda budget: 1)

    running(scenario)

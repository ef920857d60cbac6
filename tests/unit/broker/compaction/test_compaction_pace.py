"""How fast a run of compaction may be, and what becomes of its thread."""

import asyncio
import threading

import pytest

from magnetar.broker.compaction.run import CompactionThread, Progress
from magnetar.testing.clock import FakeClock


def test_a_run_waits_until_as_many_bytes_may_have_been_handled() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        progress = Progress(clock, 100.0)
        await progress.wait()  # nothing is owed at the beginning: no time has to pass
        for more in ("noted_bytes", "read_bytes", "written_bytes"):
            setattr(progress, more, 200)
            waiting = asyncio.ensure_future(progress.wait())
            await asyncio.sleep(0)
            clock.advance(1.75)
            await asyncio.sleep(0)
            assert not waiting.done(), more
            clock.advance(0.25)
            await waiting
        clock.advance(10.0)
        await progress.wait()  # it is behind what it may have done

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_what_waits_for_the_thread_is_given_up_when_it_closes() -> None:
    async def scenario() -> None:
        thread = CompactionThread(FakeClock().monotonic)
        has_begun, may_end = threading.Event(), threading.Event()

        def hold() -> str:
            has_begun.set()
            may_end.wait()
            return "held"

        at_work = asyncio.ensure_future(thread.run(hold))
        queued = asyncio.ensure_future(thread.run(hold))
        await asyncio.get_running_loop().run_in_executor(None, has_begun.wait)
        thread.close()
        may_end.set()
        assert await at_work == "held"
        with pytest.raises(asyncio.CancelledError):
            await queued

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_work_rests_until_the_thread_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        asked = 0

        def monotonic() -> float:
            nonlocal asked
            asked += 1
            return 0.0

        thread = CompactionThread(monotonic)
        rests: list[float] = []
        hurry = thread._pace._hurry
        monkeypatch.setattr(hurry, "wait", rests.append)
        await thread.run(thread.rest)
        assert asked == 2
        assert len(rests) == 1
        assert not hurry.is_set()
        thread.close()
        assert hurry.is_set()

    asyncio.run(asyncio.wait_for(scenario(), 30))

"""Background tasks have an owner: it hears of failures, and waits or cancels."""

import asyncio
import gc
import logging

import pytest

from magnetar.base.tasks import Tasks

log = logging.getLogger("magnetar.owner")


async def fail() -> None:
    raise RuntimeError("our own bug")


def test_a_failure_is_logged_with_the_name_of_the_work(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tasks = Tasks(log)
        tasks.spawn("sweep the floor", fail())
        await tasks.ended()
        assert not tasks

    asyncio.run(scenario())
    (line,) = caplog.records
    assert (line.name, line.getMessage()) == ("magnetar.owner", "background work failed: sweep the floor")
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], RuntimeError)


def test_a_failure_that_a_caller_hears_of_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tasks = Tasks(log)
        heard = tasks.begin("sweep the floor", fail())
        tasks.begin("and no caller waits for this", fail())
        with pytest.raises(RuntimeError, match="our own bug"):
            await heard
        await tasks.ended()
        gc.collect()  # a task that failed unseen says so when it goes

    asyncio.run(scenario())
    assert caplog.records == []


def test_work_that_begins_while_its_owner_waits_is_waited_for_as_well() -> None:
    async def scenario() -> None:
        tasks = Tasks(log)
        done: list[int] = []

        async def work(left: int) -> None:
            await asyncio.sleep(0)
            if left:
                tasks.spawn("more", work(left - 1))
            done.append(left)

        tasks.spawn("some", work(3))
        await tasks.ended()
        assert done == [3, 2, 1, 0]

    asyncio.run(scenario())


def test_what_is_cancelled_ends_and_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tasks = Tasks(log)
        tasks.spawn("wait", asyncio.Event().wait())
        (task,) = tasks
        tasks.cancel()
        await tasks.ended()
        assert task.cancelled()

    asyncio.run(scenario())
    assert caplog.records == []


def test_an_owner_keeps_its_tasks_alive() -> None:
    async def scenario() -> None:
        tasks = Tasks(log)

        async def waits_for_itself() -> None:
            await asyncio.get_running_loop().create_future()  # nothing else knows this future

        tasks.spawn("wait", waits_for_itself())
        await asyncio.sleep(0)
        gc.collect()
        assert len(tasks) == 1
        tasks.cancel()
        await tasks.ended()

    asyncio.run(scenario())

"""The journal's end, and reports that raise: no append waits for ever, and nothing is released twice."""

import asyncio
import errno
import logging

import pytest

from magnetar.base.errors import StorageError

from .helpers import in_a_loop
from .played_journal import Played


@pytest.mark.parametrize("is_started", [True, False])
def test_a_second_stop_ends_too_and_releases_nothing_again(is_started: bool) -> None:
    async def scenario() -> None:
        on = Played()
        if is_started:
            on.journal.start()
            on.append(100, 0)
        async with asyncio.timeout(5):
            await asyncio.gather(on.journal.stop(), on.journal.stop())
            await on.journal.stop()
        assert [file.calls.count("close") for file in on.files] == [1] * 3

    asyncio.run(scenario())


@in_a_loop
async def test_a_stop_that_is_cancelled_goes_on_and_the_next_one_waits_for_it() -> None:
    on = Played()
    on.journal.start()
    on.files[0].gate.clear()
    on.append(100, 0)
    first = asyncio.ensure_future(on.journal.stop())
    await asyncio.sleep(0)
    await asyncio.to_thread(on.files[0].waits.wait)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    on.files[0].gate.set()
    async with asyncio.timeout(5):
        await on.journal.stop()
    assert on.told == [(1, 1, None)]
    assert [file.calls.count("close") for file in on.files] == [1] * 3
    assert not on.journal._worker._thread.is_alive()


@pytest.mark.parametrize("is_started", [True, False])
def test_a_file_that_cannot_be_closed_keeps_no_other_one_open(
    is_started: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        on = Played()
        on.files[0].close_fails = OSError(errno.EIO, "the disk is gone")
        if is_started:
            on.journal.start()
        async with asyncio.timeout(5):
            await on.journal.stop()
        assert [file.calls.count("close") for file in on.files] == [1] * 3
        assert not on.journal._worker._thread.is_alive()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert [record.message.split(":")[0] for record in caplog.records] == ["journal file could not be closed"]


@pytest.mark.parametrize("is_started", [True, False])
def test_behind_the_end_an_append_is_refused(is_started: bool) -> None:
    async def scenario() -> None:
        on = Played()
        if is_started:
            on.journal.start()
        await on.journal.stop()
        with pytest.raises(StorageError, match="closed"):
            on.append(100, 0)
        assert on.journal.queued_bytes == 0

    asyncio.run(scenario())


@in_a_loop
async def test_an_append_from_the_last_report_is_answered_or_refused() -> None:
    on = Played()
    on.journal.start()
    refused: list[StorageError] = []

    def append_another() -> None:
        try:
            on.append(100, 1)
        except StorageError as error:
            refused.append(error)

    on.journal._on_reported = append_another
    on.append(100, 0)
    await on.journal.stop()
    assert on.told == [(1, 1, None)]
    assert len(refused) == 1
    assert on.journal.queued_bytes == 0


@in_a_loop
async def test_a_report_that_raises_is_told_of_and_keeps_none_from_those_behind_it() -> None:
    on = Played(files=1, blocks=1)
    bugs = [RuntimeError("one"), RuntimeError("two")]
    raised = iter(bugs)
    report = on.journal._on_round

    def broken(*told: object) -> None:
        report(*told)  # type: ignore[arg-type]
        for bug in raised:
            raise bug

    on.journal._on_round = broken
    on.journal.start()
    on.files[0].gate.clear()
    on.append(100, 0)
    await asyncio.sleep(0)
    await asyncio.to_thread(on.files[0].waits.wait)
    on.append(100, 1)
    on.journal.refuse_when_full(True)  # the second round fails at once, and both are reported together
    on.files[0].gate.set()
    async with asyncio.timeout(5):
        await on.rounds_told(2)
    await asyncio.sleep(0)
    assert [error is None for _, _, error in on.told] == [True, False]
    assert on.failures == bugs
    assert on.journal.queued_bytes == 0
    on.journal.refuse_when_full(False)
    on.journal.recycle(1)
    on.append(100, 1)
    async with asyncio.timeout(5):
        await on.rounds_told(3)
    await on.journal.stop()

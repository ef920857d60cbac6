"""The journal's end: no append waits for ever, and nothing is released twice."""

import asyncio

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

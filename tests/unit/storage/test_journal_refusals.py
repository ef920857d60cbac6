"""What the journal refuses leaves nothing queued."""

import asyncio
import errno
import mmap

import pytest

from magnetar.base.errors import StorageError, StorageFull
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local import rounds
from magnetar.wire.stored import RECORD_BYTES

from .helpers import in_a_loop
from .played_journal import ROUND_MAX, Played


def test_while_checkpoints_fail_what_there_is_no_room_for_is_refused_at_once() -> None:
    """Each record might be alone in its round, and a round that does not fit the end of a file leaves it unused."""

    async def scenario() -> None:
        for waiting in (0, 1000):
            on = Played(files=1, blocks=16)
            if waiting:
                on.append(waiting - RECORD_BYTES)
            on.journal.refuse_when_full(True)
            fits = 16 * BLOCK_BYTES - ROUND_MAX - BLOCK_BYTES - waiting - RECORD_BYTES
            with pytest.raises(StorageFull):
                on.append(fits + 1)
            assert on.journal.queued_bytes == waiting
            on.append(fits)
            await on.journal.stop()

    asyncio.run(scenario())


@in_a_loop
async def test_behind_a_failed_sync_of_rounds_that_were_reported_nothing_is_written() -> None:
    """The power may take them, and with them all that is behind them."""
    on = Played(blocks=1, is_synced=False)
    on.journal.start()
    for number in range(2):
        on.append(100, number)
        await on.rounds_told(number + 1)
    on.files[0].sync_fails = OSError(errno.EIO, "Input/output error")
    on.control()
    await on.rounds_told(3)
    assert [error is None for _, _, error in on.told] == [True, True, False]
    assert on.journal.broken is on.told[2][2]
    assert str(on.journal.broken) == "the journal could not be written: Input/output error"
    with pytest.raises(StorageError, match="the journal cannot be written: the journal could not"):
        on.control()
    await on.journal.stop(is_needed=True)
    assert [file.calls.count("write") for file in on.files] == [1, 1, 1]
    assert on.failures == [], "no fault of the program's"


@pytest.mark.parametrize("failure", [OSError(errno.ENOMEM, "no memory"), MemoryError()])
def test_a_record_that_there_is_no_memory_for_is_refused_and_leaves_its_number_to_the_next(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(size: int) -> mmap.mmap:
        raise failure

    async def scenario() -> None:
        on = Played(blocks=32)
        on.journal.start()
        with monkeypatch.context() as without:
            without.setattr(rounds, "map_memory", no_memory)
            with pytest.raises(StorageError, match="no memory for a record of 12288 bytes"):
                on.append(3 * BLOCK_BYTES, 0)
        assert on.journal.queued_bytes == 0
        on.append(100, 0)
        await on.rounds_told(1)
        on.append(3 * BLOCK_BYTES, 1)
        await on.journal.stop()
        assert on.numbers() == [[0], [1]]

    asyncio.run(scenario())

"""What the journal refuses leaves nothing queued."""

import asyncio
import errno
import mmap

import pytest

from magnetar.base.errors import StorageError, StorageFull
from magnetar.storage.local import rounds
from magnetar.storage.local.format import BLOCK_BYTES, RECORD_BYTES

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

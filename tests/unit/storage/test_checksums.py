"""The checksum of two texts in a row follows from theirs, and what is stored by it is what a plain sum would give."""

import asyncio
import random

import pytest
from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt
from magnetar.storage.local.checksums import joined
from magnetar.storage.store import EntryId

from .conftest import Starter
from .helpers import pattern

CHANCE = random.Random(11)
SIZES = (0, 1, 2, 3, 255, 256, 4095, 65_536, 65_537, 100_003)


@pytest.mark.parametrize("size", SIZES)
def test_the_checksum_of_both_follows_from_those_of_each(size: int) -> None:
    for first_bytes in (0, 1, 40, 4096):
        first, second = CHANCE.randbytes(first_bytes), CHANCE.randbytes(size)
        assert joined(crc32c(first), crc32c(second), size) == crc32c(first + second)


def test_a_text_as_long_as_no_memory_is_counted() -> None:
    """A second text of zeroes, of a length that only its arithmetic knows: sums of halves make the sum of all."""
    zeroes = crc32c(bytes(1 << 20))
    sixty_four = zeroes
    for doubling in range(20, 26):
        sixty_four = joined(sixty_four, sixty_four, 1 << doubling)
    assert sixty_four == crc32c(bytes(1 << 26))


@pytest.mark.parametrize("size", SIZES)
def test_an_entry_whose_last_part_is_summed_already_is_stored_as_any_other(
    start_store: Starter, size: int
) -> None:
    async def scenario() -> None:
        parts = [b"head", b"", pattern(7, size)]
        async with start_store() as store:
            ledger = await store.create()
            for tail_crc in (None, crc32c(parts[-1])):
                done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
                ledger.append(parts, 4 + size, 0, 0, done.set_result, tail_crc)
                assert await done is None
        async with start_store() as store:  # a start looks at each record's checksum
            reader = await store.open(ledger.ledger_id)
            found = [bytes(entry.body) for entry in await reader.read(EntryId(0), 1 << 30)]
            assert found == [b"".join(parts)] * 2

    asyncio.run(scenario())


def test_bytes_that_are_not_those_that_were_summed_are_found(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
            ledger.append([b"head", b"changed since"], 17, 0, 0, done.set_result, crc32c(b"as it was sent"))
            assert await done is None
        async with start_store() as store:
            reader = await store.open(ledger.ledger_id)
            with pytest.raises(EntryCorrupt):
                await reader.read(EntryId(0), 1 << 30)

    asyncio.run(scenario())

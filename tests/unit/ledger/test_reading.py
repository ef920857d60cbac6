"""What readers of a log get, from the cache and from the store, and what they cost."""

from typing import Any

import pytest

from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.storage.store import EntryId, LedgerId
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import Chain, run


@run
async def test_what_is_appended_can_be_read_from_the_cache_and_from_the_store() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=250))
    for _ in range(10):
        await chain.written(3)
    assert chain.log.high_watermark == chain.log.next_offset == 30
    assert await chain.read_all() == [(base, base + 2) for base in range(0, 30, 3)]
    assert len(chain.store.ledgers) > 2
    for offset in range(30):
        base = offset // 3 * 3
        cached = chain.log.read_cached(offset, 1, chain.log.high_watermark)
        assert cached is not None
        assert cached[0].base_offset == base
        assert (await chain.log.read(offset, 1))[0].base_offset == base


@run
async def test_where_a_ledger_begins_is_not_looked_up_and_stale_hints_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=250))
    for _ in range(10):
        await chain.written(3)
    begins = [info.first_offset for info in chain.log.ledgers]
    assert len(begins) > 2
    looked_up = []
    reader = type(next(iter(chain.store.ledgers.values())))
    look_up = reader.entry_for_offset

    async def seen(self: Any, offset: int) -> Any:
        looked_up.append(offset)
        return await look_up(self, offset)

    monkeypatch.setattr(reader, "entry_for_offset", seen)
    for offset in begins:
        chain.log._hints[offset] = (LedgerId(77), EntryId(1))
        assert (await chain.log.read(offset, 1))[0].base_offset == offset
    assert looked_up == []
    assert (await chain.log.read(1, 1))[0].base_offset == 0
    assert looked_up == [1]

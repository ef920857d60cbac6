"""What readers of a log get, from the cache and from the store, and what they cost."""

from typing import Any

import pytest

from magnetar.base.errors import EntryCorrupt, LedgerNotFound
from magnetar.ledger import readable_log
from magnetar.ledger.entry import NO_LEDGER, Entry
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.testing.ledgers import MemoryLedger, MemoryLedgerStore

from .chain import Chain, run


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that ledgers were asked for, one after the other."""
    found: list[int] = []
    look_up = MemoryLedger.entry_for_offset

    async def seen(self: MemoryLedger, offset: int) -> EntryId | None:
        found.append(offset)
        return await look_up(self, offset)

    monkeypatch.setattr(MemoryLedger, "entry_for_offset", seen)
    return found


def reads(chain: Chain) -> int:
    """How many entries were read from the store."""
    return sum(ledger.read_count for ledger in chain.store.ledgers.values())


def limited_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that does not come to its end fails."""
    count = 0
    read = MemoryLedger.read

    async def counted(self: MemoryLedger, *arguments: Any) -> list[StoredEntry]:
        nonlocal count
        count += 1
        assert count < 1000
        return await read(self, *arguments)

    monkeypatch.setattr(MemoryLedger, "read", counted)


def base_of(entry: Entry | None) -> int | None:
    return None if entry is None else entry.base_offset


# --- by offset --------------------------------------------------------------------------------------------------------


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
    looked_up: list[int],
) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=250))
    for _ in range(10):
        await chain.written(3)
    begins = [info.first_offset for info in chain.log.ledgers]
    assert len(begins) > 2
    for offset in begins:
        chain.log._hints[offset] = (LedgerId(77), EntryId(1))
        assert (await chain.log.read(offset, 1))[0].base_offset == offset
    assert looked_up == []
    assert (await chain.log.read(1, 1))[0].base_offset == 0
    assert looked_up == [1]


@run
async def test_a_reader_that_goes_on_where_it_ended_looks_nothing_up(looked_up: list[int]) -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(2, 1, 3, 1, 2)
    offset = 0
    while offset < chain.log.high_watermark:
        (found,) = await chain.log.read(offset, 1)
        assert found.base_offset == offset
        offset = found.last_offset + 1
    assert looked_up == []


@run
async def test_the_places_of_the_latest_readers_are_remembered(
    looked_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable_log, "_READ_HINTS_MAX", 2)
    chain = Chain(MemoryLedgerStore())
    await chain.written(*[1] * 10)
    for offset in (2, 4, 6):
        await chain.log.read(offset, 1)
    assert looked_up == [2, 4, 6]
    for offset in (7, 5):
        assert (await chain.log.read(offset, 1))[0].base_offset == offset
    assert looked_up == [2, 4, 6]
    await chain.log.read(3, 1)
    assert looked_up == [2, 4, 6, 3]


@run
async def test_a_reader_whose_ledger_was_replaced_looks_its_place_up() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2))
    for _ in range(6):
        await chain.written(1)
    assert [one.base_offset for one in await chain.log.read(0, 1)] == [0]
    await chain.compact(2, [1, 3])
    assert [one.base_offset for one in await chain.log.read(1, 1)] == [1]
    assert chain.log.rewrite_count == 1


@run
async def test_offsets_that_a_ledger_has_lost_are_an_error_however_their_place_is_found() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(1, 1, 1)
    await chain.log.read(0, 1)  # the place of offset 1 is remembered
    (ledger,) = chain.store.ledgers.values()
    del ledger.entries[1:]
    ledger.appended = 1
    with pytest.raises(EntryCorrupt, match="ends before offset 1"):
        await chain.log.read(1, 1)
    with pytest.raises(EntryCorrupt, match="has lost offset 2"):
        await chain.log.read(2, 1)


@run
async def test_a_ledger_that_is_missing_is_not_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(1)
    await chain.restart()
    asked: list[LedgerId] = []

    async def missing(ledger_id: LedgerId) -> MemoryLedger:
        asked.append(ledger_id)
        assert len(asked) == 1, "no ledger was replaced"
        raise LedgerNotFound(f"there is no ledger {ledger_id}")

    monkeypatch.setattr(chain.store, "open", missing)
    with pytest.raises(LedgerNotFound):
        await chain.log.read(0, 1)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
@run
async def test_the_entries_at_and_before_an_offset_are_the_readable_ones(cache_bytes: int) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2), cache_bytes=cache_bytes)
    for count in (3, 1, 2, 3, 1, 3):
        await chain.written(count)
    every = await chain.entries()
    end = chain.log.high_watermark
    for start in range(end + 1):
        await chain.log.trim(log_start=start)
        readable = [one for one in every if one.last_offset >= start]
        for offset in range(-1, end + 3):
            at = [one for one in readable if one.last_offset >= offset]
            assert base_of(await chain.log.entry_at(offset)) == base_of(at[0] if at else None)
            before = [one for one in readable if one.last_offset < offset]
            found = await chain.log.entry_before(offset)
            assert base_of(found) == base_of(before[-1] if before else None), (start, offset)


@run
async def test_the_entry_before_an_offset_comes_from_the_cache_if_it_is_there() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(2, 1, 3)
    for offset, base in ((2, 0), (3, 2), (6, 3)):
        assert base_of(await chain.log.entry_before(offset)) == base
    assert reads(chain) == 0


@run
async def test_before_the_start_of_a_log_nothing_is_read_nor_behind_the_offset(looked_up: list[int]) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2), cache_bytes=0)
    for count in (3, 3, 3, 3):
        await chain.written(count)
    assert await chain.log.entry_before(0) is None
    assert reads(chain) == 0
    assert base_of(await chain.log.entry_before(4)) == 0
    assert looked_up == [3, 4], "once for the entry that lies across it, and once in the same ledger"


@run
async def test_the_last_ledger_of_a_log_is_named() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=1))
    assert chain.log.last_ledger_id == NO_LEDGER
    for _ in range(3):
        await chain.written(1)
        assert chain.log.last_ledger_id == chain.log.stored_ids[-1]
    assert len(chain.log.stored_ids) > 1


# --- by time ----------------------------------------------------------------------------------------------------------


@run
async def test_a_search_for_a_time_goes_on_through_a_ledger_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readable_log, "_SEARCH_BYTES", 250)  # two entries
    stamps = [90, 10, 10, 40, 10, 10, 10, 60]
    chain = Chain(MemoryLedgerStore())
    for stamp in stamps:
        chain.append(timestamp_ms=stamp)
    await chain.flush()
    limited_reads(monkeypatch)
    for start in range(len(stamps) + 1):
        for wanted in (10, 40, 50, 60, 61):
            expected = next((at for at in range(start, len(stamps)) if stamps[at] >= wanted), None)
            assert base_of(await chain.log.entry_for_timestamp(wanted, start)) == expected, (start, wanted)


@run
async def test_only_ledgers_that_may_have_it_are_searched_for_a_time(
    looked_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2))
    for stamp in (10, 10, 20, 20, 30, 30):
        chain.append(timestamp_ms=stamp)
        await chain.flush()
    searched: list[LedgerId] = []
    search = MemoryLedger.entry_for_timestamp

    async def seen(self: MemoryLedger, timestamp_ms: int) -> EntryId | None:
        searched.append(self.ledger_id)
        return await search(self, timestamp_ms)

    monkeypatch.setattr(MemoryLedger, "entry_for_timestamp", seen)
    ledgers = chain.log.stored_ids
    assert base_of(await chain.log.entry_for_timestamp(5, 2)) == 2, "the first ledger ends there"
    assert base_of(await chain.log.entry_for_timestamp(30, 0)) == 4, "the others are too old"
    assert searched == [ledgers[1], ledgers[2]]
    assert looked_up == [], "each search began where a ledger does"


# --- epochs -----------------------------------------------------------------------------------------------------------


@run
async def test_what_will_be_written_has_the_new_epoch_and_what_was_written_keeps_its_own() -> None:
    chain = Chain(MemoryLedgerStore())
    assert (chain.log.leader_epoch, chain.log.epoch_at(0)) == (0, 0)
    await chain.written(10)
    await chain.restart()
    assert [chain.log.epoch_at(offset) for offset in (0, 9, 10, 11)] == [0, 0, 1, 1]
    chain.clock.advance(10)
    await chain.log.trim(retention_ms=1000)
    await chain.flush()
    assert chain.log.stored_ids == []
    assert chain.log.epoch_at(5) == 1, "there is no other any more"

"""Where positions lead that clients have kept: to their entry, or to the first readable one behind it."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.base.errors import LedgerNotFound
from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.entry import Entry
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.storage.store import EntryId, LedgerId, LedgerReader, StoredEntry
from magnetar.testing.ledgers import MemoryLedger, MemoryLedgerStore

from .chain import Chain, run

LATEST = (1 << 63) - 1


async def filled(counts: Sequence[int], cache_bytes: int = 0, entries_max: int = 3) -> Chain:
    chain = Chain(
        MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=entries_max), cache_bytes=cache_bytes
    )
    for count in counts:
        await chain.written(count)
    return chain


def positions(chain: Chain) -> list[tuple[LedgerId, EntryId]]:
    """Those of the log's ledgers, of ledgers that it never had, and in front of and behind all of them."""
    ledgers = [-1, 0, *(info.ledger_id for info in chain.log.ledgers), 99, LATEST]
    return [
        (LedgerId(ledger_id), EntryId(entry_id))
        for ledger_id in ledgers
        for entry_id in (LATEST, 3, 2, 1, 0, -1)
    ]


def behind(entries: list[Entry], position: tuple[int, int]) -> int | None:
    """The first offset of the first of these entries that is at or behind a position."""
    return next((one.base_offset for one in entries if (one.ledger_id, one.entry_id) >= position), None)


async def located(chain: Chain, position: tuple[LedgerId, EntryId]) -> int | None:
    found = await chain.log.locate(*position)
    return None if found is None else found.base_offset


@pytest.mark.parametrize("cache_bytes", [0, 700, 1 << 20])
@run
async def test_a_position_leads_to_the_first_readable_entry_at_or_behind_it(cache_bytes: int) -> None:
    chain = await filled([1, 2, 1, 3, 1, 1, 2], cache_bytes)
    every, asked = await chain.entries(), positions(chain)
    for start in range(chain.log.high_watermark + 1):
        await chain.log.trim(log_start=start)
        await chain.flush()
        readable = [one for one in every if one.last_offset >= start]
        for position in asked:
            assert await located(chain, position) == behind(readable, position), (start, position)


@run
async def test_a_cached_entry_is_found_at_exactly_its_position_while_it_is_readable() -> None:
    chain = await filled([1, 2, 1, 3, 1, 1, 2], 1 << 20)
    every, asked = await chain.entries(), positions(chain)
    for start in range(chain.log.high_watermark + 1):
        await chain.log.trim(log_start=start)
        await chain.flush()
        readable = {(one.ledger_id, one.entry_id): one for one in every if one.last_offset >= start}
        for position in asked:
            found = chain.log.locate_cached(*position)
            expected = readable.get(position)
            assert (found and found.base_offset) == (expected and expected.base_offset), (start, position)


@run
async def test_a_message_that_is_not_durable_is_not_found() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(2)
    waiting = chain.append()
    assert waiting.ledger_id in chain.log.stored_ids
    assert await chain.log.locate(waiting.ledger_id, waiting.entry_id) is None
    assert chain.log.locate_cached(waiting.ledger_id, waiting.entry_id) is None
    await chain.flush()
    assert await chain.log.locate(waiting.ledger_id, waiting.entry_id) is waiting
    assert chain.log.locate_cached(waiting.ledger_id, waiting.entry_id) is waiting


@run
async def test_a_ledger_that_ends_at_the_start_of_the_log_is_not_read() -> None:
    chain = await filled([1, 1])
    await chain.log.trim(log_start=2)
    (ledger,) = chain.store.ledgers.values()
    assert await located(chain, (LedgerId(-1), EntryId(-1))) is None
    assert ledger.read_count == 0


# --- compaction -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [[5], [0, 5], [1, 2, 5], [2, 4, 5], [0, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
@run
async def test_positions_from_before_a_compaction_lead_to_what_it_has_left(
    kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = await filled([1] * 9)
    every, asked = await chain.entries(), positions(chain)
    await chain.compact(2, kept)
    left = [one for one in every if one.base_offset in kept or one.base_offset > 5]
    reads = 0
    read = MemoryLedger.read

    async def counted(self: MemoryLedger, *arguments: Any) -> list[StoredEntry]:
        nonlocal reads
        reads += 1
        assert reads < 1000, "a search comes to its end"
        return await read(self, *arguments)

    monkeypatch.setattr(MemoryLedger, "read", counted)
    for position in asked:
        assert await located(chain, position) == behind(left, position), position
    for one in left:
        found = await chain.log.locate(one.ledger_id, one.entry_id)
        assert found is not None
        assert (found.ledger_id, found.entry_id) == (one.ledger_id, one.entry_id)


@run
async def test_of_many_entries_a_few_are_read_to_find_a_position() -> None:
    chain = await filled([1] * 200, entries_max=100)
    kept = sorted({*random.Random(5).sample(range(100), 63), 99})
    (first, *_) = chain.log.ledgers
    await chain.compact(1, kept)
    rewritten = chain.store.ledgers[next(iter(chain.log.ledgers)).stored_id]
    for entry_id in range(100):
        before = rewritten.read_count
        expected = next(base for base in kept if base >= entry_id)
        assert await located(chain, (first.ledger_id, EntryId(entry_id))) == expected
        assert rewritten.read_count - before <= 8, "a search halves what is left, and reads what it has found"


def meanwhile(chain: Chain, info: LedgerInfo, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`change` happens when a reader has this ledger and has read nothing of it yet."""
    reader_of = chain.log._reader
    has_changed = False

    async def slow(wanted: LedgerInfo) -> LedgerReader:
        nonlocal has_changed
        reader = await reader_of(wanted)
        if wanted is info and not has_changed:
            has_changed = True
            await change()
        return reader

    monkeypatch.setattr(chain.log, "_reader", slow)


@pytest.mark.parametrize("how", ["read", "locate", "entry_before", "entry_for_timestamp"])
@run
async def test_a_read_whose_ledger_is_replaced_meanwhile_begins_anew(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = await filled([1, 1, 2, 2, 1], entries_max=1)
    second = list(chain.log.ledgers)[1]
    assert (second.first_offset, second.end_offset) == (2, 4)

    async def compacted() -> None:
        await chain.compact(2, [2])

    meanwhile(chain, second, compacted, monkeypatch)
    found: Entry | None
    match how:
        case "read":
            found = (await chain.log.read(2, 1))[0]
        case "locate":
            found = await chain.log.locate(second.ledger_id, EntryId(0))
        case "entry_before":
            found = await chain.log.entry_before(5)
        case _:
            found = await chain.log.entry_for_timestamp(0, 2)
    assert chain.log.rewrite_count == 1
    assert found is not None
    assert found.base_offset == 2


@run
async def test_a_position_in_a_ledger_that_retention_deletes_meanwhile_leads_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = await filled([1, 1, 1], entries_max=1)
    first = next(iter(chain.log.ledgers))
    assert first.end_offset == 2

    async def trimmed() -> None:
        await chain.log.trim(log_start=2)
        await chain.flush()

    meanwhile(chain, first, trimmed, monkeypatch)
    assert await located(chain, (first.ledger_id, EntryId(0))) == 2
    assert first.stored_id not in chain.store.ledgers


@run
async def test_a_position_in_a_ledger_that_is_lost_is_an_error() -> None:
    """To go on in the next ledger would skip messages without a word."""
    chain = await filled([1, 1, 1], entries_max=1)
    first = next(iter(chain.log.ledgers))
    first.reader = None
    del chain.store.ledgers[first.stored_id]
    with pytest.raises(LedgerNotFound):
        await chain.log.locate(first.ledger_id, EntryId(0))

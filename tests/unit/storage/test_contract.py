"""What every `LedgerStore` promises, whatever it is made of."""

import asyncio
from functools import partial

import pytest

from magnetar.base.errors import LedgerFenced, LedgerNotFound
from magnetar.storage.store import READ_ENTRIES_MAX, EntryId, LedgerId

from .conftest import Starter
from .helpers import append, bodies_of, fill, pattern, read_all


def test_what_was_appended_is_read_back(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            assert await append(ledger, b"first", 4, 77) == 0
            assert await append(ledger, b"", 5, -1) == 1
            assert await append(ledger, b"third", 9, 70) == 2
            entries = await ledger.read(EntryId(0), 1000)
            assert [(e.entry_id, e.last_offset, e.max_timestamp_ms, bytes(e.body)) for e in entries] == [
                (0, 4, 77, b"first"),
                (1, 5, -1, b""),
                (2, 9, 70, b"third"),
            ]
            stat = ledger.stat
            assert (stat.entry_count, stat.size_bytes, stat.last_offset, stat.max_timestamp_ms) == (
                3,
                10,
                9,
                77,
            )
            assert not stat.sealed

    asyncio.run(scenario())


def test_done_is_called_in_the_order_of_appends_over_all_ledgers(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledgers = [await store.create() for _ in range(3)]
            order: list[int] = []
            finished = asyncio.get_running_loop().create_future()

            def done(number: int, error: Exception | None) -> None:
                assert error is None
                assert ledgers[number % 3].stat.entry_count >= number // 3 + 1
                order.append(number)
                if len(order) == 300:
                    finished.set_result(None)

            for number in range(300):
                body = pattern(number, 1 + number * 37)
                ledgers[number % 3].append([body], len(body), number, 0, partial(done, number))
            await finished
            assert order == list(range(300))

    asyncio.run(scenario())


def test_an_entry_is_not_read_before_it_is_done(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            waiting = append(ledger, b"body", 0)
            assert ledger.stat.entry_count == 0
            assert await ledger.read(EntryId(0), 100) == []
            await waiting
            assert ledger.stat.entry_count == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("size", [1, 100, 5000, 40_000, 150_000])
def test_many_entries_survive_flush_seal_and_restart(
    start_store: Starter, sealed: bool, restart: bool, size: int
) -> None:
    count = max(4, min(400, 900_000 // size))
    bodies = [pattern(n, size + n % 7) for n in range(count)]

    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            other = await store.create()
            for start in range(0, count, 50):
                await fill(ledger, bodies[start : start + 50])
                await fill(other, [b"between"])
            if sealed:
                assert (await ledger.seal()).sealed
            if not restart:
                await store.checkpoint()
                assert await bodies_of(ledger) == bodies
                assert await bodies_of(ledger, 1) == bodies
                return
        async with start_store() as store:
            stats = {stat.ledger_id: stat for stat in await store.list_ledgers()}
            assert stats[ledger.ledger_id].entry_count == count
            reader = await store.open(ledger.ledger_id)
            assert reader.stat.sealed
            assert await bodies_of(reader) == bodies
            assert await bodies_of(await store.open(other.ledger_id)) == [b"between"] * -(-count // 50)

    asyncio.run(scenario())


def test_read_keeps_to_the_byte_limit_but_returns_at_least_one(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            await fill(ledger, [pattern(n, 1000) for n in range(30)])
            for flushed in (False, True):
                if flushed:
                    await store.checkpoint()
                assert len(await ledger.read(EntryId(0), 0)) == 1
                assert len(await ledger.read(EntryId(5), 999)) == 1
                assert len(await ledger.read(EntryId(5), 1000)) == 1
                assert [e.entry_id for e in await ledger.read(EntryId(5), 2999)] == [5, 6]
                assert [e.entry_id for e in await ledger.read(EntryId(5), 3000)] == [5, 6, 7]
                assert [e.entry_id for e in await ledger.read(EntryId(28), 1_000_000)] == [28, 29]
                assert await ledger.read(EntryId(30), 1000) == []

    asyncio.run(scenario())


def test_of_small_entries_no_more_are_read_at_once_than_one_turn_of_the_loop_handles(
    start_store: Starter,
) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            whole = READ_ENTRIES_MAX + 700
            await fill(ledger, [b"%d" % number for number in range(500)])
            await store.checkpoint()  # the rest is not in the segment yet the first time
            await fill(ledger, [b"%d" % number for number in range(500, whole)])
            for flushed in (False, True):
                if flushed:
                    await store.checkpoint()
                found: list[int] = []
                while some := await ledger.read(EntryId(len(found)), 1 << 20):
                    assert len(some) <= READ_ENTRIES_MAX
                    found += [int(bytes(entry.body)) for entry in some]
                assert found == list(range(whole))

    asyncio.run(scenario())


def test_a_reader_that_wants_few_entries_gets_few(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            await fill(ledger, [b"%d" % number for number in range(500)])
            await store.checkpoint()  # the rest is not in the segment yet the first time
            await fill(ledger, [b"%d" % number for number in range(500, 1_000)])
            for flushed in (False, True):
                if flushed:
                    await store.checkpoint()
                found: list[int] = []
                while some := await ledger.read(EntryId(len(found)), 1 << 20, 70):
                    assert len(some) <= 70
                    found += [int(bytes(entry.body)) for entry in some]
                assert found == list(range(1_000))

    asyncio.run(scenario())


def test_lookups_by_offset_and_timestamp(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            assert await ledger.entry_for_offset(0) is None
            assert await ledger.entry_for_timestamp(0) is None
            offsets, stamps = [], []
            for n in range(200):
                offsets.append(n * 5 + 4)
                stamps.append(10_000 + n * 3 - (n % 7) * 50)
            await asyncio.gather(
                *[append(ledger, pattern(n, 1 + (n * 997) % 3000), offsets[n], stamps[n]) for n in range(200)]
            )

            def first(values: list[int], least: int) -> int | None:
                return next((n for n, value in enumerate(values) if value >= least), None)

            for step in ("dirty", "flushed", "sealed"):
                if step == "sealed":
                    await ledger.seal()
                if step != "dirty":
                    await store.checkpoint()
                for offset in range(-3, 1010, 7):
                    assert await ledger.entry_for_offset(offset) == first(offsets, offset)
                for stamp in range(min(stamps) - 20, max(stamps) + 20, 11):
                    assert await ledger.entry_for_timestamp(stamp) == first(stamps, stamp)

    asyncio.run(scenario())


def test_a_sealed_ledger_takes_no_more_and_seal_is_idempotent(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            waiting = append(ledger, b"x", 0)
            first = await ledger.seal()
            assert waiting.done()
            assert first.entry_count == 1
            assert await ledger.seal() == first
            with pytest.raises(LedgerFenced):
                append(ledger, b"y", 1)

    asyncio.run(scenario())


def test_opening_an_open_ledger_fences_its_writer(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            waiting = append(ledger, b"x", 0)
            reader = await store.open(ledger.stat.ledger_id)
            assert reader.stat.sealed
            assert reader.stat.entry_count == 1
            await waiting
            with pytest.raises(LedgerFenced):
                append(ledger, b"y", 1)

    asyncio.run(scenario())


def test_a_deleted_ledger_is_gone_also_after_a_restart(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            kept = await store.create()
            await fill(ledger, [pattern(n, 3000) for n in range(50)])
            await fill(kept, [b"kept"])
            held = await read_all(ledger)
            ledger_id = ledger.stat.ledger_id
            await store.delete(ledger_id)
            await store.delete(ledger_id)
            with pytest.raises(LedgerNotFound):
                await store.open(ledger_id)
            with pytest.raises(LedgerNotFound):
                await ledger.read(EntryId(0), 100)
            assert [bytes(e.body) for e in held] == [pattern(n, 3000) for n in range(50)]
        async with start_store() as store:
            assert [stat.ledger_id for stat in await store.list_ledgers()] == [kept.stat.ledger_id]
            with pytest.raises(LedgerNotFound):
                await store.open(ledger_id)
            assert (await store.create()).stat.ledger_id > kept.stat.ledger_id

    asyncio.run(scenario())


def test_an_unknown_ledger_is_not_found(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            with pytest.raises(LedgerNotFound):
                await store.open(LedgerId(99))
            await store.delete(LedgerId(99))

    asyncio.run(scenario())


def test_an_empty_ledger_survives_a_restart(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger_id = (await store.create()).stat.ledger_id
        async with start_store() as store:
            reader = await store.open(ledger_id)
            stat = reader.stat
            assert (stat.entry_count, stat.last_offset, stat.max_timestamp_ms, stat.sealed) == (
                0,
                -1,
                -1,
                True,
            )
            assert await reader.read(EntryId(0), 10) == []

    asyncio.run(scenario())


def test_bodies_stay_valid_while_they_are_held(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            bodies = [pattern(n, 9000) for n in range(60)]
            await fill(ledger, bodies)
            await store.checkpoint()
            held = await read_all(ledger, 30_000)
            for _ in range(20):
                await read_all(ledger, 70_000)
        assert [bytes(entry.body) for entry in held] == bodies

    asyncio.run(scenario())

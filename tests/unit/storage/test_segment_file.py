"""Segments read by path, as another process does while the store goes on writing them."""

import asyncio
import os
from pathlib import Path

import pytest

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.segment_file import Pieces, SegmentFile
from magnetar.storage.segment_format import INDEX_STEP_BYTES
from magnetar.storage.store import LedgerId, SegmentStat
from magnetar.wire.stored import RECORD, RECORD_BYTES

from .conftest import Starter
from .helpers import fill, pattern

KIB = 1024


def bodies(segment: SegmentFile, start: int, end: int, piece_bytes: int) -> list[bytes]:
    """What a decoder does: whole records of a piece, then the next one."""
    found = []
    pieces = segment.pieces(start, end, piece_bytes)
    while (data := pieces.next()) is not None:
        at = 0
        while at + RECORD_BYTES <= len(data):
            stop = at + RECORD_BYTES + RECORD.unpack_from(data, at)[0]
            if stop > len(data):
                break
            found.append(bytes(data[at + RECORD_BYTES : stop]))
            at = stop
        pieces.consumed(at)
    return found


def read_out(pieces: Pieces) -> None:
    while (data := pieces.next()) is not None:
        pieces.consumed(len(data) // 1040 * 1040)


def stat_of(store: LocalLedgerStore, ledger_id: LedgerId) -> SegmentStat:
    stat = store.segment_files.stat(ledger_id)
    assert stat is not None
    return stat


def opened(store: LocalLedgerStore, ledger_id: LedgerId, *, mapped: bool = True) -> SegmentFile:
    path = stat_of(store, ledger_id).path
    return SegmentFile.open(path, store.segment_files.store_id, ledger_id, mapped=mapped)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("piece_bytes", [4096, 64 * KIB, 4 << 20])
def test_an_open_segment_is_read_as_far_as_it_is_told_while_more_is_written(
    start_store: Starter, piece_bytes: int, mapped: bool
) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            sizes = [(n * 7919) % 9000 for n in range(150)]
            sizes[70] = 50 * KIB  # larger than some pieces
            wanted = [pattern(n, size) for n, size in enumerate(sizes)]
            seen = 0
            for first in range(0, 150, 10):
                await fill(ledger, wanted[first : first + 10])
                if first % 20:  # every other time; in between, whatever the store has written by itself
                    await store.segment_files.write_out(ledger.ledger_id)
                stat = stat_of(store, ledger.ledger_id)
                assert not stat.is_finished
                if stat.end_position:
                    with opened(store, ledger.ledger_id, mapped=mapped) as segment:
                        assert not segment.is_finished
                        found = bodies(segment, 0, stat.end_position, piece_bytes)
                    assert found == wanted[: stat.entry_count]
                    assert stat.last_offset == stat.entry_count * 10 - 1
                    seen += 1
            assert seen >= 7
            await store.segment_files.write_out(ledger.ledger_id)
            assert stat_of(store, ledger.ledger_id).entry_count == 150
            await ledger.seal()
            await store.checkpoint()
            stat = stat_of(store, ledger.ledger_id)
            assert stat.is_finished
            with opened(store, ledger.ledger_id, mapped=mapped) as segment:
                assert segment.is_finished
                assert bodies(segment, 0, stat.end_position, piece_bytes) == wanted

    asyncio.run(scenario())


@pytest.mark.parametrize("is_indexed", [True, False])
def test_cuts_lead_to_the_records_of_a_range(start_store: Starter, is_indexed: bool) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            wanted = [pattern(n, 4000) for n in range(200)]
            await fill(ledger, wanted)
            await ledger.seal()
            await store.checkpoint()
            if not is_indexed:
                ledger.index = None
            files = store.segment_files
            for first, end in ((0, 2000), (5, 6), (1995, 2000), (700, 1300), (719, 720)):
                cuts, end_position = await files.find_cuts(ledger.ledger_id, first, end, 64 * KIB)
                with opened(store, ledger.ledger_id) as segment:
                    for number, (offset, position) in enumerate(cuts):
                        stop = cuts[number + 1][1] if number + 1 < len(cuts) else end_position
                        found = bodies(segment, position, stop, 16 * KIB)
                        begin = max(offset, 0) // 10
                        assert found == wanted[begin : begin + len(found)]
                begin = max(cuts[0][0], 0)
                assert begin <= first
                assert begin // 10 + (end_position - cuts[0][1]) // 4040 >= (end + 9) // 10
                # No more than one stretch of the index too much at each end.
                assert (first - begin) * 404 <= 2 * INDEX_STEP_BYTES
                assert end_position - cuts[0][1] <= (end - begin) * 404 + 2 * INDEX_STEP_BYTES

    asyncio.run(scenario())


def test_a_whole_finished_segment_has_cuts_without_its_index_staying_in_memory(start_store: Starter) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            await fill(ledger, [pattern(n, 100 * KIB) for n in range(100)])
            await ledger.seal()
            await store.checkpoint()
            ledger.index = None
            for _ in range(2):
                cuts, end = await store.segment_files.find_cuts(ledger.ledger_id, -1, 1000, 4 << 20)
                assert end == 100 * (100 * KIB + RECORD_BYTES)
                assert cuts == [
                    (-1, 0),
                    (410, 41 * (100 * KIB + RECORD_BYTES)),
                    (820, 82 * (100 * KIB + RECORD_BYTES)),
                ]
            assert ledger.index is None

    asyncio.run(scenario())


def test_only_the_store_and_the_ledger_that_are_meant_are_read(start_store: Starter, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            first, second = await store.create(), await store.create()
            for ledger in (first, second):
                await fill(ledger, [b"x" * 100])
                await store.segment_files.write_out(ledger.ledger_id)
            path = stat_of(store, first.ledger_id).path
            own = store.segment_files.store_id
            SegmentFile.open(path, own, first.ledger_id).close()
            with pytest.raises(StorageError, match="another store"):
                SegmentFile.open(path, "0" * 36, first.ledger_id)
            with pytest.raises(StorageError, match=f"not the segment of ledger {second.ledger_id}"):
                SegmentFile.open(path, own, second.ledger_id)
            with pytest.raises(LedgerNotFound):
                SegmentFile.open(path + "x", own, first.ledger_id)
            with pytest.raises(StorageError, match="has no store-id"):
                SegmentFile.open(str(tmp_path / "elsewhere" / "segments" / "x.segment"), own, first.ledger_id)
        async with start_store() as store:
            assert store.segment_files.store_id == own

    asyncio.run(scenario())


@pytest.mark.parametrize("mapped", [True, False])
def test_a_range_that_ends_inside_a_record_or_behind_the_file_is_an_error(
    start_store: Starter, mapped: bool
) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            await fill(ledger, [pattern(n, 1000) for n in range(100)])
            await store.segment_files.write_out(ledger.ledger_id)
            end = stat_of(store, ledger.ledger_id).end_position
            for _ in range(2):
                with opened(store, ledger.ledger_id, mapped=mapped) as segment:
                    for cut in (1, 41, 500, 1039, 1041, 5000):
                        with pytest.raises(EntryCorrupt, match="lies across"):
                            bodies(segment, 0, end - cut, 8192)
                    with pytest.raises(EntryCorrupt, match="ends at byte"):
                        bodies(segment, 0, end + (1 << 20), 8192)
                    for wrong in ((5, 4), (-1, 4)):
                        with pytest.raises(ValueError, match="no range"):
                            segment.pieces(*wrong)
                    assert bodies(segment, end, end, 8192) == []
                await ledger.seal()  # and once more when it is finished
                await store.checkpoint()

    asyncio.run(scenario())


@pytest.mark.parametrize("mapped", [True, False])
def test_a_record_that_cannot_be_consumed_ends_the_reading(start_store: Starter, mapped: bool) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            await fill(ledger, [pattern(n, 1000) for n in range(100)])
            await store.segment_files.write_out(ledger.ledger_id)
            with opened(store, ledger.ledger_id, mapped=mapped) as segment:
                pieces = segment.pieces(0, stat_of(store, ledger.ledger_id).end_position, 8192)
                first = pieces.next()
                assert first is not None
                pieces.consumed(0)
                with pytest.raises(EntryCorrupt, match="could not be decoded"):
                    pieces.next()
                with pytest.raises(ValueError, match="cannot have been consumed"):
                    pieces.consumed(len(first) + 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("finished", [True, False])
def test_a_disk_that_cannot_be_read_is_an_error_and_not_a_signal(
    start_store: Starter, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    async def scenario() -> None:
        async with start_store() as store:
            ledger = await store.create()
            await fill(ledger, [pattern(n, 1000) for n in range(100)])
            await store.segment_files.write_out(ledger.ledger_id)
            if finished:
                await ledger.seal()
                await store.checkpoint()
            end = stat_of(store, ledger.ledger_id).end_position
            with opened(store, ledger.ledger_id) as segment:
                pieces = segment.pieces(0, end, 8192)
                data = pieces.next()
                assert data is not None
                pieces.consumed(7 * 1040)
                # As if the file had been cut behind what was read: no page can be filled there any more.
                os.truncate(segment.path, 8192)
                with pytest.raises(StorageError, match="cannot be read"):
                    read_out(pieces)

    asyncio.run(scenario())

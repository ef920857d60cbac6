"""What is written behind and when, and what a checkpoint makes durable before the journal may forget it."""

import asyncio
import threading

import pytest

from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.format import FactKind
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.recovery import load_index
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.local.writebehind import BATCH
from magnetar.storage.segment_format import POINT_BYTES
from magnetar.wire.stored import RECORD_BYTES

from .behind import SEGMENTS, Rig, held, name_of, sent, settled, until, waiting_calls
from .helpers import in_a_loop, pattern


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- flushes ----------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_what_is_dirty_and_not_being_written_is_written_behind(rig: Rig) -> None:
    async with rig.store() as store:
        ledger, clean = await store.create(), await store.create()
        await sent(ledger, 100)
        with held(store):
            first = store.behind.flush([ledger, clean])
            assert first is not None
            assert (ledger.flushing, clean.flushing) == (True, False)
            await sent(ledger, 200)
            assert store.behind.flush([ledger, clean]) is None
        await first
        assert (ledger.flushing, ledger.flushed_count, len(ledger.dirty)) == (False, 1, 1)
        assert (store.counters.flushes, store.counters.flushed_bytes) == (1, 140)
        second = store.behind.flush([ledger])
        assert second is not None
        await second
        assert (ledger.flushed_count, ledger.dirty, ledger.dirty_bytes) == (2, [], 0)
        assert (store.counters.flushes, store.counters.flushed_bytes) == (2, 380)
        assert rig.files() == [name_of(ledger)]
        content = bytes(rig.disk.content(SEGMENTS / name_of(ledger)))
        assert content[RECORD_BYTES:140] + content[140 + RECORD_BYTES : 380] == pattern(0, 100) + pattern(
            1, 200
        )


@pytest.mark.parametrize(("behind", "flushes"), [(2 * BLOCK_BYTES, 2), (2 * BLOCK_BYTES - 1, 1)])
@in_a_loop
async def test_writing_goes_on_when_enough_has_come_meanwhile(rig: Rig, behind: int, flushes: int) -> None:
    async with rig.store(flush_bytes=2 * BLOCK_BYTES) as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with held(store):
            first = store.behind.flush([ledger])
            assert first is not None
            await sent(ledger, behind - RECORD_BYTES)
            assert ledger.dirty_bytes == 100 + RECORD_BYTES + behind
        await first
        await settled(store)
        assert store.counters.flushes == flushes


# --- checkpoints ------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_segments_and_their_names_are_durable_before_the_catalogue_says_so(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await store.checkpoint()
        assert rig.disk.synced == [name_of(ledger), "segments", "catalogue"]
        segment = rig.disk.durable(SEGMENTS / name_of(ledger))
        assert segment[RECORD_BYTES:140] == pattern(0, 100)
        line, _ = rig.noted().facts[1]
        assert (line.kind, line.entry_count, line.data_bytes) == (FactKind.PROGRESS, 1, 140)
        assert (line.last_offset, line.max_timestamp_ms) == (9, 1000)
        rig.disk.synced.clear()
        await sent(ledger, 100)
        await store.checkpoint()
        assert rig.disk.synced == [name_of(ledger), "catalogue"], "no name is new"
        rig.disk.synced.clear()
        await store.checkpoint()
        assert rig.disk.synced == ["catalogue"], "nothing has changed"
        assert store.counters.checkpoints == 3
        assert (store.counters.checkpoint_errors, store.counters.flush_errors) == (0, 0)


@in_a_loop
async def test_a_checkpoint_lets_the_journal_forget_what_was_durable_when_it_began(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, *[20_000] * 20)
        await sent(ledger, *[20_000] * 2)
        ring = store.journal._ring
        assert len(ring.full) == 1
        before = store.durable_sequence
        assert store.entries_since_checkpoint == 22
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: store.behind.wanted_since_s is not None)
            assert store.entries_since_checkpoint == 0
            await sent(ledger, 100)
            assert len(ring.full) == 1
        await checkpoint
        assert len(ring.full) == 0
        known = rig.noted()
        assert before == known.journal_sequence < store.durable_sequence
        assert (known.journal_epoch, known.next_ledger_id) == (store.journal.epoch, 2)
        assert store.entries_since_checkpoint == 1
        assert store.behind.wanted_since_s is None


@in_a_loop
async def test_the_catalogue_gets_each_index_point_once(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await store.checkpoint()
        for sizes in ([40_000], [20_000, 20_000], [100], [40_000, 40_000]):
            await sent(ledger, *sizes)
            await store.checkpoint()
            index = ledger.index
            assert index is not None
            _, points = rig.noted().facts[1]
            assert b"".join(points) == index.to_bytes(0, len(index))
            assert ledger.points_noted == len(index)
        assert ledger.points_noted == 4


@in_a_loop
async def test_what_comes_behind_a_flush_is_not_noted_as_written(rig: Rig) -> None:
    """Neither its index point, which is where the flush ends, nor that its ledger is sealed by now."""
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 40_000)
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: ledger.flushing)
            await sent(ledger, 40_000)
            await ledger.seal()
        await checkpoint
        line, points = rig.noted().facts[1]
        assert (line.kind, line.entry_count, line.data_bytes) == (FactKind.PROGRESS, 1, 40_040)
        assert (line.last_offset, line.max_timestamp_ms) == (9, 1000)
        assert len(b"".join(points)) == POINT_BYTES
        assert not ledger.finished
        await store.checkpoint()
        assert rig.noted().facts[1][0][:4] == (FactKind.SEALED, 1, 2, 80_080)
        assert ledger.finished


def index_of(store: LocalLedgerStore, ledger: LocalLedger) -> bytes:
    """The one in the segment's file."""
    path = store.path_of(ledger)
    index = load_index(store.reads, path, ledger.ledger_id, ledger.flushed_count, ledger.flushed_position)
    return index.to_bytes(0, len(index))


@in_a_loop
async def test_a_sealed_ledger_gets_its_footer_once_and_its_index_can_be_forgotten(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig.store() as store:
        ledger, empty = await store.create(), await store.create()
        await sent(ledger, *[20_000] * 8)
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: store.behind.wanted_since_s is not None)
            await ledger.seal()  # which the checkpoint that has begun can do already
            await empty.seal()
        await checkpoint
        assert (ledger.finished, empty.finished) == (True, True)
        assert rig.files() == [name_of(ledger)]
        facts = rig.noted().facts
        assert [(facts[n][0].kind, facts[n][1]) for n in (1, 2)] == [(FactKind.SEALED, [])] * 2
        assert ledger.index is not None
        assert list(store._indexes) == [1]
        assert index_of(store, ledger) == ledger.index.to_bytes(0, len(ledger.index))
        assert "footer damaged" not in caplog.text
        size = len(rig.disk.durable(SEGMENTS / name_of(ledger)))
        assert size == align_up(8 * (20_000 + RECORD_BYTES)) + BLOCK_BYTES
        rig.disk.synced.clear()
        await store.checkpoint()
        assert rig.disk.synced == ["catalogue"]


@in_a_loop
async def test_an_open_ledger_has_no_footer(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await store.checkpoint()
        assert len(rig.disk.durable(SEGMENTS / name_of(ledger))) == BLOCK_BYTES
        assert not ledger.finished


@in_a_loop
async def test_a_checkpoint_waits_for_what_is_being_written_and_writes_what_came_behind(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with held(store):
            store.behind.flush([ledger])
            await sent(ledger, 200)
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: waiting_calls(store) > 1)
        await checkpoint
        assert rig.noted().facts[1][0].entry_count == 2
        assert store.counters.flushes == 2


@in_a_loop
async def test_ledgers_are_given_to_the_thread_in_batches(rig: Rig) -> None:
    async with rig.store() as store:
        ledgers = [await store.create() for _ in range(BATCH + 1)]
        await asyncio.gather(*[sent(ledger, 100) for ledger in ledgers])
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: waiting_calls(store) > 0)
            assert sum(ledger.flushing for ledger in ledgers) == BATCH
        await checkpoint
        assert {line.entry_count for line, _ in rig.noted().facts.values()} == {1}
        assert sorted(rig.disk.synced) == sorted([*map(name_of, ledgers), "segments", "catalogue"])


@in_a_loop
async def test_a_checkpoint_waits_for_nothing_but_the_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = set()
    sleep = asyncio.sleep

    async def slept(delay: float) -> None:
        delays.add(delay)
        await sleep(delay)

    async with rig.store() as store:
        await store.create()
        monkeypatch.setattr(asyncio, "sleep", slept)
        await store.checkpoint()
        assert delays == {0}, "others get a turn"


@pytest.mark.parametrize("asked", [0, 1, 3])
@pytest.mark.parametrize("soon", [True, False])
@in_a_loop
async def test_a_checkpoint_that_is_asked_for_while_one_runs_follows_it(
    rig: Rig, soon: bool, asked: int
) -> None:
    """The journal may wait for room that came into use only after the one that runs had begun, and asks once."""
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with held(store):
            if soon:
                store.behind.checkpoint_soon()
            else:
                explicit = asyncio.ensure_future(store.checkpoint())
            await until(lambda: ledger.flushing)
            for _ in range(asked):
                store.behind.checkpoint_soon()
        if not soon:
            await explicit
        await until(lambda: store.behind._checkpoint is None)
        assert store.counters.checkpoints == (2 if asked else 1)
        await store.checkpoint()
        assert store.behind._checkpoint is None
        assert store.counters.checkpoints == (3 if asked else 2), "what was asked for is done"


@in_a_loop
async def test_each_that_asks_for_a_checkpoint_gets_one_that_begins_behind_it(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with held(store):
            asking = [asyncio.ensure_future(store.checkpoint()) for _ in range(3)]
            await until(lambda: ledger.flushing)
            await sent(ledger, 200)
        await asking[0]
        assert rig.noted().facts[1][0].entry_count == 1
        await asyncio.wait(asking)
        assert rig.noted().facts[1][0].entry_count == 2
        assert store.counters.checkpoints == 3


@in_a_loop
async def test_a_caller_that_gives_up_waiting_does_not_end_the_checkpoint(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with held(store):
            asking = asyncio.ensure_future(store.checkpoint())
            await until(lambda: ledger.flushing)
            asking.cancel()
            await asyncio.wait([asking])
        await until(lambda: store.behind._checkpoint is None)
        assert rig.noted().facts[1][0].entry_count == 1


@in_a_loop
async def test_a_checkpoint_that_is_cancelled_leaves_all_to_the_next_one(rig: Rig) -> None:
    async with rig.store() as store:
        ledger, gone = await store.create(), await store.create()
        await store.checkpoint()
        await sent(ledger, 100)
        await store.delete(gone.ledger_id)
        with held(store):
            asking = asyncio.ensure_future(store.checkpoint())
            await until(lambda: ledger.flushing)
            checkpoint = store.behind._checkpoint
            assert checkpoint is not None
            checkpoint.cancel()
            await asyncio.wait([asking])
            assert checkpoint.cancelled()
        await settled(store)
        assert store.failure is None
        assert store.counters.checkpoint_errors == 1
        assert store.behind.touched == [ledger]
        await store.checkpoint()
        known = rig.noted()
        assert (known.facts[1][0].entry_count, known.deleted) == (1, {2})


@in_a_loop
async def test_a_stop_leaves_all_in_segments_no_thread_and_no_open_file(rig: Rig) -> None:
    before = set(threading.enumerate())
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        rig.disk.synced.clear()
    known = rig.noted()
    assert known.facts[1][0].entry_count == 1
    assert known.journal_sequence == store.durable_sequence
    assert rig.disk.still_open == []
    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name.startswith("magnetar")] == []

"""What becomes of write-behind when segments, names or the catalogue cannot be written."""

import asyncio
import errno
from typing import Any

import pytest

from magnetar.base.errors import LedgerFenced, StorageError, StorageFull
from magnetar.storage.local.catalogue import Catalogue
from magnetar.storage.local.crew import Crew
from magnetar.storage.local.format import FactKind
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.writebehind import WriteBehind

from .behind import SETTINGS, Rig, held, name_of, sent, settled, until
from .helpers import append, in_a_loop

RETRY_S = SETTINGS.retry_s


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- the disk is full -------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_flush_that_fails_is_tried_again_until_it_succeeds(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig.store() as store:
        behind, counters = store.behind, store.counters
        ledger = await store.create()
        await sent(ledger, 100)
        rig.clock.advance(7)
        rig.fail("segment", "write", 1, 2, code=errno.ENOSPC)
        behind.checkpoint_soon()
        await until(lambda: behind._checkpoint is None)
        assert (behind.stuck, behind.stuck_why) == (True, "checkpoint failed: segments cannot be written")
        assert (counters.flush_errors, counters.checkpoint_errors, counters.flushes) == (1, 1, 0)
        assert rig.retries() == 1
        assert (len(ledger.dirty), ledger.flushing, ledger.has_file) == (1, False, False)
        for _ in range(2):
            behind.checkpoint_soon()
            assert behind._checkpoint is None, "only the timer tries it again"
        rig.clock.advance(RETRY_S)
        await until(lambda: behind._checkpoint is None)
        assert (counters.flush_errors, counters.checkpoint_errors, counters.checkpoints) == (2, 2, 0)
        assert (rig.retries(), behind.stuck) == (1, True)
        assert behind.wanted_since_s == 7
        rig.clock.advance(RETRY_S)
        await until(lambda: behind._checkpoint is None)
        assert (counters.flush_errors, counters.checkpoint_errors, counters.checkpoints) == (2, 2, 1)
        assert (rig.retries(), behind.stuck) == (0, False)
        assert behind.wanted_since_s is None
        assert store.failure is None
        assert rig.noted().facts[1][0].entry_count == 1
        said = [
            record.message.partition(":")[0] for record in caplog.records if "write-behind" in record.message
        ]
        assert len(said) == 1, "and not again and again"


@in_a_loop
async def test_what_was_asked_for_while_a_checkpoint_failed_is_done_once(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        rig.fail("segment", "write", 1, code=errno.ENOSPC)
        with held(store):
            store.behind.checkpoint_soon()
            await until(lambda: ledger.flushing)
            store.behind.checkpoint_soon()
        await until(lambda: store.behind._checkpoint is None)
        await store.checkpoint()
        await until(lambda: store.behind._checkpoint is None)
        assert store.counters.checkpoints == 1


@in_a_loop
async def test_a_flush_by_itself_that_fails_says_why_and_is_tried_again(rig: Rig) -> None:
    async with rig.store(flush_bytes=4096) as store:
        ledger = await store.create()
        rig.fail("segment", "write", 1, code=errno.ENOSPC)
        with held(store):
            await sent(ledger, 5000)
            await sent(ledger, 5000)
        await settled(store)
        assert store.behind.stuck_why == f"segment {name_of(ledger)}: [Errno 28] ENOSPC"
        assert (store.counters.flush_errors, store.counters.flushes, rig.retries()) == (1, 0, 1)
        rig.clock.advance(RETRY_S)
        await until(lambda: store.counters.checkpoints == 1)
        assert not store.behind.stuck


@in_a_loop
async def test_what_is_written_while_others_cannot_be_does_not_go_on_by_itself(rig: Rig) -> None:
    async with rig.store(flush_bytes=4096) as store:
        ledger, other = await store.create(), await store.create()
        rig.fail(name_of(other), "write", 1, code=errno.ENOSPC)
        with held(store):
            await sent(other, 5000)
            await sent(ledger, 5000)
            await sent(ledger, 5000)
        await settled(store)
        assert store.behind.stuck
        assert (ledger.flushed_count, ledger.flushing) == (1, False)


async def send_on(ledger: LocalLedger) -> None:
    while True:
        await sent(ledger, 20_000)


@in_a_loop
async def test_while_segments_cannot_be_written_appends_go_on_until_the_journal_is_full(rig: Rig) -> None:
    async with rig.store(journal_file_count=2) as store:
        ledger = await store.create()
        await sent(ledger, 100)
        rig.fail("segment", "write", *range(1, 20), code=errno.ENOSPC)
        store.behind.checkpoint_soon()
        await until(lambda: store.behind.stuck)
        with pytest.raises(StorageFull):
            await send_on(ledger)
        assert ledger.durable_count > 10
        rig.fail("segment", "write")
        rig.clock.advance(RETRY_S)
        await until(lambda: not store.behind.stuck)
        # More than there is room for, which is waited for again.
        waiting = [append(ledger, b"x" * 20_000, 10_000 + number) for number in range(40)]
        assert len(await asyncio.gather(*waiting)) == 40


@in_a_loop
async def test_appends_that_wait_for_room_during_a_checkpoint_get_it(rig: Rig) -> None:
    """The journal asks for room once; the checkpoint of a caller, which had begun before, did not hear of it."""
    async with rig.store(journal_file_count=2) as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: ledger.flushing)
            waiting = [append(ledger, b"x" * 20_000, 1000 + number) for number in range(40)]
            await until(lambda: store.journal.full_since_s is not None)
        await checkpoint
        assert len(await asyncio.wait_for(asyncio.gather(*waiting), 20)) == 40


@in_a_loop
async def test_a_timer_that_fires_during_a_checkpoint_begins_no_other(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        rig.fail("segment", "write", 1, code=errno.ENOSPC)
        with pytest.raises(StorageError, match="segments cannot be written"):
            await store.checkpoint()
        assert rig.retries() == 1
        with held(store):
            asking = asyncio.ensure_future(store.checkpoint())
            await until(lambda: ledger.flushing)
            checkpoint = store.behind._checkpoint
            rig.clock.advance(RETRY_S)
            assert store.behind._checkpoint is checkpoint
        await asking
        assert (store.counters.checkpoints, rig.retries()) == (1, 0)


@in_a_loop
async def test_a_store_that_is_closed_tries_nothing_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        rig.fail("segment", "write", 1, 2, code=errno.ENOSPC)
        store.behind.checkpoint_soon()
        await until(lambda: store.behind.stuck)
        assert rig.retries() == 1
        assert await store.behind.close() is False
        assert rig.retries() == 0
        assert "closed without a checkpoint" in caplog.text
        for again in (store.behind.checkpoint_soon, store.behind._try_again):
            again()
            assert store.behind._checkpoint is None
        assert await store.behind.close() is True, "the disk takes it now"
        store.behind.checkpoint_soon()
        assert store.behind._checkpoint is None


# --- other calls that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["write", "sync"])
@in_a_loop
async def test_a_catalogue_that_cannot_be_written_leaves_all_to_the_next_checkpoint(
    rig: Rig, kind: str
) -> None:
    async with rig.store() as store:
        ledger, gone = await store.create(), await store.create()
        await store.checkpoint()
        await sent(ledger, 100)
        await store.delete(gone.ledger_id)
        rig.fail("catalogue", kind, 1)
        with pytest.raises(StorageError, match=r"checkpoint failed: .*EIO"):
            await store.checkpoint()
        assert (store.failure, store.behind._deleted) == (None, [2])
        assert store.behind.touched == [ledger]
        assert rig.noted().facts[1][0].entry_count == 0
        await store.checkpoint()
        assert (rig.noted().facts[1][0].entry_count, rig.noted().deleted) == (1, {2})


@in_a_loop
async def test_a_segment_that_could_not_be_synced_is_never_noted(rig: Rig) -> None:
    """The kernel may drop what it could not write, and report success the next time."""
    async with rig.store() as store:
        ledger, other = await store.create(), await store.create()
        await asyncio.gather(sent(ledger, 100), sent(other, 100))
        rig.fail(name_of(ledger), "sync", 1)
        for _ in range(3):
            with pytest.raises(StorageError, match="ledger 1 could not be synced"):
                await store.checkpoint()
        assert store.behind.lost_count == 1
        assert rig.noted().journal_sequence == 0
        with pytest.raises(LedgerFenced):
            await sent(ledger, 100)
        await sent(other, 100)
        await store.delete(ledger.ledger_id)
        assert store.behind.lost_count == 0
        await store.checkpoint()
        assert list(rig.noted().facts) == [2]


@in_a_loop
async def test_a_footer_that_could_not_be_written_is_written_by_the_next_checkpoint(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await store.checkpoint()
        await ledger.seal()
        rig.fail(name_of(ledger), "write", 1)
        with pytest.raises(StorageError, match="EIO"):
            await store.checkpoint()
        assert (ledger.finished, store.behind.lost_count) == (False, 0)
        assert rig.noted().facts[1][0].kind is FactKind.PROGRESS
        await store.checkpoint()
        assert (ledger.finished, rig.noted().facts[1][0].kind) == (True, FactKind.SEALED)


@in_a_loop
async def test_new_names_that_could_not_be_synced_are_synced_before_anything_is_noted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)

        def refused(_: object) -> None:
            raise OSError(errno.EIO, "EIO")

        with monkeypatch.context() as patch:
            patch.setattr(rig.disk, "sync_directory", refused)
            with pytest.raises(StorageError, match="EIO"):
                await store.checkpoint()
        assert 1 not in rig.noted().facts
        rig.disk.synced.clear()
        await store.checkpoint()
        assert rig.disk.synced == [name_of(ledger), "segments", "catalogue"]


# --- faults -----------------------------------------------------------------------------------------------------------


def broken(*_: Any) -> None:
    raise RuntimeError("injected")


@pytest.mark.parametrize(
    ("owner", "name"), [(Crew, "flush"), (Crew, "sync"), (Catalogue, "commit"), (WriteBehind, "_plan_sync")]
)
@pytest.mark.parametrize("soon", [True, False])
@in_a_loop
async def test_a_fault_ends_all_writing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, soon: bool
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            if soon:
                store.behind.checkpoint_soon()
                await until(lambda: store.behind._checkpoint is None)
            else:
                with pytest.raises(StorageError, match="injected"):
                    await store.checkpoint()
        assert store.failure is not None
        assert "injected" in str(store.failure)
        assert (store.behind.stuck, rig.retries()) == (False, 0)
        rig.disk.synced.clear()
        store.behind.checkpoint_soon()
        assert store.behind._checkpoint is None
        store.behind._try_again()
        assert store.behind._checkpoint is None
        with pytest.raises(StorageError, match="has stopped writing"):
            await store.checkpoint()
        assert store.behind.flush([ledger]) is None
        assert await store.behind.close() is False
        assert rig.disk.synced == []
        assert 1 not in rig.noted().facts


@in_a_loop
async def test_behind_a_fault_elsewhere_nothing_is_noted(rig: Rig) -> None:
    async with rig.store() as store:
        assert store.behind.touched == []
        store.fail_stop("a test", RuntimeError("injected"))
        with pytest.raises(StorageError, match="has stopped writing"):
            await store.checkpoint()
        assert rig.disk.synced == []
        assert (store.counters.checkpoints, store.behind.wanted_since_s) == (0, None)


@in_a_loop
async def test_a_fault_of_a_flush_by_itself_ends_all_writing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        monkeypatch.setattr(Crew, "flush", broken)
        done = store.behind.flush([ledger])
        assert done is not None
        await done
        assert "writing segments" in str(store.failure)
        assert ledger.flushed_count == 0


@pytest.mark.parametrize("noted", [0, 1])
@in_a_loop
async def test_nothing_is_noted_when_the_catalogue_would_not_know_all(rig: Rig, noted: int) -> None:
    """What is on the list of a checkpoint is not believed: here a fault has lost it."""
    async with rig.store() as store:
        ledger, other = await store.create(), await store.create()
        for _ in range(noted):
            await asyncio.gather(sent(ledger, 100), sent(other, 100))
            await store.checkpoint()
        before = rig.noted().journal_sequence
        await asyncio.gather(sent(ledger, 100), sent(other, 100))
        store.behind.touched.remove(other)
        with pytest.raises(
            StorageError, match=rf"ledger 2 has {140 * (noted + 1)} bytes, and the catalogue would know"
        ):
            await store.checkpoint()
        assert store.failure is not None
        assert rig.noted().journal_sequence == before


@in_a_loop
async def test_nothing_is_noted_when_the_catalogue_would_not_know_a_deletion(rig: Rig) -> None:
    async with rig.store() as store:
        first, second = await store.create(), await store.create()
        await store.checkpoint()
        before = rig.noted().journal_sequence
        await store.delete(first.ledger_id)
        await store.delete(second.ledger_id)
        store.behind._deleted.remove(second.ledger_id)
        with pytest.raises(StorageError, match="ledger 2 is gone, and the catalogue would not know"):
            await store.checkpoint()
        assert rig.noted().journal_sequence == before

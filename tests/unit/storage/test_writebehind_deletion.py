"""A ledger that is deleted, whatever is being done for it: it is noted, its file goes, and it holds up nothing."""

import asyncio
import errno

import pytest

from magnetar.base.errors import StorageError
from magnetar.testing.disk import Fate

from .behind import SEGMENTS, Rig, held, name_of, sent, settled, until, waiting_calls
from .helpers import in_a_loop


@pytest.fixture
def rig() -> Rig:
    return Rig()


@in_a_loop
async def test_a_deleted_ledger_is_noted_and_its_file_removed(rig: Rig) -> None:
    async with rig.store() as store:
        ledger, empty, kept = [await store.create() for _ in range(3)]
        await asyncio.gather(sent(ledger, 100), sent(kept, 100))
        await store.checkpoint()
        await store.delete(ledger.ledger_id)
        await settled(store)
        assert rig.files() == [name_of(kept)]
        with held(store):
            await store.delete(empty.ledger_id)
            assert waiting_calls(store) == 0, "there is nothing to be removed"
        await store.checkpoint()
        assert (list(rig.noted().facts), rig.noted().deleted) == ([3], {1, 2})
        assert store.behind._deleted == []


@pytest.mark.parametrize("had_file", [True, False])
@pytest.mark.parametrize("fails", [True, False])
@in_a_loop
async def test_a_ledger_that_is_deleted_while_it_is_written_leaves_no_file(
    rig: Rig, had_file: bool, fails: bool
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        if had_file:
            await sent(ledger, 100)
            await store.checkpoint()
        await sent(ledger, 100)
        if fails:
            rig.fail("segment", "write", 1, code=errno.ENOSPC)
        with held(store):
            flush = store.behind.flush([ledger])
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: waiting_calls(store) > 1)
            await store.delete(ledger.ledger_id)
        assert flush is not None
        await checkpoint
        await settled(store)
        assert rig.files() == []
        assert not store.behind.stuck, "nobody needs what could not be written"
        await store.checkpoint()
        assert (rig.noted().facts, rig.noted().deleted) == ({}, {1})


@in_a_loop
async def test_a_ledger_that_could_not_be_written_leaves_no_file_when_it_is_deleted(rig: Rig) -> None:
    """A full disk is when ledgers are deleted to make room; what was written of the file stayed until a start."""
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        rig.fail("segment", "write", 1, code=errno.ENOSPC)
        with pytest.raises(StorageError):
            await store.checkpoint()
        assert rig.files() == [name_of(ledger)]
        await store.delete(ledger.ledger_id)
        await settled(store)
        assert rig.files() == []


@in_a_loop
async def test_a_file_that_a_kill_left_behind_goes_with_its_ledger(rig: Rig) -> None:
    """The catalogue did not know of it yet, and the ledger is deleted before it is written anew."""
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await (store.behind.flush([ledger]) or asyncio.sleep(0))
        left = rig.disk.after_power_loss(Fate.KEPT)
    again = Rig()
    again.disk._names, again.disk._durable_names = left._names, left._durable_names
    again.fail("segment", "write", 1, code=errno.ENOSPC)
    async with again.store() as store:
        await until(lambda: store.behind.stuck)
        assert again.files() == [name_of(ledger)]
        await store.delete(ledger.ledger_id)
        await settled(store)
        assert again.files() == []


@pytest.mark.parametrize("kind", ["sync", "write"])
@in_a_loop
async def test_a_ledger_that_is_deleted_while_it_is_synced_holds_up_nothing(rig: Rig, kind: str) -> None:
    async with rig.store() as store:
        ledger, other = await store.create(), await store.create()
        await asyncio.gather(sent(ledger, 100), sent(other, 100))
        await ledger.seal()
        flush = store.behind.flush([ledger, other])
        assert flush is not None
        await flush
        rig.fail(name_of(ledger), kind, 1)
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: waiting_calls(store) > 0)
            await store.delete(ledger.ledger_id)
        await checkpoint
        assert rig.disk.calls[kind] == 1
        assert (store.behind.lost_count, store.problem) == (0, None)
        assert list(rig.noted().facts) == [2]
        await store.checkpoint()
        assert rig.noted().deleted == {1}


@pytest.mark.parametrize("fate", Fate)
@in_a_loop
async def test_a_ledger_that_is_deleted_during_a_checkpoint_is_noted_with_it(rig: Rig, fate: Fate) -> None:
    """Its first entry is in a round that the journal forgets, and in no segment.  The second is in a later round: a
    start that knew of the ledger and not of its deletion missed the first one, and was refused.
    """
    async with rig.store() as store:
        ledger, kept = await store.create(), await store.create()
        await asyncio.gather(sent(ledger, 100), sent(kept, 100))
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: waiting_calls(store) > 0)
            await asyncio.gather(sent(ledger, 100), sent(kept, 100))
            await store.delete(ledger.ledger_id)
        await checkpoint
        assert (list(rig.noted().facts), rig.noted().deleted) == ([2], {1})
        assert store.behind._deleted == [], "it is noted once"
        left = rig.disk.after_power_loss(fate)
    again = Rig()
    again.disk._names, again.disk._durable_names = left._names, left._durable_names
    async with again.store() as store:
        assert [(one.ledger_id, one.entry_count) for one in await store.list_ledgers()] == [(2, 2)]


@in_a_loop
async def test_a_deletion_during_a_checkpoint_that_fails_is_noted_with_the_next(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await store.checkpoint()
        await sent(await store.create(), 100)
        rig.fail("catalogue", "write", 1)
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: waiting_calls(store) > 0)
            await store.delete(ledger.ledger_id)
        with pytest.raises(StorageError):
            await checkpoint
        await store.checkpoint()
        assert (list(rig.noted().facts), rig.noted().deleted) == ([2], {1})


@pytest.mark.parametrize("error", [OSError(errno.EIO, "EIO"), RuntimeError("injected")])
@in_a_loop
async def test_a_file_that_cannot_be_removed_is_told_and_only_a_fault_ends_writing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await store.checkpoint()

        def refused(_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(rig.disk, "remove", refused)
            await store.delete(ledger.ledger_id)
            await settled(store)
        told = [record for record in caplog.records if "could not be removed" in record.message]
        if isinstance(error, OSError):
            assert (len(told), store.failure) == (1, None)
        else:
            assert "removing a file" in str(store.failure)


@in_a_loop
async def test_a_file_that_is_removed_is_no_fault(rig: Rig) -> None:
    async with rig.store() as store:
        path = SEGMENTS / "anything"
        rig.disk.open(path, create=True).close()
        for _ in range(2):
            store.behind.remove(path)
            await settled(store)
            assert rig.files() == []
        assert store.failure is None

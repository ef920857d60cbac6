"""What a checkpoint does only behind something else: what comes meanwhile, and what fails, is left to the next one."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.storage.local.catalogue import Catalogue
from magnetar.storage.local.format import FactKind

from .behind import Rig, held, name_of, sent, until
from .helpers import in_a_loop


@pytest.fixture
def rig() -> Rig:
    return Rig()


@in_a_loop
async def test_the_journal_keeps_the_rounds_that_come_during_a_checkpoint(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, *[20_000] * 20)
        ring = store.journal._ring
        assert len(ring.full) == 1
        before = store.durable_sequence
        with held(store):
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: store.behind.wanted_since_s is not None)
            await sent(ledger, *[20_000] * 12)
            assert len(ring.full) == 2
        await checkpoint
        assert [file.last_sequence > before for file in ring.full] == [True]


@in_a_loop
async def test_nothing_counts_as_noted_before_the_catalogue_has_it(rig: Rig) -> None:
    """A ledger that is taken for finished is looked at by no checkpoint, nor are points that are taken for noted."""
    async with rig.store() as store:
        growing, sealed = await store.create(), await store.create()
        await asyncio.gather(sent(growing, 40_000, 40_000), sent(sealed, 100))
        await sealed.seal()
        rig.fail("catalogue", "write", 1)
        with pytest.raises(StorageError, match="EIO"):
            await store.checkpoint()
        assert (growing.points_noted, sealed.finished) == (0, False)
        await store.checkpoint()
        noted = rig.noted().facts
        index = growing.index
        assert index is not None
        assert len(index) == growing.points_noted == 2
        assert b"".join(noted[1][1]) == index.to_bytes(0, 2)
        assert (sealed.finished, noted[2][0].kind) == (True, FactKind.SEALED)


@in_a_loop
async def test_the_name_of_a_file_that_is_made_while_names_are_synced_is_synced_by_the_next_checkpoint(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    sync_directory = rig.disk.sync_directory
    async with rig.store() as store:
        ledger, other = await store.create(), await store.create()
        await sent(ledger, 100)
        has_begun, is_written = threading.Event(), threading.Event()

        def write_other() -> None:
            store.behind.flush([other])
            store.behind.worker.submit(is_written.set, report=lambda *_: None)
            has_begun.set()
            is_written.wait()  # so that the loop hears of both at once

        def sync_meanwhile(path: Path) -> None:
            monkeypatch.undo()
            asyncio.run_coroutine_threadsafe(sent(other, 100), loop).result()
            loop.call_soon_threadsafe(write_other)
            has_begun.wait()
            sync_directory(path)

        monkeypatch.setattr(rig.disk, "sync_directory", sync_meanwhile)
        await store.checkpoint()
        assert is_written.is_set()
        assert rig.disk.synced == [name_of(ledger), "segments", "catalogue"]
        rig.disk.synced.clear()
        await store.checkpoint()
        assert rig.disk.synced == [name_of(other), "segments", "catalogue"]


@in_a_loop
async def test_a_deletion_that_comes_while_the_catalogue_is_written_is_noted_by_the_next_checkpoint(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    commit = Catalogue.commit
    async with rig.store() as store:
        gone = await store.create()

        def delete_meanwhile(*arguments: Any) -> None:
            monkeypatch.undo()
            asyncio.run_coroutine_threadsafe(store.delete(gone.ledger_id), loop).result()
            commit(*arguments)

        monkeypatch.setattr(Catalogue, "commit", delete_meanwhile)
        await store.checkpoint()
        assert (list(rig.noted().facts), rig.noted().deleted) == ([1], set())
        await store.checkpoint()
        assert (list(rig.noted().facts), rig.noted().deleted) == ([], {1})

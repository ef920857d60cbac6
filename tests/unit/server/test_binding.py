"""A metadata file and a ledger store of different ages or origins are found before anything is lost to it."""

import asyncio
from pathlib import Path

import pytest

from magnetar.base.upkeep import Upkeep
from magnetar.server import binding
from magnetar.server.binding import StoreBinding, bind
from magnetar.storage.local.binding import read_binding
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.testing.clock import FakeClock
from tests.unit.server.data_folder import (
    LEDGERS,
    METADATA,
    Folder,
    named_ledgers,
    refuses,
    run,
    use,
)


def test_a_folder_is_started_again_and_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        for _ in range(3):
            await folder.run()
        await folder.run(writes=0)
        await folder.run()

    run(scenario())


def test_how_far_the_metadata_has_got_is_noted_every_minute_and_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder, clock = Folder(tmp_path / "data"), FakeClock()
        async with folder.stores() as (metadata, store):
            upkeep = Upkeep(clock)
            bound = await bind(metadata, store)
            bound.start(upkeep)

            def noted() -> int:
                found = read_binding(store.disk, store.data_dir)
                assert found is not None
                return found.commits

            begin = noted()
            await use(metadata, store, 1)
            assert noted() == begin
            clock.advance(60)
            await upkeep.idle()
            assert noted() == metadata.commits > begin
            await use(metadata, store, 1)
            clock.advance(60)
            await asyncio.sleep(0)  # it is at work
            await use(metadata, store, 1)
            await bound.close()
            assert noted() == metadata.commits
            assert upkeep.problem is None

    run(scenario())


@pytest.mark.parametrize("lives_since", [0, 1, 2])
def test_an_older_metadata_file_is_refused(tmp_path: Path, lives_since: int) -> None:
    """It used to erase every segment that was made since."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        async with folder.stores() as (metadata, store):
            bound = await bind(metadata, store)
            await use(metadata, store, 1)
            await metadata.close()  # the copy is whole
            saved = folder.save("saved", METADATA)
        if lives_since == 0:  # a copy of an earlier moment of the last life
            async with folder.stores() as (metadata, store):
                bound = StoreBinding(metadata, store, 2)
                await use(metadata, store, 1)
                await bound.close()
        for _ in range(lives_since):
            await folder.run()
        folder.put_back(saved, METADATA)
        await refuses(folder, "metadata.sqlite is older than the ledgers beside it: at least . transactions")

    run(scenario())


@pytest.mark.parametrize("lives_since", [0, 1, 2])
def test_older_ledgers_are_refused(tmp_path: Path, lives_since: int) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        async with folder.stores() as (metadata, store):
            await bind(metadata, store)
            await use(metadata, store, 1)
        saved = folder.save("saved", LEDGERS)
        if lives_since == 0:
            async with folder.stores() as (metadata, store):
                metadata.bind(store)
                await use(metadata, store, 2)
        for _ in range(lives_since):
            await folder.run()
        folder.put_back(saved, LEDGERS)
        await refuses(folder, r"the ledgers \(journal, segments, catalogue\) are older than metadata.sqlite")

    run(scenario())


def test_older_ledgers_are_found_although_the_file_that_binds_them_is_newer(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        names = tuple(name for name in LEDGERS if name != "binding")
        saved = folder.save("saved", names)
        await folder.run()
        folder.put_back(saved, names)
        await refuses(folder, r"the ledgers \(journal, segments, catalogue\) are older than metadata.sqlite")

    run(scenario())


def test_a_missing_half_and_a_foreign_half_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder, other = Folder(tmp_path / "data"), Folder(tmp_path / "other")
        for _ in range(2):
            await folder.run()
            await other.run()
        whole = folder.save("whole", METADATA + LEDGERS)
        nothing = folder.save("nothing", ())
        folder.put_back(nothing, METADATA)
        await refuses(folder, "metadata.sqlite is missing or empty, and there are 4 ledgers beside it")
        folder.put_back(whole, METADATA)
        folder.put_back(nothing, LEDGERS)
        await refuses(folder, "the ledgers that metadata.sqlite belongs to .* are missing")
        folder.put_back(whole, LEDGERS)
        folder.put_back(other.path, METADATA)
        await refuses(folder, "metadata.sqlite and the ledgers beside it are of different data folders")
        folder.put_back(whole, METADATA + LEDGERS)
        await folder.run()

    run(scenario())


def test_transactions_that_sqlite_has_dropped_from_its_wal_are_missed(tmp_path: Path) -> None:
    """A flipped bit in a WAL ends it there, and SQLite says nothing; nor does a note that was not copied."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        async with folder.stores() as (metadata, store):
            bound = await bind(metadata, store)
            for _ in range(3):
                await use(metadata, store, 1)
            await bound.note()
            folder.save("killed", ("metadata.sqlite", "metadata.sqlite-wal", *LEDGERS))
        killed = Folder.__new__(Folder)
        killed.path = tmp_path / "killed"
        wal = killed.path / "metadata.sqlite-wal"
        content = bytearray(wal.read_bytes())
        content[len(content) * 2 // 3] ^= 1
        wal.write_bytes(content)
        await refuses(killed, "metadata.sqlite is older than the ledgers beside it")

    run(scenario())


def test_a_kill_at_each_step_of_a_start_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two stores' notes, several times over, from the first start on."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        for _ in range(3):
            for _ in range(3):
                with monkeypatch.context() as patch:
                    patch.setattr(binding, "write_binding", killed)
                    async with folder.stores() as (metadata, store):
                        with pytest.raises(KeyboardInterrupt):
                            await bind(metadata, store)
            await folder.run()

    run(scenario())


def test_a_life_in_which_nothing_was_written_hides_no_older_ledgers(tmp_path: Path) -> None:
    """Only the start that a kill cut short leaves the metadata one generation ahead."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        saved = folder.save("saved", LEDGERS)
        async with folder.stores() as (metadata, store):
            await bind(metadata, store)
            await metadata.put("/one", b"")
        folder.put_back(saved, LEDGERS)
        await refuses(folder, "are older than metadata.sqlite")

    run(scenario())


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (METADATA, "metadata.sqlite is missing or empty"),
        (LEDGERS, "the ledgers that metadata.sqlite names are missing"),
    ],
)
def test_a_folder_of_a_version_that_noted_nothing_is_bound_by_its_first_start(
    tmp_path: Path, names: tuple[str, ...], sentence: str
) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        async with folder.stores() as (metadata, store):
            await use(metadata, store, 2)
        whole = folder.save("whole", METADATA + LEDGERS)
        folder.put_back(folder.save("nothing", ()), names)
        await refuses(folder, sentence)
        folder.put_back(whole, METADATA + LEDGERS)
        await folder.run()
        folder.put_back(whole, METADATA)
        await refuses(folder, "metadata.sqlite is an old copy: it does not know the ledgers beside it")

    run(scenario())


def test_a_journal_that_is_not_synced_may_lose_rounds(tmp_path: Path) -> None:
    """Who sets journal.sync.data=false has accepted that; the next start must not refuse what is left."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        async with folder.stores() as (metadata, store):
            store.settings = LocalStoreSettings(journal_sync_data=False)
            bound = await bind(metadata, store)
            names = tuple(name for name in LEDGERS if name != "binding")
            await store.checkpoint()
            saved = folder.save("saved", names)
            await use(metadata, store, 2)
            await metadata.put("/deleted-ledgers/000000000000000f", b"")
            await bound.close()
        folder.put_back(saved, names)
        await folder.run()
        await folder.run()
        async with folder.stores() as (metadata, store):
            named = await named_ledgers(metadata)
            assert len(set(named)) == len(named) == 8, "a log must not meet what another one was given"
            assert max(named) == 0xF + 4, "nor is one to be deleted for what another one was"

    run(scenario())

"""A metadata file and a ledger store of different ages or origins are found before anything is lost to it."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError, StorageError
from magnetar.base.upkeep import Upkeep
from magnetar.ledger.managed_ledger import METADATA_ROOT
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.server import binding, doctor
from magnetar.server.binding import StoreBinding, bind
from magnetar.storage.local.binding import read_binding
from magnetar.storage.local.disk import RealDisk
from magnetar.storage.local.format import BLOCK_BYTES
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import LedgerWriter
from magnetar.testing.clock import FakeClock

SMALL = LocalStoreSettings(journal_file_bytes=1 << 20, round_bytes_max=1 << 19)
METADATA = ("metadata.sqlite", "metadata.sqlite-commits")
LEDGERS = ("journal", "segments", "catalogue", "store-id", "binding", "leases")


class Folder:
    """A data folder whose server is started, used, stopped and copied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[tuple[SqliteMetadataStore, LocalLedgerStore]]:
        metadata = SqliteMetadataStore(self.path / "metadata.sqlite")
        try:
            store = await LocalLedgerStore.start(self.path, settings=SMALL, clock=FakeClock())
            try:
                yield metadata, store
            finally:
                await store.close()
        finally:
            await metadata.close()

    async def run(self, writes: int = 2) -> None:
        """One life of a server: some ledgers are made and recorded."""
        async with self.stores() as (metadata, store):
            bound = await bind(metadata, store)
            await use(metadata, store, writes)
            await bound.close()

    async def doctor(self, *, repair: bool = False) -> doctor.Report:
        return await asyncio.to_thread(doctor.run, self.path, deep=False, repair=repair)

    def save(self, where: str, names: tuple[str, ...]) -> Path:
        """A copy of some of the folder, as it is now."""
        target = self.path.with_name(where)
        target.mkdir()
        for name in names:
            source = self.path / name
            if source.is_dir():
                shutil.copytree(source, target / name)
            elif source.exists():
                shutil.copy(source, target / name)
        return target

    def put_back(self, saved: Path, names: tuple[str, ...]) -> None:
        """Replace what is there by what was saved; what was not saved is missing then."""
        for name in names:
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
            if (saved / name).is_dir():
                shutil.copytree(saved / name, target)
            elif (saved / name).exists():
                shutil.copy(saved / name, target)


async def append(writer: LedgerWriter, offset: int) -> None:
    durable = asyncio.get_running_loop().create_future()
    writer.append([b"entry"], 5, offset, 0, durable.set_result)
    assert await durable is None


async def use(metadata: SqliteMetadataStore, store: LocalLedgerStore, writes: int) -> list[LedgerWriter]:
    writers: list[LedgerWriter] = []
    for number in range(writes):
        writer = await store.create()
        writers.append(writer)
        ledger_id = writer.stat.ledger_id
        path = f"{METADATA_ROOT}t-{metadata.commits}"
        await metadata.put(path, b'{"ledgers": [[%d, 0, 0]]}' % ledger_id)
        await append(writer, number)
    return writers


async def named_ledgers(metadata: SqliteMetadataStore) -> list[int]:
    chains = await metadata.scan(METADATA_ROOT)
    return [ledger_id for _, chain in chains for ledger_id in binding.ledgers_of(chain.value)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def refuses(folder: Folder, sentence: str) -> None:
    """It says so, again and again, and changes nothing that could be put right."""
    for _ in range(2):
        async with folder.stores() as (metadata, store):
            before = await metadata.scan("/")
            with pytest.raises(ConfigError, match=sentence) as caught:
                await bind(metadata, store)
            assert "magnetar doctor" in str(caught.value)
            assert await metadata.scan("/") == before


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
                metadata.sequence_of_ledgers = lambda: store.durable_sequence
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


def test_somebody_who_has_looked_may_go_on_and_no_ledger_id_is_given_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        saved = folder.save("saved", LEDGERS)
        await folder.run(writes=5)
        folder.put_back(saved, LEDGERS)
        await refuses(folder, "are older than metadata.sqlite")
        report = await folder.doctor()
        told = [(one.area, one.details.get("ledgers")) for one in report.findings if one.weight == "damage"]
        assert told[0] == ("binding", None)
        assert sorted(told[1:]) == [("chains", [ledger_id]) for ledger_id in range(3, 8)]
        report = await folder.doctor(repair=True)
        assert [one.area for one in report.repairs] == ["binding"]
        assert {one.area for one in report.after if one.weight == "damage"} == {"chains"}
        await folder.run(writes=0)
        await folder.run(writes=1)
        async with folder.stores() as (metadata, store):
            chains = await metadata.scan(METADATA_ROOT)
            ids = [int(value.value.split(b"[[")[1].split(b",")[0]) for _, value in chains]
            assert len(set(ids)) == len(ids) == 8
            there = {stat.ledger_id for stat in await store.list_ledgers()}
            assert len(there) == 3
            assert max(ids) in there

    run(scenario())


def test_a_damaged_note_is_told_and_whoever_has_looked_may_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        path = folder.path / "binding"
        whole = path.read_bytes()
        for position in range(len(whole)):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << position % 8
            path.write_bytes(damaged)
            with pytest.raises(StorageError, match="binding is damaged"):
                binding.read_binding(RealDisk(), folder.path)
        for short in (b"", whole[:-1], whole + b"\0"):
            path.write_bytes(short)
            with pytest.raises(StorageError, match="binding is damaged"):
                binding.read_binding(RealDisk(), folder.path)
        (finding,) = [one for one in (await folder.doctor()).findings if one.weight == "damage"]
        assert "binding is damaged" in finding.text
        assert (await folder.doctor(repair=True)).is_healthy
        await folder.run()
        await folder.run()

    run(scenario())


def test_a_repair_keeps_every_ledger_although_the_metadata_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        await folder.run()
        assert (await folder.doctor()).is_healthy
        folder.put_back(folder.save("nothing", ()), METADATA)
        await refuses(folder, "metadata.sqlite is missing or empty")
        report = await folder.doctor(repair=True)
        assert report.is_healthy
        assert "4 ledgers belong to no topic, and are kept: 1, 2, 3, 4" in [one.text for one in report.after]
        await folder.run(writes=1)
        async with folder.stores() as (_, store):
            assert [stat.ledger_id for stat in await store.list_ledgers()] == [1, 2, 3, 4, 5]

    run(scenario())


@pytest.mark.parametrize("left", ["older", "nothing"])
def test_the_doctor_tells_of_transactions_that_are_missing_and_whoever_has_looked_may_go_on(
    tmp_path: Path, left: str
) -> None:
    """The note of what was acknowledged is as it was, and would refuse what was put in the file's place."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        saved = folder.save("saved", ("metadata.sqlite",) if left == "older" else ())
        await folder.run()
        folder.put_back(saved, ("metadata.sqlite",))
        with pytest.raises(ConfigError, match=r"were acknowledged.*magnetar doctor"):
            SqliteMetadataStore(folder.path / "metadata.sqlite")
        if left == "nothing":
            (folder.path / "metadata.sqlite").unlink()
        report = await folder.doctor()
        assert [one.area for one in report.findings if one.weight == "damage"] == ["metadata", "binding"]
        assert (await folder.doctor(repair=True)).is_healthy
        assert [one.name for one in folder.path.glob("damaged-*/*")] == ["metadata.sqlite-commits"]
        await folder.run()
        async with folder.stores() as (_, store):
            assert len(await store.list_ledgers()) == 6

    run(scenario())


def test_transactions_that_are_missing_since_the_stores_were_last_compared_are_told_and_may_be_done_without(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        killed = Folder(tmp_path / "killed")
        async with folder.stores() as (metadata, store):
            await bind(metadata, store)
            await use(metadata, store, 2)
            names = (*METADATA, "metadata.sqlite-wal", *LEDGERS)
            killed.put_back(folder.save("saved", names), names)
        log = killed.path / "metadata.sqlite-wal"
        content = bytearray(log.read_bytes())
        content[-100] ^= 4
        log.write_bytes(content)
        report = await killed.doctor()
        assert [one.area for one in report.findings if one.weight == "damage"] == ["metadata"]
        assert (await killed.doctor(repair=True)).is_healthy
        await killed.run()

    run(scenario())


def test_the_doctor_tells_damaged_metadata_and_leaves_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        await folder.run()
        path = folder.path / "metadata.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE node SET value = x'00'")
        connection.close()
        before = path.read_bytes()
        report = await folder.doctor(repair=True)
        assert not report.is_healthy
        told = next(one.text for one in report.findings if one.weight == "damage")
        assert told.startswith(f"metadata file {path}")
        assert path.read_bytes() == before

    run(scenario())


def test_a_journal_that_was_mended_has_fewer_rounds_than_the_metadata_noted_and_is_served(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        async with folder.stores() as (metadata, store):
            bound = await bind(metadata, store)
            await use(metadata, store, 4)
            await metadata.put("/last", b"")
            await bound.note()
            folder.save("killed", (*METADATA, "metadata.sqlite-wal", *LEDGERS))
        killed = Folder.__new__(Folder)
        killed.path = tmp_path / "killed"
        journal = max((killed.path / "journal").iterdir(), key=lambda path: path.read_bytes()[8:16])
        content = bytearray(journal.read_bytes())
        content[content.rindex(b"MGJR", 0, content.rindex(b"MGJR")) + 30] ^= 1  # in the last round but one
        journal.write_bytes(content)
        report = await killed.doctor(repair=True)
        assert [one.area for one in report.repairs] == ["journal", "binding"]
        await killed.run(writes=1)

    run(scenario())


def test_no_ledger_id_is_given_twice_behind_a_repair_of_the_journal(tmp_path: Path) -> None:
    """The creation of a ledger is in a damaged round, and what is whole behind it has as many rounds as there were."""

    async def scenario() -> None:
        folder = Folder(tmp_path / "data")
        killed = Folder(tmp_path / "killed")
        async with folder.stores() as (metadata, store):
            await bind(metadata, store)
            first, _ = await use(metadata, store, 2)
            await store.create()
            damaged = store.durable_sequence
            await metadata.put(f"{METADATA_ROOT}t", b'{"ledgers": [[3, 0, 0]]}')
            await append(first, 1)
            names = (*METADATA, "metadata.sqlite-wal", *LEDGERS)
            killed.put_back(folder.save("saved", names), names)
        for journal in (killed.path / "journal").iterdir():
            content = bytearray(journal.read_bytes())
            for at in range(0, len(content), BLOCK_BYTES):
                if content[at : at + 4] == b"MGJR" and content[at + 23] == damaged:
                    content[at + 30] ^= 1
            journal.write_bytes(content)
        report = await killed.doctor(repair=True)
        assert [one.area for one in report.repairs] == ["journal"]
        assert {one.area for one in report.after if one.weight == "damage"} == {"chains"}
        await killed.run()
        async with killed.stores() as (metadata, _):
            named = await named_ledgers(metadata)
            assert len(set(named)) == len(named) == 5

    run(scenario())

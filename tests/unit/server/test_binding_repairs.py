"""What `magnetar doctor` says of a data folder that the server refuses, and what a start does after its repair."""

import sqlite3
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError, StorageError
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.server.binding import bind
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.binding import read_binding
from magnetar.storage.local.disk import RealDisk
from tests.unit.server.data_folder import LEDGERS, METADATA, Folder, append, named_ledgers, refuses, run, use


def test_an_operator_who_has_looked_may_go_on_and_no_ledger_id_is_given_twice(tmp_path: Path) -> None:
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


def test_a_damaged_note_is_shown_and_an_operator_who_has_looked_may_go_on(tmp_path: Path) -> None:
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
                read_binding(RealDisk(), folder.path)
        for short in (b"", whole[:-1], whole + b"\0"):
            path.write_bytes(short)
            with pytest.raises(StorageError, match="binding is damaged"):
                read_binding(RealDisk(), folder.path)
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
def test_the_doctor_tells_of_missing_transactions_and_an_operator_who_has_looked_may_go_on(
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
        content[content.rindex(b"MGJR", 0, content.rindex(b"MGJR")) + 30] ^= 0xFF  # in the last round but one
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
                    content[at + 30] ^= 0xFF
            journal.write_bytes(content)
        report = await killed.doctor(repair=True)
        assert [one.area for one in report.repairs] == ["journal"]
        assert {one.area for one in report.after if one.weight == "damage"} == {"chains"}
        await killed.run()
        async with killed.stores() as (metadata, _):
            named = await named_ledgers(metadata)
            assert len(set(named)) == len(named) == 5

    run(scenario())

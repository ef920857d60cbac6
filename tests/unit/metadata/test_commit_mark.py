"""Transactions that SQLite drops from the end of its WAL are missed at the next start."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.metadata.sqlite import SqliteMetadataStore

NAME = "metadata.sqlite"


def put_and_copy(path: Path, copy: Path, count: int) -> None:
    """Write `count` values, and copy the files as a kill would leave them."""

    async def write() -> None:
        store = SqliteMetadataStore(path / NAME)
        for number in range(count):
            await store.put(f"/{number}", b"x" * 100)
        shutil.copytree(path, copy)
        await store.close()

    path.mkdir()
    asyncio.run(write())


async def read(path: Path) -> int:
    store = SqliteMetadataStore(path / NAME)
    try:
        return len(await store.scan("/"))
    finally:
        await store.close()


@pytest.mark.parametrize("from_end", [100, 20_000])
def test_a_flipped_bit_in_the_wal_is_not_taken_for_its_end(tmp_path: Path, from_end: int) -> None:
    killed = tmp_path / "killed"
    put_and_copy(tmp_path / "data", killed, 10)
    assert asyncio.run(read(shutil.copytree(killed, tmp_path / "whole"))) == 10
    wal = killed / f"{NAME}-wal"
    content = bytearray(wal.read_bytes())
    content[-from_end] ^= 4
    wal.write_bytes(content)

    for _ in range(2):  # also once SQLite has brought the rest of the WAL into the file
        with pytest.raises(ConfigError, match=r"ends at transaction \d+, and 10 were acknowledged"):
            SqliteMetadataStore(killed / NAME)
    (killed / f"{NAME}-commits").unlink()
    assert asyncio.run(read(killed)) < 10


def test_a_wal_that_is_gone_is_missed(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    put_and_copy(tmp_path / "data", killed, 3)
    (killed / f"{NAME}-wal").unlink()
    with pytest.raises(ConfigError, match=r"damaged|ends at transaction"):
        SqliteMetadataStore(killed / NAME)


@pytest.mark.parametrize("noted", [b"", b"short", bytes(12)])
def test_a_mark_that_says_nothing_stops_no_start(tmp_path: Path, noted: bytes) -> None:
    killed = tmp_path / "killed"
    put_and_copy(tmp_path / "data", killed, 3)
    (killed / f"{NAME}-commits").write_bytes(noted)
    assert asyncio.run(read(killed)) == 3
    assert len((killed / f"{NAME}-commits").read_bytes()) == 12


def test_what_a_start_finds_is_durable_before_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A kill between a write and its sync, and a loss of power soon after the next start: the WAL had lost what the note
    # counted, and the server refused to start (`python -m tests.crash.power.cuts --seed 2002`, the 462nd cut).
    killed = tmp_path / "killed"
    put_and_copy(tmp_path / "data", killed, 3)
    calls: list[tuple[str, str]] = []
    fsync, pwrite = os.fsync, os.pwrite

    def name_of(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        calls.append(("sync", name_of(descriptor)))

    def written(descriptor: int, data: bytes, position: int) -> int:
        calls.append(("write", name_of(descriptor)))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "pwrite", written)
    store = SqliteMetadataStore(killed / NAME)
    told = list(calls)
    asyncio.run(store.close())
    assert told.index(("sync", f"{NAME}-wal")) < told.index(("write", f"{NAME}-commits"))

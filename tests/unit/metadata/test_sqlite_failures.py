"""The embedded store when its disk is full or fails, its file is locked, or its own code raises.

It says what it refuses and why, and when it writes again.
"""

import asyncio
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from magnetar.base.errors import MetadataError, MetadataLost
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.store import Change, Versioned


@contextmanager
def full_disk(store: SqliteMetadataStore) -> Iterator[None]:
    """SQLite finds no room for another page, as on a disk without space."""
    connection = store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        connection.execute("PRAGMA max_page_count = 1073741823")


def test_a_full_disk_fails_writes_with_one_sentence_and_the_store_is_usable_again_after(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store = SqliteMetadataStore(path)
        changes: list[Change] = []
        store.watch("/", changes.append)
        await store.put("/before", b"1")
        commits = store.commits
        with full_disk(store):
            results = await asyncio.gather(
                *(store.put(f"/big/{i}", b"x" * 50_000) for i in range(20)),
                store.put("/before", b"lost", 0),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [MetadataError] * 21
            assert str(results[0]).startswith("metadata cannot be written now: ")
            assert store.problem == f"{results[0]}; it is tried again every few seconds"
            assert await store.get("/before") == Versioned(b"1", 0)
            assert await store.scan("/big/") == []
        assert store.commits == commits
        assert await store.put("/before", b"2", 0) == 1
        assert store.problem is None
        assert await store.put("/big/0", b"x" * 50_000) == 0
        assert [change.path for change in changes] == ["/before", "/before", "/big/0"]
        await store.close()
        store = SqliteMetadataStore(path)
        assert [name for name, _ in await store.scan("/")] == ["/before", "/big/0"]
        assert store.commits == commits + 2
        await store.close()

    asyncio.run(scenario())


def test_an_idle_store_finds_out_by_itself_that_it_can_write_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health must not say for ever what was so at the last write."""
    monkeypatch.setattr("magnetar.metadata.sqlite._PROBE_S", 0.01)

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        other = sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)
        other.execute("PRAGMA busy_timeout = 0")
        store._connection.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MetadataError, match="locked"):
            await store.put("/a", b"1")
        loop = asyncio.get_running_loop()
        statements: asyncio.Queue[str] = asyncio.Queue()
        store._connection.set_trace_callback(
            lambda statement: loop.call_soon_threadsafe(statements.put_nowait, statement)
        )
        for _ in range(2):
            assert await statements.get() == "BEGIN IMMEDIATE"
        assert "locked" in (store.problem or "")
        other.execute("ROLLBACK")
        other.close()
        while await statements.get() != "COMMIT":
            pass
        if store._writing is not None:
            await asyncio.wait([store._writing])
        assert store.problem is None
        await store.close()

    asyncio.run(scenario())


def test_an_error_of_input_or_output_stops_all_writes_until_the_next_start(tmp_path: Path) -> None:
    """The kernel refuses to write beyond a size, which SQLite reports as SQLITE_IOERR_WRITE."""
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store = SqliteMetadataStore(path)
        await store.put("/before", b"1")
        wal_size = (tmp_path / "metadata.db-wal").stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal_size + 4096, hard))
        try:
            with pytest.raises(MetadataError, match="until the server is started again: disk I/O error"):
                await store.put("/big", b"x" * 50_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with pytest.raises(MetadataError, match="until the server is started again: disk I/O error"):
            await store.put("/small", b"")
        assert "look at the disk" in (store.problem or "")
        assert await store.get("/before") == Versioned(b"1", 0)
        await store.close()
        store = SqliteMetadataStore(path)
        assert store.problem is None
        assert await store.put("/small", b"") == 0
        await store.close()

    asyncio.run(scenario())


# Says what became of two writes, the first of which meets a sync that fails.
SYNC_FAILS = """
import asyncio, sys
from pathlib import Path
from magnetar.metadata.sqlite import SqliteMetadataStore

async def main():
    store = SqliteMetadataStore(Path(sys.argv[1]))
    for path in ("/a", "/b", "/c"):
        try:
            await store.put(path, b"x")
            print("done", path)
        except Exception as error:
            print(type(error).__name__, error)
    print(store.problem)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes the sync fail")
def test_a_sync_that_has_failed_is_not_tried_again(tmp_path: Path) -> None:
    """The kernel may have dropped what it could not write: the second sync would have nothing to do, and succeed."""
    asyncio.run(SqliteMetadataStore(tmp_path / "metadata.db").close())
    inject = "fdatasync,fsync:error=EIO:when=2"  # of those of the WAL, the first one is of its header
    wal = str(tmp_path / "metadata.db-wal")
    said = subprocess.run(
        [
            *("strace", "-f", "-o", "/dev/null", "-P", wal, "-e", f"inject={inject}"),
            *(sys.executable, "-c", SYNC_FAILS, str(tmp_path / "metadata.db")),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    if any("Operation not permitted" in line for line in said):
        pytest.skip("strace may not trace here")
    first = next(number for number, line in enumerate(said) if line.startswith("MetadataError"))
    assert all("until the server is started again: disk I/O error" in line for line in said[first:])


def test_an_unforeseen_exception_fails_every_waiting_write_and_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        await store.put("/before", b"1")

        def broken(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("magnetar.metadata.sqlite_file.write", broken)
        writes = [asyncio.ensure_future(store.put(f"/{number}", b"")) for number in range(3)]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(store.put("/late", b""))
        results = await asyncio.gather(*writes, late, return_exceptions=True)
        assert all(isinstance(result, MetadataLost) for result in results)
        assert all("can't start new thread" in str(result) for result in results)
        monkeypatch.undo()
        with pytest.raises(MetadataError, match="until the server is started again"):
            await store.put("/after", b"")
        assert await store.get("/before") == Versioned(b"1", 0)
        await store.close()
        assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]

    asyncio.run(scenario())


def test_a_checkpoint_that_fails_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite keeps the errors of its own checkpoints to itself, so the store makes them."""
    monkeypatch.setattr("magnetar.metadata.sqlite._CHECKPOINT_BYTES", 1 << 20)

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        for number in range(30):
            await store.put(f"/{number}", b"x" * 100_000)
        file_size = (tmp_path / "metadata.db").stat().st_size
        assert (tmp_path / "metadata.db-wal").stat().st_size < 2 << 20 < file_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, hard))
        kept = 30
        try:
            with suppress(MetadataError):
                while kept < 60:
                    await store.put(f"/{kept}", b"x" * 100_000)
                    kept += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert 30 < kept < 45
        assert "disk I/O error" in (store.problem or "")
        await store.close()
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        assert len(await store.scan("/")) == kept
        await store.close()

    asyncio.run(scenario())


def test_a_file_that_another_process_locks_fails_writes_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.metadata.sqlite_file._BUSY_TIMEOUT_S", 0.01)
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store = SqliteMetadataStore(path)
        await store.put("/a", b"1")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MetadataError, match="locked"):
            await store.put("/a", b"2")
        assert await store.get("/a") == Versioned(b"1", 0)
        other.execute("ROLLBACK")
        other.close()
        assert await store.put("/a", b"2") == 1
        await store.close()

    asyncio.run(scenario())

"""What the embedded store promises beyond the contract: durability, one owner, and life after a full disk."""

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.base.errors import BadVersion, ConfigError, MetadataError, MetadataLost
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.sqlite_file import APPLICATION_ID
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    Change,
    Delete,
    MetadataStore,
    Put,
    Versioned,
)
from magnetar.testing.metadata import MemoryMetadataStore


def test_other_accounts_cannot_read_it(tmp_path: Path) -> None:
    """Declared pipelines have the keys of object stores in them; the files were 0644."""
    path = tmp_path / "metadata.db"

    async def modes() -> set[int]:
        store = SqliteMetadataStore(path)
        await store.put("/secret", b"hunter2")
        found = {path.with_name(path.name + suffix).stat().st_mode & 0o007 for suffix in ("", "-wal", "-shm")}
        await store.close()
        return found

    before = os.umask(0o022)
    try:
        assert asyncio.run(modes()) == {0}
        path.chmod(0o644)  # by an earlier version, which was killed
        path.with_name(path.name + "-wal").touch(0o644)
        assert asyncio.run(modes()) == {0}
    finally:
        os.umask(before)


def test_values_and_versions_are_there_after_a_restart_and_ephemerals_are_not(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def write() -> None:
        store = SqliteMetadataStore(path)
        await store.put("/a", b"1")
        await store.put("/a", b"2")
        await store.put("/gone", b"x")
        await store.delete("/gone")
        await store.put("/e", b"x", ephemeral=True)
        await store.put("/was-durable", b"x")
        await store.put("/was-durable", b"y", ephemeral=True)
        await store.put("/was-ephemeral", b"x", ephemeral=True)
        await store.put("/was-ephemeral", b"y")
        await store.commit([Put("/b", b"x"), Delete("/b"), Put("/c", b"3")])
        await store.close()

    async def read() -> list[tuple[str, Versioned]]:
        store = SqliteMetadataStore(path)
        found = await store.scan("/")
        await store.close()
        return found

    asyncio.run(write())
    assert asyncio.run(read()) == [
        ("/a", Versioned(b"2", 1)),
        ("/c", Versioned(b"3", 0)),
        ("/was-ephemeral", Versioned(b"y", 1)),
    ]


def test_every_transaction_is_synced(tmp_path: Path) -> None:
    """What a kill cannot show and a power cut would."""

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        modes = [
            store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
        ]
        # 2 is FULL: the WAL is synced before a COMMIT returns; 0: no checkpoint whose errors nobody sees
        assert modes == ["wal", 2, 0]
        await store.close()

    asyncio.run(scenario())


# Writes without end and prints each path once its put has returned; it is killed at some moment.
WRITER = """
import asyncio, sys
from pathlib import Path
from magnetar.metadata.sqlite import SqliteMetadataStore

async def write(store, lane):
    for i in range(1_000_000):
        await store.put(f"/{lane}/{i}", b"v" * (i % 3000))
        sys.stdout.write(f"/{lane}/{i} {i % 3000}\\n")
        sys.stdout.flush()

async def main():
    store = SqliteMetadataStore(Path(sys.argv[1]))
    await asyncio.gather(*(write(store, lane) for lane in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledged_min", [1, 200, 2000])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, acknowledged_min: int) -> None:
    path = tmp_path / "metadata.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(acknowledged_min)]
        writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
    acknowledged = [line.split() for line in lines if line.endswith("\n")]
    assert len(acknowledged) >= acknowledged_min

    async def read() -> dict[str, Versioned]:
        store = SqliteMetadataStore(path)
        found = dict(await store.scan("/"))
        await store.close()
        return found

    found = asyncio.run(read())
    assert [name for name, size in acknowledged if found.get(name) != Versioned(b"v" * int(size), 0)] == []


def test_a_second_process_is_told_who_has_the_data_dir(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store = SqliteMetadataStore(path)
        opened = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from magnetar.metadata.sqlite import SqliteMetadataStore\n"
            "try: SqliteMetadataStore(Path(sys.argv[1]))\n"
            "except Exception as error: print(type(error).__name__, error)",
            str(path),
            stdout=subprocess.PIPE,
        )
        said = (await opened.communicate())[0].decode()
        await store.close()
        assert said.startswith("ConfigError ")
        assert f"{tmp_path} is in use by pid {os.getpid()}" in said
        await SqliteMetadataStore(path).close()

    asyncio.run(scenario())


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


def test_a_store_that_nobody_writes_to_finds_out_by_itself_that_it_can_write_again(
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


def test_an_exception_that_nobody_foresaw_fails_every_waiting_write_and_stops_the_store(
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


def test_a_file_of_version_1_is_brought_up_to_date(tmp_path: Path) -> None:
    """As commit 74fd161 wrote it."""
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID"
    )
    connection.executemany("INSERT INTO node VALUES (?, ?, ?)", [("/a", b"1", 3), ("/b/\u00e9", b"", 0)])
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()

    async def scenario() -> None:
        for commits in (0, 1):
            store = SqliteMetadataStore(path)
            assert (await store.scan("/"))[0] == ("/a", Versioned(b"1", 3 + commits))
            assert await store.get("/b/\u00e9") == Versioned(b"", 0)
            assert store.commits == commits
            await store.put("/a", b"1")
            await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE node SET value = x'00' WHERE path = '/a'",
        "UPDATE node SET version = 7 WHERE path = '/a'",
        "UPDATE node SET path = '/c' WHERE path = '/a'",
        "DELETE FROM node WHERE path = '/b'",
        "DELETE FROM node",
        "INSERT INTO node SELECT '/c', value, version, crc FROM node WHERE path = '/a'",
        "UPDATE state SET rows = 3",
        "DELETE FROM state",
        "UPDATE node SET version = 7.5 WHERE path = '/a'",
        "UPDATE node SET path = x'2f61' WHERE path = '/a'",
        "UPDATE node SET value = 'text' WHERE path = '/a'",
        "UPDATE state SET commits = 'many'",
        "CREATE TABLE other AS SELECT path, value, NULL AS version, crc FROM node; DROP TABLE node;"
        " ALTER TABLE other RENAME TO node",
    ],
)
def test_values_that_are_not_those_that_were_written_are_found_at_the_next_start(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "metadata.db"

    async def write() -> None:
        store = SqliteMetadataStore(path)
        await store.put("/a", b"1")
        await store.put("/a", b"2")
        await store.commit([Put("/b", b""), Put("/gone", b"")])
        await store.delete("/gone")
        await store.put("/b", b"", ephemeral=True)
        await store.put("/b", b"x")
        await store.close()
        await SqliteMetadataStore(path).close()

    asyncio.run(write())
    with sqlite3.connect(path) as connection:
        connection.executescript(damage)
    connection.close()
    with pytest.raises(ConfigError, match="is damaged"):
        SqliteMetadataStore(path)


def test_a_file_that_somebody_else_locks_fails_writes_until_it_is_let_go(
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


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_bytes(b"this is not a database, and it is longer than a header " * 20)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    newer = tmp_path / "newer.db"
    with sqlite3.connect(newer) as connection:
        connection.execute("CREATE TABLE node (x)")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, reason in ((text, "not a database"), (foreign, "another program"), (newer, "format 99")):
        before = path.read_bytes()
        for _ in range(2):  # the second time shows that the first one let the lock go
            with pytest.raises(ConfigError, match=reason):
                SqliteMetadataStore(path)
        assert path.read_bytes() == before


def test_a_watcher_that_raises_takes_nobody_else_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: reported.append(context["exception"])
        )
        seen: list[Change] = []
        trouble = RuntimeError("a bug")

        def broken(change: Change) -> None:
            raise trouble

        store.watch("/", broken)
        store.watch("/", seen.append)
        assert await asyncio.gather(*(store.put(path, b"") for path in ("/a", "/b"))) == [0, 0]
        await store.close()
        assert [change.path for change in seen] == ["/a", "/b"]
        assert reported == [trouble, trouble]

    asyncio.run(scenario())


def test_a_cancelled_writer_does_not_disturb_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        writes = [asyncio.ensure_future(store.put(f"/{i}", b"")) for i in range(3)]
        await asyncio.sleep(0)
        writes[1].cancel()
        assert await writes[0] == 0
        assert await writes[2] == 0
        assert writes[1].cancelled()
        assert await store.put("/after", b"") == 0
        await store.close()

    asyncio.run(scenario())


_PATHS = st.sampled_from(["/a", "/a/b", "/b", "/c"])
_VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, MUST_NOT_EXIST, 0, 1])
_STEPS = st.one_of(
    st.builds(Put, _PATHS, st.binary(max_size=3), _VERSIONS, st.booleans()),
    st.builds(Delete, _PATHS, _VERSIONS),
)
_ROUNDS = st.lists(st.lists(st.lists(_STEPS, min_size=1, max_size=3), max_size=6), max_size=6)


@given(rounds=_ROUNDS)
@settings(max_examples=100, deadline=None)
def test_writes_that_share_a_transaction_end_as_if_they_came_one_by_one(
    rounds: list[list[list[Put | Delete]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The in-memory store, which decides each commit by itself, is the model; a restart drops what is
    ephemeral.
    """
    path = tmp_path_factory.mktemp("model") / "metadata.db"

    async def outcome(store: MetadataStore, steps: list[Put | Delete]) -> str:
        try:
            await store.commit(steps)
        except BadVersion:
            return "lost"
        return "done"

    async def scenario() -> None:
        store, model = SqliteMetadataStore(path), MemoryMetadataStore()
        changes: list[Change] = []
        expected_changes: list[Change] = []
        store.watch("/", changes.append)
        model.watch("/", expected_changes.append)
        ephemeral: dict[str, bool] = {}
        for commits in rounds:
            together = await asyncio.gather(*(outcome(store, steps) for steps in commits))
            one_by_one = [await outcome(model, steps) for steps in commits]
            assert list(together) == one_by_one
            assert await store.scan("/") == await model.scan("/")
            for steps, result in zip(commits, one_by_one, strict=True):
                for step in steps if result == "done" else ():
                    ephemeral[step.path] = isinstance(step, Put) and step.ephemeral
        assert changes == expected_changes
        await store.close()
        store = SqliteMetadataStore(path)
        durable = [(name, value) for name, value in await model.scan("/") if not ephemeral[name]]
        assert await store.scan("/") == durable
        await store.close()

    asyncio.run(scenario())


def test_ten_thousand_topics_share_transactions_and_are_scanned_without_the_database(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        statements: list[str] = []
        store._connection.set_trace_callback(statements.append)
        await asyncio.gather(
            *(store.put(f"/topics/public/default/t{i:05}", b"x" * 300) for i in range(10_000))
        )
        assert sum(statement.startswith("BEGIN") for statement in statements) <= 10
        statements.clear()
        assert len(await store.scan("/topics/")) == 10_000
        assert statements == []
        await store.close()

    asyncio.run(scenario())

"""The file itself: what it says it is, what is synced before it is used, and what is let go of at the end."""

import asyncio
import errno
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from crc32c import crc32c

from magnetar.base.errors import BadVersion, ConfigError, MetadataError, MetadataLost
from magnetar.metadata import sqlite_file
from magnetar.metadata.commit_mark import CommitMark, mark_path, noted_commits
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.sqlite_file import Failure, State
from magnetar.metadata.store import MUST_NOT_EXIST, Put, Versioned
from magnetar.testing.clock import FakeClock

NAME = "metadata.db"


def held() -> tuple[set[str], int]:
    """The files that this process has open, and how many threads of the store there are."""
    files = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            files.add(f"{descriptor} {os.readlink(f'/proc/self/fd/{descriptor}')}")
        except FileNotFoundError:
            continue  # the listing's own
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("magnetar-metadata")]
    return files, len(threads)


async def write(path: Path, *paths: str) -> SqliteMetadataStore:
    """The store that was written to, and closed."""
    store = SqliteMetadataStore(path)
    for each in paths:
        await store.put(each, b"x" * 100)
    await store.close()
    return store


def test_the_file_says_what_it_is_as_the_format_has_it(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path / NAME, "/a"))
    with sqlite3.connect(tmp_path / NAME) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == 0x4D67746D
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 2
        (crc,) = connection.execute("SELECT crc FROM node").fetchone()
    connection.close()
    assert crc == crc32c(bytes(8) + b"/a\0" + b"x" * 100)


def test_a_store_holds_nothing_once_it_is_closed(tmp_path: Path) -> None:
    before = held()
    store = asyncio.run(write(tmp_path / NAME, "/a"))
    assert held() == before
    with pytest.raises(MetadataError, match="closed"):  # and it is not freed before that
        asyncio.run(store.get("/a"))


def test_a_store_that_cannot_be_opened_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / NAME
    asyncio.run(write(path, "/a", "/b"))
    good = tmp_path / "good"
    shutil.copy(path, good)
    before = held()

    def fails(reason: str) -> None:
        for _ in range(2):
            with pytest.raises(ConfigError, match=reason) as caught:
                SqliteMetadataStore(path)
            del caught
            assert held() == before
        shutil.copy(good, path)

    for damage, reason in (
        ("UPDATE node SET value = x'00'", "fails its checksum"),
        ("PRAGMA user_version = 3", "has format 3"),
        ("UPDATE state SET commits = 1", "ends at transaction 1, and 2 were acknowledged"),
        ("DROP TABLE state", "no such table"),
    ):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(damage)
        connection.close()
        fails(reason)
    content = bytearray(path.read_bytes())
    page = content.index(b"x" * 100) // 4096 * 4096
    content[page : page + 8] = b"\xff" * 8
    path.write_bytes(content)
    fails("is damaged: database disk image is malformed")


def test_the_folder_is_synced_once_both_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose name the power takes is as lost as its content."""
    synced: list[tuple[str, list[str]]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), sorted(os.listdir(tmp_path))))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    for _ in range(2):
        sqlite_file.open_file(tmp_path / NAME).close()
        (wal, _), (folder, names) = synced[-2:]
        assert (wal, folder) == (str(tmp_path / (NAME + "-wal")), str(tmp_path))
        assert {NAME, NAME + "-wal"} <= set(names)


@pytest.mark.parametrize("fails", [NAME + "-wal", ""])
def test_a_file_that_cannot_be_synced_at_a_start_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """What it holds may be in memory alone, and the next sync would not say so."""
    asyncio.run(write(tmp_path / NAME, "/a"))
    before = held()
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == os.path.normpath(tmp_path / fails):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output error") as caught:
        sqlite_file.open_file(tmp_path / NAME)
    assert held() == before, "whoever has the error does not keep it open"
    del caught


def test_values_of_version_1_that_are_not_what_was_written_are_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB, version INTEGER) WITHOUT ROWID")
    connection.execute("INSERT INTO node VALUES ('/a', 'text', 0)")
    connection.execute(f"PRAGMA application_id = {sqlite_file.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(ConfigError, match="is damaged: what it holds at '/a' is not what was written"):
        SqliteMetadataStore(path)


def test_files_that_an_earlier_version_left_open_to_others_are_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / NAME
    names = [NAME, *(NAME + suffix for suffix in ("-wal", "-shm"))]
    killed = tmp_path / "killed"
    killed.mkdir()

    async def scenario() -> None:
        store = SqliteMetadataStore(path)
        await store.put("/a", b"x")
        for name in names:
            shutil.copy(tmp_path / name, killed)
            (killed / name).chmod(0o644)
        await store.close()

    asyncio.run(scenario())
    connection = sqlite_file.open_file(killed / NAME)
    modes = {name: (killed / name).stat().st_mode & 0o007 for name in names}
    connection.close()
    assert modes == dict.fromkeys(names, 0)


def test_a_transaction_that_could_not_be_undone_does_not_hold_up_the_next_one(tmp_path: Path) -> None:
    connection = sqlite_file.open_file(tmp_path / NAME)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO node VALUES ('/half', x'', 0, 0)")
    assert sqlite_file.write(connection, [("/a", b"", 0, 7)], [], State(1, 1, 7, 0)) is None
    assert connection.execute("SELECT path FROM node").fetchall() == [("/a",)]
    connection.close()


def test_a_transaction_that_failed_is_undone_at_once(tmp_path: Path) -> None:
    """Another process that looks into the file is not locked out until the next write."""
    connection = sqlite_file.open_file(tmp_path / NAME)
    failure = sqlite_file.write(connection, [("/a", b"", 0, None)], [], State(1, 1, 7, 0))  # type: ignore[list-item]
    assert failure is not None
    assert not connection.in_transaction
    connection.close()


def test_what_was_noted_of_transactions_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert noted_commits(path) == 0
    asyncio.run(write(path, "/a", "/b", "/c"))
    assert noted_commits(path) == 3
    assert mark_path(path).stat().st_mode & 0o777 == 0o640
    mark_path(path).write_bytes(bytes(12))
    assert noted_commits(path) == 0


# --- rounds -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The disk writes while this is set."""
    opened = threading.Event()
    opened.set()
    write = sqlite_file.write

    def waiting(*arguments: object) -> Failure | None:
        opened.wait()
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite_file, "write", waiting)
    return opened


async def soon(*writes: "asyncio.Task[int]") -> None:
    """Until the writes are under way."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_write_that_waits_for_the_disk_is_a_problem_only_once_it_takes_long(
    tmp_path: Path, gate: threading.Event
) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        clock.advance(100)
        store = SqliteMetadataStore(tmp_path / NAME, clock)
        gate.clear()
        write = asyncio.create_task(store.put("/a", b""))
        await soon(write)
        clock.advance(10)
        assert store.problem is None
        clock.advance(1)
        assert "waiting for the disk for 11 s" in (store.problem or "")
        gate.set()
        await write
        assert store.problem is None
        await store.close()

    asyncio.run(scenario())


def test_closing_finishes_what_is_queued_however_many_rounds_that_takes(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.metadata.sqlite._ROUND_STEPS_MAX", 1)

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        gate.clear()
        writes = [asyncio.create_task(store.put(f"/{number}", b"")) for number in range(5)]
        await soon(*writes)
        closing = asyncio.create_task(store.close())
        await soon()
        gate.set()
        await closing
        assert await asyncio.gather(*writes) == [0] * 5
        for call in (store.get("/0"), store.scan("/"), store.put("/late", b""), store.delete("/0")):
            with pytest.raises(MetadataError, match="is closed"):
                await call
        store = SqliteMetadataStore(tmp_path / NAME)
        assert len(await store.scan("/")) == store.commits == 5
        await store.close()

    asyncio.run(scenario())


def test_closing_brings_everything_into_the_file_also_while_another_process_reads_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        await store.put("/a", b"x" * 10_000)
        other = sqlite3.connect(tmp_path / NAME)
        other.execute("SELECT count(*) FROM node").fetchall()
        assert (tmp_path / (NAME + "-wal")).stat().st_size > 10_000
        await store.close()
        assert (tmp_path / (NAME + "-wal")).stat().st_size == 0
        other.close()

    asyncio.run(scenario())


def test_the_file_is_let_go_of_before_another_store_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = CommitMark.close
    closed: list[CommitMark] = []

    def tried(mark: CommitMark) -> None:
        with pytest.raises(ConfigError, match="is in use"):
            SqliteMetadataStore(tmp_path / NAME)
        closed.append(mark)
        close(mark)

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        monkeypatch.setattr(CommitMark, "close", tried)
        await store.close()
        assert closed == [store._mark]

    asyncio.run(scenario())


def test_a_round_takes_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.metadata.sqlite._ROUND_STEPS_MAX", 10)

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        await asyncio.gather(*(store.put(f"/{number}", b"") for number in range(20)))
        assert store.commits == 2
        await store.commit([Put(f"/more/{number}", b"") for number in range(25)])
        assert store.commits == 3
        await store.close()

    asyncio.run(scenario())


def test_many_paths_that_come_at_once_are_found_in_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        numbers = [number * 37 % 200 for number in range(200)]
        for some in (numbers[:70], numbers[70:75], numbers[75:]):
            await asyncio.gather(*(store.put(f"/{number:03}", b"") for number in some))
        assert [path for path, _ in await store.scan("/")] == [f"/{number:03}" for number in range(200)]
        await store.close()

    asyncio.run(scenario())


def test_a_store_that_can_write_tries_nothing_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        store = SqliteMetadataStore(tmp_path / NAME, clock)
        await store.put("/a", b"")
        while store._writing is not None:
            await asyncio.wait([store._writing])
        clock.advance(60)
        assert store._writing is None
        await store.close()

    asyncio.run(scenario())


def test_each_transaction_notes_how_far_the_ledgers_were(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        await store.put("/a", b"")
        assert store.noted_sequence == 0
        store.bind(SimpleNamespace(durable_sequence=77))
        await store.put("/a", b"")
        await store.close()
        store = SqliteMetadataStore(tmp_path / NAME)
        assert store.noted_sequence == 77
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (("/a", MUST_NOT_EXIST), "metadata path /a exists already"),
        (("/b", 3), "metadata path /b does not exist, version 3 was expected"),
        (("/a", 3), "metadata path /a has version 0, 3 was expected"),
    ],
)
def test_a_refusal_says_what_was_expected_and_nothing_of_its_commit_is_done(
    tmp_path: Path, steps: tuple[str, int], said: str
) -> None:
    path, version = steps

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        await store.put("/a", b"1")
        with pytest.raises(BadVersion) as caught:
            await store.commit([Put("/first", b""), Put(path, b"2", version)])
        assert str(caught.value) == said
        assert await store.scan("/") == [("/a", Versioned(b"1", 0))]
        await store.close()

    asyncio.run(scenario())


# --- failures ---------------------------------------------------------------------------------------------------------


def test_what_waits_behind_a_write_that_failed_for_good_hears_the_same(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.metadata.sqlite._ROUND_STEPS_MAX", 1)
    monkeypatch.setattr(sqlite_file, "write", lambda *_: Failure("disk I/O error", True))

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        writes = (store.put(f"/{number}", b"") for number in range(3))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, MetadataLost) for result in results] == [True, False, False]
        assert all("started again: disk I/O error" in str(result) for result in results)
        await store.close()

    asyncio.run(scenario())


def test_a_failure_for_good_ends_the_attempts_that_one_for_now_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [Failure("database is locked", False), Failure("disk I/O error", True)]
    monkeypatch.setattr(sqlite_file, "write", lambda *_: failures.pop(0))

    async def scenario() -> None:
        clock = FakeClock()
        store = SqliteMetadataStore(tmp_path / NAME, clock)
        for said in ("locked", "disk I/O error"):
            with pytest.raises(MetadataError, match=said):
                await store.put("/a", b"")
        assert "disk I/O error" in (store.problem or "")
        clock.advance(60)
        await soon()
        assert store._writing is None
        assert "disk I/O error" in (store.problem or "")
        await store.close()

    asyncio.run(scenario())


def test_a_closed_store_tries_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "write", lambda *_: Failure("database is locked", False))

    async def scenario() -> None:
        clock = FakeClock()
        store = SqliteMetadataStore(tmp_path / NAME, clock)
        with pytest.raises(MetadataError, match="locked"):
            await store.put("/a", b"")
        await store.close()
        clock.advance(60)
        await soon()
        assert store._writing is None
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []

    asyncio.run(scenario())


@pytest.mark.parametrize("is_final", [True, False])
def test_a_checkpoint_that_fails_stops_the_store_only_when_its_outcome_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_final: bool
) -> None:
    monkeypatch.setattr("magnetar.metadata.sqlite._CHECKPOINT_BYTES", 1)
    calls: list[bool] = []

    def checkpoint(connection: sqlite3.Connection, *, truncate: bool) -> Failure:
        calls.append(truncate)
        return Failure("it did not work", is_final)

    monkeypatch.setattr(sqlite_file, "checkpoint", checkpoint)

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        await store.put("/a", b"")
        while store._writing is not None:
            await asyncio.wait([store._writing])
        assert ("it did not work" in (store.problem or "")) == is_final
        await store.close()
        assert calls == ([False] if is_final else [False, True])

    asyncio.run(scenario())


def test_when_the_loop_ends_within_a_write_its_outcome_is_unknown(
    tmp_path: Path, gate: threading.Event
) -> None:
    """It may be on the disk: a write that went on from what is in memory would contradict the file."""

    async def scenario() -> None:
        store = SqliteMetadataStore(tmp_path / NAME)
        gate.clear()
        first = asyncio.create_task(store.put("/under-way", b""))
        await soon(first)
        second = asyncio.create_task(store.put("/waiting", b""))
        await soon(second)
        assert store._writing is not None
        writing = store._writing
        writing.cancel()
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert ["is closing" in str(result) for result in results] == [True, True]
        assert isinstance(results[0], MetadataLost)
        assert writing.cancelled()
        gate.set()
        with pytest.raises(MetadataError, match="until the server is started again"):
            await store.put("/after", b"")
        await store.close()
        store = SqliteMetadataStore(tmp_path / NAME)
        assert [path for path, _ in await store.scan("/")] == ["/under-way"]
        await store.close()

    asyncio.run(scenario())

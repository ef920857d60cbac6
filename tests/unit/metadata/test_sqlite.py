"""What the embedded store promises beyond the contract: durability, one owner, and life after a full disk."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.base.errors import BadVersion, ConfigError
from magnetar.metadata import sqlite
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.sqlite_file import APPLICATION_ID
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    Change,
    Check,
    CommitStep,
    Delete,
    MetadataStore,
    Put,
    Versioned,
)
from magnetar.testing.metadata import MemoryMetadataStore
from tests.examples import at_least
from tests.unit.circles import error_stays


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


def test_a_write_that_is_refused_keeps_nothing(tmp_path: Path) -> None:
    """The error had the operation that had brought it, with the values."""

    async def main() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        await store.put("/a", b"1")
        assert not await error_stays(BadVersion, lambda: store.put("/a", b"2", MUST_NOT_EXIST))
        await store.close()

    asyncio.run(main())


def test_a_transaction_of_very_many_steps_is_decided_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: Counter[str] = Counter()  # in this turn
    most: Counter[str] = Counter()
    turns: Counter[str] = Counter()  # in which there was any

    def counts(name: str) -> None:
        plain = getattr(sqlite, name)

        def counted(*values: Any) -> Any:
            work[name] += 1
            return plain(*values)

        monkeypatch.setattr(sqlite, name, counted)

    def never(*_: object) -> None:
        raise AssertionError("nothing waits for the clock")

    async def write() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", never)
        for value in (b"1", b"2"):
            steps = [Put(f"/many/{number}", value) for number in range(10_000)]
            writing = asyncio.ensure_future(store.commit(steps))
            while not writing.done():
                work.clear()
                await asyncio.sleep(0)
                turns.update(work.keys())
                most.update({name: max(count - most[name], 0) for name, count in work.items()})
            await writing
        found = await store.scan("/many/")
        assert {(one.value, one.version) for _, one in found} == {(b"2", 1)}
        assert len(found) == 10_000
        await store.close()

    counts("Change")
    counts("row_crc")
    asyncio.run(write())
    assert set(most) == {"Change", "row_crc"}
    assert max(most.values()) <= 2000, most  # of each path what it was and what it is
    assert max(turns.values()) <= 2 * 11, turns  # and no more than it takes


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
        # 2 is FULL: the WAL is synced before a COMMIT returns; 0: no checkpoint whose errors go unseen
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


def test_a_watcher_that_raises_takes_no_other_with_it(tmp_path: Path) -> None:
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
    st.builds(Check, _PATHS, _VERSIONS.filter(lambda version: version != ANY_VERSION)),
)
_ROUNDS = st.lists(st.lists(st.lists(_STEPS, min_size=1, max_size=3), max_size=6), max_size=6)


@given(rounds=_ROUNDS)
@settings(max_examples=at_least(100))
def test_writes_that_share_a_transaction_end_as_if_they_came_one_by_one(
    rounds: list[list[list[CommitStep]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The in-memory store, which decides each commit by itself, is the model; a restart drops what is
    ephemeral.
    """
    path = tmp_path_factory.mktemp("model") / "metadata.db"

    async def outcome(store: MetadataStore, steps: list[CommitStep]) -> str:
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
                    if not isinstance(step, Check):
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
        # A checkpoint of what was put may come on the writing thread at any time.
        assert [one for one in statements if not one.startswith("PRAGMA wal_checkpoint")] == []
        await store.close()

    asyncio.run(scenario())

"""The embedded `MetadataStore`: one SQLite file, one writing thread, the whole content in memory.

How a write goes.  Operations queue on the event loop.  When no *round* is under way, everything that waits
becomes one: each operation is checked, in order, against the state that the ones before it leave behind, so
that its compare-and-set is decided before anything is written; the rows of the winners go to the thread as
one transaction; when that is durable (WAL, `synchronous=FULL`), memory is brought up to date, watchers are
called and the waiting coroutines resume.  While a round is on its way the next one fills.  The thread only
writes rows, so it never has to undo one operation of many.

Reads are answered from memory and therefore show only what is durable.  Ephemeral paths exist in memory
alone.

When a round fails (disk full, file locked), all of its operations fail with `MetadataError`, memory stays as
it was, and the next round tries afresh.  After a failed sync the outcome of a write is unknown until the next
start, as with any database: it may be there then.

File, version 1 (`application_id` 0x4d67746d "Mgtm", `user_version` 1):

    node  path TEXT primary key   as given to `put`
          value BLOB              at most VALUE_BYTES_MAX bytes
          version INTEGER         0 for the first write
"""

import asyncio
import os
import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from magnetar.base.errors import BadVersion, ConfigError, MetadataError
from magnetar.base.lockfile import DirectoryLock
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    Change,
    Delete,
    Put,
    Versioned,
    check_operation,
)

APPLICATION_ID: Final = 0x4D67746D
FORMAT_VERSION: Final = 1

_WAL_BYTES_KEPT: Final = (
    64 << 20
)  # a burst may grow the WAL past this; the next checkpoint gives the rest back
_BUSY_TIMEOUT_S: Final = (
    2.0  # somebody looks into the file with sqlite3: wait a little before failing a round
)
_ROUND_OPERATIONS_MAX: Final = 4096  # bounds a round's latency and the WAL it adds

_Row = tuple[str, bytes, int]


class _Operation:
    """One `put`, `delete` or `commit` on its way."""

    __slots__ = ("changes", "error", "future", "steps")

    def __init__(self, steps: Sequence[Put | Delete], future: "asyncio.Future[int]") -> None:
        self.steps = steps
        self.future = future
        self.error: MetadataError | None = None
        self.changes: list[tuple[Change, bool]] = []  # with: is the path ephemeral now


class _Node:
    __slots__ = ("ephemeral", "versioned")

    def __init__(self, versioned: Versioned, ephemeral: bool) -> None:
        self.versioned = versioned
        self.ephemeral = ephemeral


class SqliteMetadataStore:
    """A `MetadataStore` in the file `path`, which is made if need be.

    It belongs to the event loop that first uses it.

    Raises:
        ConfigError: another process has the file open, or it is not a metadata file of this version.
        OSError: the file or its directory cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._lock = DirectoryLock(path.with_name(path.name + ".lock"))
        try:
            self._connection = _open(path)
            self._nodes = _load(path, self._connection)
        except BaseException:
            self._lock.release()
            raise
        self._paths = sorted(self._nodes)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="magnetar-metadata")
        self._queue: list[_Operation] = []
        self._watchers: dict[int, tuple[str, Callable[[Change], None]]] = {}
        self._next_watcher = 0
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    async def get(self, path: str) -> Versioned | None:
        self._check_open()
        node = self._nodes.get(path)
        return None if node is None else node.versioned

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        self._check_open()
        nodes, paths = self._nodes, self._paths
        found = []
        for index in range(bisect_left(paths, prefix), len(paths)):
            path = paths[index]
            if not path.startswith(prefix):
                break
            found.append((path, nodes[path].versioned))
        return found

    async def put(
        self, path: str, value: bytes, expected_version: int = ANY_VERSION, *, ephemeral: bool = False
    ) -> int:
        return await self._submit((Put(path, value, expected_version, ephemeral),))

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self._submit((Delete(path, expected_version),))

    async def commit(self, operations: Sequence[Put | Delete]) -> None:
        if operations:
            await self._submit(tuple(operations))

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        key = self._next_watcher
        self._next_watcher += 1
        self._watchers[key] = (prefix, callback)

        def end() -> None:
            self._watchers.pop(key, None)

        return end

    async def close(self) -> None:
        """Finish what is queued, then release the file.  Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()
        self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise MetadataError("the metadata store is closed")

    async def _submit(self, steps: Sequence[Put | Delete]) -> int:
        self._check_open()
        for step in steps:
            check_operation(step)
        loop = asyncio.get_running_loop()
        operation = _Operation(steps, loop.create_future())
        self._queue.append(operation)
        if self._writing is None:
            # A task begins only once the coroutines that are ready now have run: they all join its first
            # round.
            self._writing = loop.create_task(self._write_rounds(loop))
        return await operation.future

    async def _write_rounds(self, loop: asyncio.AbstractEventLoop) -> None:
        operations: list[_Operation] = []
        try:
            while self._queue:
                operations = self._queue[:_ROUND_OPERATIONS_MAX]
                del self._queue[:_ROUND_OPERATIONS_MAX]
                rows, gone = self._decide(operations)
                failure = None
                if rows or gone:
                    failure = await loop.run_in_executor(self._thread, _write, self._connection, rows, gone)
                self._finish(loop, operations, failure)
        finally:
            # Only a cancelled task (the loop is being torn down) or a bug of ours leaves somebody waiting
            # here.
            for operation in (*operations, *self._queue):
                operation.future.cancel()
            self._queue.clear()
            self._writing = None

    def _decide(self, operations: Sequence[_Operation]) -> tuple[list[_Row], list[tuple[str]]]:
        """Check every operation; the rows to write and the paths to remove, one at most for each path."""
        ahead: dict[str, _Node | None] = {}
        for operation in operations:
            mine: dict[str, _Node | None] = {}
            for step in operation.steps:
                path = step.path
                old = mine[path] if path in mine else ahead[path] if path in ahead else self._nodes.get(path)
                version = old.versioned.version if old is not None else MUST_NOT_EXIST
                if step.expected_version not in (ANY_VERSION, version):
                    operation.error = _bad_version(path, step.expected_version, version)
                    operation.changes.clear()
                    break
                if isinstance(step, Delete):
                    if old is None:
                        continue
                    mine[path] = None
                    operation.changes.append((Change(path, None), False))
                else:
                    new = Versioned(step.value, version + 1 if version >= 0 else 0)
                    mine[path] = _Node(new, step.ephemeral)
                    operation.changes.append((Change(path, new), step.ephemeral))
            else:
                ahead.update(mine)
        rows: list[_Row] = []
        gone: list[tuple[str]] = []
        for path, node in ahead.items():
            if node is not None and not node.ephemeral:
                rows.append((path, node.versioned.value, node.versioned.version))
                continue
            before = self._nodes.get(path)
            if before is not None and not before.ephemeral:
                gone.append((path,))
        return rows, gone

    def _finish(
        self, loop: asyncio.AbstractEventLoop, operations: Sequence[_Operation], failure: MetadataError | None
    ) -> None:
        for operation in operations:
            error = failure or operation.error
            if error is None:
                for change, ephemeral in operation.changes:
                    self._apply(change, ephemeral)
                    # Not called from here: a watcher that raises must not take this round's other results
                    # with it.
                    for key, (prefix, _) in self._watchers.items():
                        if change.path.startswith(prefix):
                            loop.call_soon(self._notify, key, change)
            future = operation.future
            if future.done():  # its caller was cancelled; the write has happened or not all the same
                continue
            if error is not None:
                future.set_exception(error)
                continue
            value = operation.changes[-1][0].value if operation.changes else None
            future.set_result(value.version if value is not None else 0)

    def _apply(self, change: Change, ephemeral: bool) -> None:
        path, value = change.path, change.value
        if value is None:
            del self._nodes[path]
            del self._paths[bisect_left(self._paths, path)]
            return
        if path not in self._nodes:
            insort(self._paths, path)
        self._nodes[path] = _Node(value, ephemeral)

    def _notify(self, key: int, change: Change) -> None:
        watcher = self._watchers.get(key)
        if watcher is not None:
            watcher[1](change)


def _bad_version(path: str, expected: int, found: int) -> BadVersion:
    if expected == MUST_NOT_EXIST:
        return BadVersion(f"metadata path {path} exists already")
    if found == MUST_NOT_EXIST:
        return BadVersion(f"metadata path {path} does not exist, version {expected} was expected")
    return BadVersion(f"metadata path {path} has version {found}, {expected} was expected")


def _open(path: Path) -> sqlite3.Connection:
    is_new = not path.exists()
    try:
        # Autocommit mode: transactions are begun and ended by _write.  The one thread that writes is not this
        # one.
        connection = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(path, connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise ConfigError(f"metadata file {path} cannot be opened: {error}") from error
    if is_new:
        # SQLite syncs the directory for its WAL, not for the database file.
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return connection


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    application_id = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and application_id != APPLICATION_ID:
        raise ConfigError(f"{path} is a database of another program: choose another data dir")
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"metadata file {path} has format {version} and this Magnetar knows up to {FORMAT_VERSION}:"
            " start the newer one that wrote it"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    if not tables:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)"
            " WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _load(path: Path, connection: sqlite3.Connection) -> dict[str, _Node]:
    try:
        rows = connection.execute("SELECT path, value, version FROM node")
        return {name: _Node(Versioned(bytes(value), version), False) for name, value, version in rows}
    except sqlite3.Error as error:
        connection.close()
        raise ConfigError(f"metadata file {path} cannot be read: {error}") from error


def _write(
    connection: sqlite3.Connection, rows: Sequence[_Row], gone: Sequence[tuple[str]]
) -> MetadataError | None:
    """One durable transaction, on the writing thread; what went wrong, if anything did."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # the last round failed and could not even be undone
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO node VALUES (?, ?, ?)"
            " ON CONFLICT (path) DO UPDATE SET value = excluded.value, version = excluded.version",
            rows,
        )
        connection.executemany("DELETE FROM node WHERE path = ?", gone)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:  # SQLite has rolled back by itself after some errors
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        return MetadataError(f"metadata cannot be written now: {error}")
    return None

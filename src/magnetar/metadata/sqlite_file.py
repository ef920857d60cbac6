"""The file of the embedded metadata store: its format, and all calls of SQLite.

File, version 2 (`application_id` 0x4d67746d "Mgtm", `user_version` 2):

    node   path TEXT primary key   as given to `put`
           value BLOB              at most VALUE_BYTES_MAX bytes
           version INTEGER         0 for the first write
           crc INTEGER             crc32c over version (8 bytes, big-endian), path (UTF-8), a zero byte and value
    state  id INTEGER              0: there is one row
           commits INTEGER         transactions that were ever made durable; each adds one
           rows INTEGER            how many rows `node` has
           digest INTEGER          the sum of their checksums, modulo 2^62
           sequence INTEGER        the ledger store's last journal round that was durable before this; 0: not known

SQLite has checksums for its WAL but not for its pages.  So `load`, which reads everything at a start, looks for
damage: rows that fail their checksum, and, by count and sum, rows that are missing or too many.

Version 1 had neither `crc` nor `state`; `open_file` converts such a file in one transaction.

**What an error means.** If there is no space, or another process holds a lock, SQLite rolls the transaction back and
reports it: nothing has happened, and the next transaction may succeed.  After an error of input or output it is not
known what has happened.  A failed sync must not simply be repeated: the kernel may have dropped the pages that it
could not write, and the second sync finds nothing to do.  So `Failure.is_final` is true for these errors, for damage,
and for every error that is not known to be temporary.

The store asks for checkpoints, which copy the WAL into the file (`checkpoint`), because SQLite's automatic ones
report no errors.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.errors import ConfigError
from magnetar.base.private import keep_private, private_file
from magnetar.metadata.store import Versioned

APPLICATION_ID: Final = 0x4D67746D
FORMAT_VERSION: Final = 2
_DIGEST_MODULUS: Final = 1 << 62

# In a burst the WAL may grow larger than this; the next checkpoint frees the rest.
_WAL_BYTES_KEPT: Final = 64 << 20
# A person may look into the file with sqlite3: a round waits this long for the lock before it fails.
_BUSY_TIMEOUT_S: Final = 2.0
_PRIMARY_CODE: Final = 0xFF  # the other bits give details
_PASSING_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)

Row = tuple[str, bytes, int, int]  # path, value, version, checksum


class State(NamedTuple):
    """The file's only row of `state`."""

    commits: int
    rows: int
    digest: int
    sequence: int


class Failure(NamedTuple):
    """Why a call failed.  `is_final`: the result of the call is not known, or the file is damaged."""

    text: str
    is_final: bool


def row_crc(path: str, value: bytes, version: int) -> int:
    return int(crc32c(value, crc32c(version.to_bytes(8, "big") + path.encode() + b"\0")))


def summed(digest: int, gone: Iterable[int], came: Iterable[int]) -> int:
    """The digest after rows with the checksums `gone` were removed, and rows with the checksums `came` were added."""
    return (digest - sum(gone) + sum(came)) % _DIGEST_MODULUS


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file; create it if there is none, and convert it if its version is old.

    Raises:
        ConfigError: `path` is not a metadata file that this version knows.
        OSError: the file cannot be created, or the file or its directory cannot be synced.
    """
    private_file(path)  # declared pipelines have secrets in them
    for suffix in ("-wal", "-shm"):  # SQLite creates them with the rights of the file
        keep_private(path.with_name(path.name + suffix))
    try:
        # Autocommit mode: `write` begins and ends transactions.  The one thread that writes is not this one.
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
    except UnicodeError:  # SQLite's error quotes the tables' definitions
        raise _damaged(path, "its tables are defined in bytes that are no text") from None
    # A process that was killed between a write of the WAL and its sync leaves transactions that only the page cache
    # has.  Clients see what a start finds, and the transactions are counted, so a loss of power must not take any of
    # them.  The WAL's file exists: SQLite creates it when it first reads or writes.
    try:
        _sync(path.with_name(path.name + "-wal"), os.O_RDONLY)
        # SQLite does not sync the directory after it creates the database file; after it creates the WAL, it ignores
        # errors of that sync.
        _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        connection.close()
        raise
    return connection


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    if tables and version == FORMAT_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    rows: list[Row] = []
    if tables:  # version 1
        old = connection.execute("SELECT path, value, version FROM node")
        for name, value, count in old:
            _check_kinds(path, name, value, count)
            rows.append((name, value, count, row_crc(name, value, count)))
        connection.execute("DROP TABLE node")
    connection.execute(
        "CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,"
        " crc INTEGER NOT NULL) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 0), commits INTEGER NOT NULL,"
        " rows INTEGER NOT NULL, digest INTEGER NOT NULL, sequence INTEGER NOT NULL)"
    )
    connection.executemany("INSERT INTO node VALUES (?, ?, ?, ?)", rows)
    digest = summed(0, (), (row[3] for row in rows))
    connection.execute("INSERT INTO state VALUES (0, 0, ?, ?, 0)", (len(rows), digest))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def load(path: Path, connection: sqlite3.Connection) -> tuple[dict[str, Versioned], State]:
    """All values in the file, by path, and its state.  If the file is damaged, closes the connection and raises
    ConfigError.
    """
    try:
        nodes: dict[str, Versioned] = {}
        digest = 0
        for name, value, version, crc in connection.execute("SELECT path, value, version, crc FROM node"):
            _check_kinds(path, name, value, version)
            if row_crc(name, value, version) != crc:
                raise _damaged(path, f"what it holds at {name[:200]!r} fails its checksum")
            nodes[name] = Versioned(value, version)
            digest += crc
        found = connection.execute("SELECT commits, rows, digest, sequence FROM state").fetchone()
        if found is None or (len(nodes), digest % _DIGEST_MODULUS) != found[1:3] or not _are_numbers(found):
            raise _damaged(path, f"{len(nodes)} values were found, and they are not those that were written")
    except (sqlite3.Error, TypeError, UnicodeError, OverflowError) as error:
        connection.close()
        raise _damaged(path, str(error)) from error
    except ConfigError:
        connection.close()
        raise
    return nodes, State(*found)


def _check_kinds(path: Path, name: object, value: object, version: object) -> None:
    """Raise ConfigError for a row whose columns have other types than were written: a flipped bit can change a type."""
    if not (type(name) is str and type(value) is bytes and type(version) is int):
        raise _damaged(path, f"what it holds at {str(name)[:200]!r} is not what was written")


def _are_numbers(found: Iterable[object]) -> bool:
    return all(type(one) is int for one in found)


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(f"metadata file {path} is damaged: {what}; put back a copy of the whole data folder")


def write(
    connection: sqlite3.Connection, rows: Sequence[Row], gone: Sequence[tuple[str]], state: State
) -> Failure | None:
    """Make one durable transaction, on the writing thread.  Returns the failure, or None."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # the last round failed, and so did its rollback
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO node VALUES (?, ?, ?, ?) ON CONFLICT (path) DO UPDATE"
            " SET value = excluded.value, version = excluded.version, crc = excluded.crc",
            rows,
        )
        connection.executemany("DELETE FROM node WHERE path = ?", gone)
        connection.execute("UPDATE state SET commits = ?, rows = ?, digest = ?, sequence = ?", state)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:  # after some errors SQLite rolls back by itself
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        return _failure(error)
    return None


def checkpoint(connection: sqlite3.Connection, *, truncate: bool = False) -> Failure | None:
    """Copy the WAL into the file, on the writing thread.  Returns the failure, or None."""
    try:
        connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if truncate else 'PASSIVE'})").fetchall()
    except sqlite3.Error as error:
        return _failure(error)
    return None


def _failure(error: sqlite3.Error) -> Failure:
    code = getattr(error, "sqlite_errorcode", None)
    return Failure(str(error), code is None or code & _PRIMARY_CODE not in _PASSING_CODES)

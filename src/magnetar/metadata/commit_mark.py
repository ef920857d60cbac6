"""The file `<file>-commits` beside the metadata file: how many of its transactions were made durable.

SQLite takes damage in its WAL for the end of it: after one flipped bit, it drops all transactions from there on and
reports nothing.  So the store writes the number of each transaction here once it is durable, and a start that finds a
smaller number in the database refuses.  The note is not synced: it costs a copy into the page cache.  It is therefore
never ahead of what is durable.  It does not detect damage that occurs within seconds of a loss of power.

Twelve bytes, big-endian: the number (u64), and its crc32c.  Any other file counts as no note.

An operator may continue without the missing transactions: `magnetar doctor --repair` moves the note away.
"""

import os
from pathlib import Path
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.base.errors import ConfigError

_NUMBER: Final = Struct(">Q")
_LAYOUT: Final = Struct(">QI")


def mark_path(path: Path) -> Path:
    """The path of the note of the metadata file at `path`."""
    return path.with_name(path.name + "-commits")


def noted_commits(path: Path) -> int:
    """The noted number of transactions of the metadata file at `path`; 0 if there is no note.  Raises OSError."""
    try:
        data = mark_path(path).read_bytes()
    except FileNotFoundError:
        return 0
    return _number_in(data) or 0


def missing(path: Path, commits: int, noted: int) -> str:
    """A sentence for the operator: the metadata file ends too early."""
    return (
        f"metadata file {path} ends at transaction {commits}, and {noted} were acknowledged: it, or {path.name}-wal,"
        " is damaged or an older copy"
    )


class CommitMark:
    """The open note.  Only the holder of the metadata file's lock uses it.  Raises OSError if the file cannot be
    created.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(mark_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def check(self, path: Path, commits: int) -> None:
        """Raise ConfigError if the file at `path`, which has `commits` transactions, has lost some; else note them."""
        noted = self._read()
        if noted is not None and noted > commits:
            raise ConfigError(
                f"{missing(path, commits, noted)}; put back a copy of the whole data folder, or see `magnetar doctor`"
            )
        self.note(commits)

    def note(self, commits: int) -> None:
        """Write the number of transactions.  The writing thread calls it once a transaction is durable."""
        number = _NUMBER.pack(commits)
        os.pwrite(self._descriptor, number + crc32c(number).to_bytes(4, "big"), 0)

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> int | None:
        return _number_in(os.pread(self._descriptor, _LAYOUT.size, 0))


def _number_in(data: bytes) -> int | None:
    if len(data) != _LAYOUT.size:
        return None
    number, crc = _LAYOUT.unpack(data)
    return int(number) if crc32c(data[: _NUMBER.size]) == crc else None

"""Beside the metadata file, how many of its transactions were made durable: `<file>-commits`.

SQLite takes damage in its WAL for the end of it: a flipped bit, and every transaction from there on is gone without a
word.  So the number of each transaction is written here once it is durable, and a start that finds fewer in the
database than are noted here refuses.  The note itself is not synced: it costs a copy into the page cache.  It is
therefore never ahead of what is durable, and what it cannot tell is damage that comes together with a loss of power in
the seconds before.

Twelve bytes, big-endian: the number (u64), and its crc32c.  A file that is not that is taken for none.

An operator may go on without what is missing (`magnetar doctor --repair`): the note is put aside then.
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
    """Where the note of the metadata file at `path` is."""
    return path.with_name(path.name + "-commits")


def noted_commits(path: Path) -> int:
    """What is noted of the metadata file at `path`; 0 when nothing is.  OSError when it cannot be read."""
    try:
        data = mark_path(path).read_bytes()
    except FileNotFoundError:
        return 0
    return _number_in(data) or 0


def missing(path: Path, commits: int, noted: int) -> str:
    """How to say that the metadata file ends too early."""
    return (
        f"metadata file {path} ends at transaction {commits}, and {noted} were acknowledged: it, or {path.name}-wal,"
        " is damaged or an older copy"
    )


class CommitMark:
    """Belongs to the holder of the metadata file's lock.  OSError when the file cannot be made."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(mark_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def check(self, path: Path, commits: int) -> None:
        """ConfigError when the file at `path`, which knows of `commits` transactions, has lost some."""
        noted = self._read()
        if noted is not None and noted > commits:
            raise ConfigError(
                f"{missing(path, commits, noted)}; put back a copy of the whole data folder, or see `magnetar doctor`"
            )
        self.note(commits)

    def note(self, commits: int) -> None:
        """On the writing thread, once a transaction is durable."""
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

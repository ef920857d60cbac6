"""Whether files have changed that the server reads again while it runs: certificates, passwords.

A change counts once two checks in succession have found it.  Data that belong together may be in two files, and
programs do not write two files, or even one, in one instant.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LOOK_INTERVAL_S: Final = 2.0

# For each file its inode, size, and time of change; None if there is no such file.
_FileStates = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles:
    """The state of `files`; create it before they are read for the first time."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(files)
        self._used = self._seen = self._look()

    async def have_changed(self) -> bool:
        """Check the files, off the event loop; true once for each change."""
        seen = await asyncio.to_thread(self._look)
        before, self._seen = self._seen, seen
        if seen == self._used or seen != before:
            return False
        self._used = seen
        return True

    def _look(self) -> _FileStates:
        return tuple(_look_at(one) for one in self._files)


def _look_at(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except (OSError, ValueError):  # there is no file, or the name is impossible
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

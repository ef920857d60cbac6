"""Whether files have changed, for what is read again while the server runs: certificates, passwords.

A change counts once it has stood from one look to the next: what belongs together may be in two files, and neither two
files nor one are always written in one instant.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LOOK_INTERVAL_S: Final = 2.0

# Of each file: which one it is, how long, and when it was written; None where there is none.
_Looks = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles:
    """What `files` look like; made before they are read for the first time."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(files)
        self._used = self._seen = self._look()

    async def have_changed(self) -> bool:
        """Look at them, beside the loop; each change is said once."""
        seen = await asyncio.to_thread(self._look)
        before, self._seen = self._seen, seen
        if seen == self._used or seen != before:
            return False
        self._used = seen
        return True

    def _look(self) -> _Looks:
        return tuple(_look_at(one) for one in self._files)


def _look_at(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except (OSError, ValueError):  # there is none, or there can be none of such a name
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

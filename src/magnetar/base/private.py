"""Files that accounts other than the server's have no business with: stored records, metadata, logs of the worker.

They are made readable for the server's group too, for backups, and for no other account, whatever the umask says.  What
an earlier version has left open to others is closed at the next start.
"""

import os
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750
_OTHERS: Final = 0o007


def private_folder(path: Path) -> None:
    """A folder that others cannot enter, made if it is not there; OSError."""
    new_private_folder(path)
    _close(path)


def new_private_folder(path: Path) -> None:
    """As `private_folder`, where the user chose the folder: one that is there, such as /tmp, stays as it is."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def private_file(path: Path) -> None:
    """A file that others cannot read, made empty if it is not there; OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
    _close(path)


def keep_private(path: Path) -> None:
    """As `private_file`, for one that may not be there."""
    if path.exists():
        _close(path)


def _close(path: Path) -> None:
    stat = path.stat()
    if stat.st_mode & _OTHERS and stat.st_uid == os.geteuid():
        path.chmod(stat.st_mode & 0o7777 & ~_OTHERS)

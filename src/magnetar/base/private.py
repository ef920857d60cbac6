"""Files that accounts other than the server's have no business with: stored records, metadata, logs of the worker.

They are made readable for the server's group too, for backups, and for no other account, whatever the umask says.  If
an earlier version has left files open to others, the next start closes them to these.

Keys and tokens are for their account alone (`write_secret`).
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from magnetar.base.secret import secret_bytes

FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750
SECRET_MODE: Final = 0o600
SECRET_FOLDER_MODE: Final = 0o700
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


def ensure_secret(path: Path, count: int) -> None:
    """A file with `count` random bytes in hexadecimal, made if it is not there, and kept from others; OSError."""
    if not path.exists():
        write_secret(path, secret_bytes(count).hex().encode() + b"\n")
    if path.stat().st_mode & 0o077:
        path.chmod(SECRET_MODE)


def write_secret(path: Path, data: bytes) -> None:
    """A file for this account alone, new or in place of one that is there; OSError.

    Whatever cuts it off, the file has all of the old content or all of the new.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()


def sync_folder(path: Path) -> None:
    """What was made, renamed or removed in a folder outlives a power cut; OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _close(path: Path) -> None:
    stat = path.stat()
    if stat.st_mode & _OTHERS and stat.st_uid == os.geteuid():
        path.chmod(stat.st_mode & 0o7777 & ~_OTHERS)

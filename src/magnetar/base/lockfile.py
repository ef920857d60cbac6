"""One process per data directory: advisory locks (`flock`), and a small file that names their holder.

The kernel drops a lock with the process, however it ends, so a lock is never stale; the file itself stays.  An operator
may take it for stale and remove it.  The process has also locked the directory, so that still keeps others out.  Some
network file systems lock no directories, and there the file has to do.

The same locks also keep two stores of one process apart, because each opens the file anew.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from magnetar.base.errors import ConfigError


class FileLock:
    """Holds `path` until `release`, or until the process ends."""

    def __init__(self, path: Path, what: str = "data dir") -> None:
        """Take the lock at once.

        Raises:
            ConfigError: another process holds it; the text names `what`, its directory and the process.
            OSError: the file cannot be made or opened.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise _in_use(path, what) from None
        except OSError:
            os.close(self._fd)
            raise
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let others in.  Releasing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DirectoryLock(FileLock):
    """As `FileLock`, of the directory that the file is in, whatever becomes of the file."""

    def __init__(self, path: Path, what: str = "data dir") -> None:
        """Raises as `FileLock`."""
        self._directory_fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(self._directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_use(path, what) from None
            except OSError:
                pass  # directories cannot be locked there
            super().__init__(path, what)
        except BaseException:
            os.close(self._directory_fd)
            raise

    def release(self) -> None:
        super().release()
        if self._directory_fd >= 0:
            os.close(self._directory_fd)
            self._directory_fd = -1


def _in_use(path: Path, what: str) -> ConfigError:
    holder = ""
    with suppress(OSError):
        holder = path.read_bytes()[:20].decode("ascii", "replace").strip()
    return ConfigError(
        f"{what} {path.parent} is in use by pid {holder or 'unknown'}: stop that process or choose another one"
    )

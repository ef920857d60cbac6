"""One process per data directory: an advisory `flock` on a small file that names its holder.

The kernel drops the lock with the process, however it ends, so a lock is never stale; the file itself stays.
The same lock also keeps two stores of one process apart, because each opens the file anew.
"""

import fcntl
import os
from pathlib import Path

from magnetar.base.errors import ConfigError


class DirectoryLock:
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
            holder = os.read(self._fd, 20).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise ConfigError(
                f"{what} {path.parent} is in use by pid {holder or 'unknown'}:"
                " stop that process or choose another one"
            ) from None
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

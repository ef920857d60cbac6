"""The disk, as the store sees it: the only module of `storage/local` that opens a file.

`Disk` is a port, so that a test can hand in a disk that forgets what was not synced, tears writes, or fails
the Nth call (`magnetar.testing.disk.CrashDisk`).  All calls block and are made from threads, never from the
event loop (start and recovery excepted, which run in a thread as a whole).

The store relies on the following.  A write to a file opened with `sync_writes` is durable when it returns; any other
write is durable once `sync` has returned.  A new, renamed or removed name is durable once `sync_directory` has
returned.  A 512-byte sector is written whole or not at all.
"""

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.store import Buffer

_FOLDER_MODE: Final = 0o750


class File(Protocol):
    """An open file.  With direct I/O, positions, lengths and addresses are multiples of `BLOCK_BYTES`."""

    @property
    def descriptor(self) -> int | None:
        """The file's descriptor in the operating system; None if only `Disk` knows the file."""
        ...

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`.  Raises OSError if that fails; any part may be written then."""
        ...

    def read(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; fewer bytes only at the end of the file."""
        ...

    def sync(self) -> None: ...
    def truncate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    def open(
        self, path: Path, *, create: bool = False, direct: bool = False, sync_writes: bool = False
    ) -> File:
        """Open for reading and writing.  Raises FileNotFoundError if there is no file, unless `create`."""
        ...

    def can_direct(self, directory: Path) -> bool:
        """Whether files in `directory` can be read and written past the page cache."""
        ...

    def make_directory(self, path: Path) -> None: ...
    def names(self, directory: Path) -> list[str]: ...
    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file; does nothing if there is none."""
        ...

    def sync_directory(self, path: Path) -> None: ...


class RealFile:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def write(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            # Linux first reports a full disk by a short write, and the next call raises the error.  Direct I/O needs
            # whole blocks, so a block that was written in part is written again.
            start = written - written % BLOCK_BYTES
            count = os.pwrite(self._descriptor, view[start:], position + start)
            if start + count <= written:
                # Where files may have no whole number of blocks (`ulimit -f`), each attempt ends at that limit.
                raise OSError(errno.ENOSPC, "the system takes no more of it")
            written = start + count

    def read(self, buffer: memoryview, position: int) -> int:
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
            filled += count
            if count == 0 or count % BLOCK_BYTES:
                break
        return filled

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class RealDisk:
    """The machine's own disk.

    A disk with a `root` uses that folder alone, wherever an operator moves it.  An operator may put another folder in
    its place while a server works, and what the server writes must not get into that.  Paths begin with the root's as
    it was first.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._descriptor: int | None = None
        if root is not None:
            os.makedirs(root, mode=_FOLDER_MODE, exist_ok=True)
            self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _name(self, path: Path) -> Path:
        """As seen from the descriptor, which is None where there is no root."""
        return path if self._root is None else path.relative_to(self._root)

    def open(
        self, path: Path, *, create: bool = False, direct: bool = False, sync_writes: bool = False
    ) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        flags |= os.O_CREAT if create else 0
        flags |= os.O_DIRECT if direct else 0
        flags |= os.O_DSYNC if sync_writes else 0
        with _named(path):
            return RealFile(os.open(self._name(path), flags, 0o640, dir_fd=self._descriptor))

    def can_direct(self, directory: Path) -> bool:
        probe = directory / ".direct-probe"
        buffer = mmap.mmap(-1, BLOCK_BYTES)
        try:
            file = self.open(probe, create=True, direct=True)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return False
            raise
        try:
            file.write(memoryview(buffer), 0)
            return file.read(memoryview(buffer), 0) == BLOCK_BYTES
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return False
            raise
        finally:
            file.close()
            with contextlib.suppress(OSError):
                self.remove(probe)

    def make_directory(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError), _named(path):
            os.mkdir(self._name(path), _FOLDER_MODE, dir_fd=self._descriptor)

    def names(self, directory: Path) -> list[str]:
        with self._opened(directory) as descriptor:
            return sorted(os.listdir(descriptor))

    def rename(self, source: Path, target: Path) -> None:
        at = self._descriptor
        with _named(source, target):
            os.rename(self._name(source), self._name(target), src_dir_fd=at, dst_dir_fd=at)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError), _named(path):
            os.unlink(self._name(path), dir_fd=self._descriptor)

    def sync_directory(self, path: Path) -> None:
        with self._opened(path) as descriptor:
            os.fsync(descriptor)

    @contextlib.contextmanager
    def _opened(self, directory: Path) -> Iterator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with _named(directory):
            descriptor = os.open(self._name(directory), flags, dir_fd=self._descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _named(path: Path, other: Path | None = None) -> Iterator[None]:
    """Errors name what an operator finds, and not what is seen from the folder."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None if other is None else os.fspath(other)
        raise

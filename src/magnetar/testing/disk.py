"""A disk in memory that loses power, tears writes, fills up and fails on demand.

`CrashDisk` implements `magnetar.storage.local.disk.Disk`.  It distinguishes synced data from data that was only
written.  Every sync (a sync-on-write, of a file, of a directory) is a *sync point*, counted from 1.  With
`power_off_at = n` the power fails in the middle of the nth one: that call and all later ones fail.
`after_power_loss` makes the disk that the machine finds when it starts again, with unsynced writes kept, dropped, or
torn (any subset of their 512-byte sectors).  Names that were created, changed or removed without a directory sync
return to any earlier state in the order of these changes.
"""

import ctypes
import errno
import random
import threading
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.store import Buffer

SECTOR_BYTES: Final = 512


class Fate(Enum):
    """What happens to unsynced writes when the power fails."""

    KEPT = "kept"
    DROPPED = "dropped"
    TORN = "torn"


@dataclass(eq=False)
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    visible: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes (position, data) and truncations (size, None), in order, since the last sync."""

    def copy(self) -> "_Inode":
        return _Inode(bytearray(self.durable), bytearray(self.visible), list(self.pending))


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
        return
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


class CrashDisk:
    def __init__(self, *, direct: bool = True, capacity_bytes: int | None = None) -> None:
        self.direct = direct
        self.capacity_bytes = capacity_bytes
        """Growing a file beyond this sum of all sizes fails with ENOSPC."""
        self.sync_points = 0
        self.power_off_at: int | None = None
        self.failures: dict[str, dict[int, int]] = {}
        """By kind of call ("write", "sync", "read"), and by its number from 1: the errno to raise."""
        self.calls: dict[str, int] = {}
        self.fail_path = ""
        """Only calls on paths that contain this are counted in `calls`, and can fail."""
        self._off = False
        self._lock = threading.RLock()
        self._names: dict[Path, _Inode] = {}
        self._durable_names: dict[Path, _Inode] = {}
        self._pending_names: list[tuple[Path, _Inode | None]] = []

    # -- Disk

    def open(
        self, path: Path, *, create: bool = False, direct: bool = False, sync_writes: bool = False
    ) -> "CrashFile":
        with self._lock:
            self._powered()
            inode = self._names.get(path)
            if inode is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
                inode = _Inode()
                self._set_name(path, inode)
            return CrashFile(self, path, inode, direct=direct, sync_writes=sync_writes)

    def can_direct(self, directory: Path) -> bool:
        return self.direct

    def make_directory(self, path: Path) -> None:
        self._powered()

    def names(self, directory: Path) -> list[str]:
        with self._lock:
            self._powered()
            return sorted(path.name for path in self._names if path.parent == directory)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            self._powered()
            inode = self._names[source]
            # One step, as in a journalling file system: both names change, or none.
            del self._names[source]
            self._names[target] = inode
            self._pending_names += [(target, inode), (source, None)]

    def remove(self, path: Path) -> None:
        with self._lock:
            self._powered()
            if path in self._names:
                self._set_name(path, None)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            self._sync_point()
            rest = []
            for name, inode in self._pending_names:
                if name.parent == path:
                    self._set_durable_name(name, inode)
                else:
                    rest.append((name, inode))
            self._pending_names = rest

    # -- for tests

    def after_power_loss(self, fate: Fate, seed: int = 0) -> "CrashDisk":
        """The disk that the next start finds after a loss of power."""
        chance = random.Random(seed)  # noqa: S311 - a seeded test
        disk = CrashDisk(direct=self.direct, capacity_bytes=self.capacity_bytes)
        with self._lock:
            self._off = True
            names = dict(self._durable_names)
            keep = {Fate.KEPT: len(self._pending_names), Fate.DROPPED: 0}.get(fate)
            if keep is None:
                keep = chance.randint(0, len(self._pending_names))
            for path, inode in self._pending_names[:keep]:
                if inode is None:
                    names.pop(path, None)
                else:
                    names[path] = inode
            copies: dict[int, _Inode] = {}
            for path, inode in names.items():
                content = bytearray(inode.durable)
                for position, data in inode.pending:
                    if fate is Fate.KEPT:
                        _apply(content, position, data)
                    elif fate is Fate.TORN:
                        _tear(content, position, data, chance)
                copy = copies.setdefault(id(inode), _Inode(bytearray(content), bytearray(content)))
                disk._names[path] = copy
            disk._durable_names = dict(disk._names)
        return disk

    def after_kill(self) -> "CrashDisk":
        """The disk that the next process finds after a kill: it sees all written data, which a loss of power may
        still take.  What that process writes does not change this disk, so that another one can begin here as well.
        """
        disk = CrashDisk(direct=self.direct, capacity_bytes=self.capacity_bytes)
        with self._lock:
            self._off = True
            copies: dict[int, _Inode] = {}

            def copy(inode: _Inode) -> _Inode:
                return copies.setdefault(id(inode), inode.copy())

            disk._names = {path: copy(inode) for path, inode in self._names.items()}
            disk._durable_names = {path: copy(inode) for path, inode in self._durable_names.items()}
            disk._pending_names = [(path, inode and copy(inode)) for path, inode in self._pending_names]
        return disk

    def content(self, path: Path) -> bytearray:
        """A file's bytes, for a test to read or to damage (both the synced and the visible ones)."""
        inode = self._names[path]
        inode.durable = inode.visible
        return inode.visible

    def paths(self) -> list[Path]:
        return sorted(self._names)

    def bytes_used(self) -> int:
        with self._lock:
            return sum(len(inode.visible) for inode in set(self._names.values()))

    # -- what files need

    def _set_name(self, path: Path, inode: _Inode | None) -> None:
        if inode is None:
            del self._names[path]
        else:
            self._names[path] = inode
        self._pending_names.append((path, inode))

    def _set_durable_name(self, path: Path, inode: _Inode | None) -> None:
        if inode is None:
            self._durable_names.pop(path, None)
        else:
            self._durable_names[path] = inode

    def _powered(self) -> None:
        if self._off:
            raise OSError(errno.EIO, "the power is off")

    def _sync_point(self) -> None:
        self._powered()
        self.sync_points += 1
        if self.power_off_at is not None and self.sync_points >= self.power_off_at:
            self._off = True
            self._powered()

    def _count(self, kind: str, path: Path) -> None:
        self._powered()
        if self.fail_path not in str(path):
            return
        number = self.calls[kind] = self.calls.get(kind, 0) + 1
        code = self.failures.get(kind, {}).get(number)
        if code is not None:
            raise OSError(code, errno.errorcode[code])


def _tear(content: bytearray, position: int, data: bytes | None, chance: random.Random) -> None:
    if data is None:
        if chance.random() < 0.5:
            _apply(content, position, None)
        return
    for start in range(0, len(data), SECTOR_BYTES):
        if chance.random() < 0.5:
            _apply(content, position + start, data[start : start + SECTOR_BYTES])


class CrashFile:
    def __init__(
        self, disk: CrashDisk, path: Path, inode: _Inode, *, direct: bool, sync_writes: bool
    ) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._direct = direct
        self._sync_writes = sync_writes

    @property
    def descriptor(self) -> None:
        return None

    def write(self, data: Buffer, position: int) -> None:
        disk = self._disk
        self._check_alignment(data, position)
        with disk._lock:
            disk._count("write", self._path)
            inode = self._inode
            growth = position + len(data) - len(inode.visible)
            if growth > 0 and disk.capacity_bytes is not None:
                room = disk.capacity_bytes - disk.bytes_used()
                if growth > room:
                    # As on a real disk, the part that fits is written.
                    fits = (len(data) - growth + max(room, 0)) // BLOCK_BYTES * BLOCK_BYTES
                    if fits > 0:
                        self._write(bytes(memoryview(data)[:fits]), position)
                    raise OSError(errno.ENOSPC, "no space left on device")
            self._write(bytes(data), position)
            if self._sync_writes:
                disk._sync_point()
                self._make_durable()

    def read(self, buffer: memoryview, position: int) -> int:
        self._check_alignment(buffer, position)
        with self._disk._lock:
            self._disk._count("read", self._path)
            found = self._inode.visible[position : position + len(buffer)]
            buffer[: len(found)] = found
            return len(found)

    def sync(self) -> None:
        with self._disk._lock:
            self._disk._count("sync", self._path)
            self._disk._sync_point()
            self._make_durable()

    def truncate(self, size: int) -> None:
        with self._disk._lock:
            self._disk._powered()
            _apply(self._inode.visible, size, None)
            self._inode.pending.append((size, None))

    def size(self) -> int:
        return len(self._inode.visible)

    def close(self) -> None:
        """Closing loses nothing and syncs nothing."""

    def _write(self, data: bytes, position: int) -> None:
        _apply(self._inode.visible, position, data)
        self._inode.pending.append((position, data))

    def _make_durable(self) -> None:
        inode = self._inode
        for position, data in inode.pending:
            _apply(inode.durable, position, data)
        inode.pending.clear()

    def _check_alignment(self, data: Buffer, position: int) -> None:
        if not self._direct or not len(data):
            return
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        assert position % BLOCK_BYTES == len(data) % BLOCK_BYTES == address % BLOCK_BYTES == 0

"""A disk that is made from records of calls, and that can lose its power behind each of them.

What is on it after a power cut: everything that was synced, and any part of the rest.  A write is durable when the
file was opened with `O_DSYNC` and it has returned, or when a sync of its file has returned that began after the write
had returned; a name (made, changed, removed) likewise with a sync of its directory.  A sync makes nothing durable but
that: neither the file's name nor writes to other files.  Of what is not durable each write, and each 512-byte sector of
it, is there or not; a rename is done as a whole or not at all.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from tests.crash.power.trace import Kind, Record

SECTOR_BYTES: Final = 512
CHUNK_BYTES: Final = 1 << 16
ZEROES: Final = bytes(CHUNK_BYTES)


class Fate(Enum):
    """What becomes of all that was not synced."""

    KEPT = "kept"
    DROPPED = "dropped"
    TORN = "torn"


@dataclass(slots=True, eq=False)
class _Change:
    """A write, or with `data` None a truncation to `position`."""

    position: int
    data: bytes | None
    call: int
    returned_at: int = 0
    durable: bool = False


@dataclass(slots=True, eq=False)
class _Inode:
    directory: bool = False
    content: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)

    def settle(self) -> None:
        """Fold what is durable, and what nothing unsettled stands in front of, into the content."""
        count = 0
        for change in self.changes:
            if not change.durable:
                break
            _apply(self.content, change.position, change.data)
            count += 1
        del self.changes[:count]


@dataclass(slots=True, eq=False)
class _Naming:
    """One step on names: `changes` (path, what it names from now on) happen together."""

    changes: list[tuple[Path, _Inode | None]]
    returned_at: int


@dataclass(slots=True)
class _Opened:
    path: Path
    inode: _Inode
    flags: int


SyncWorks = Callable[[Path, bool], bool]
"""Whether a sync of this path is one (False to see what would be lost without it); with: is it one of O_DSYNC."""


class RecordedDisk:
    def __init__(self, root: Path, works: SyncWorks = lambda _path, _on_write: True) -> None:
        self.root = root
        self._works = works
        self._names: dict[Path, _Inode] = {root: _Inode(directory=True)}
        self._durable: dict[Path, _Inode] = dict(self._names)
        self._namings: list[_Naming] = []
        self._opened: dict[int, _Opened] = {}
        self._calls: dict[int, Record] = {}
        self._writes: dict[int, tuple[_Opened, _Change]] = {}
        self._syncs: dict[int, tuple[_Opened, int]] = {}
        self._now = 0
        self.syncs: set[tuple[str, bool]] = set()
        """What was synced: path below the root, and whether by O_DSYNC."""

    def load(self, directory: Path) -> None:
        """Begin with the files of `directory`, all of them durable, in the place of the root."""
        for path in sorted(directory.rglob("*")):
            inode = _Inode(directory=path.is_dir())
            if path.is_file():
                inode.content = bytearray(path.read_bytes())
            self._names[self.root / path.relative_to(directory)] = inode
        self._durable = dict(self._names)

    def happen(self, record: Record) -> None:
        """Go on to behind this record."""
        self._now += 1
        if record.begins:
            self._begin(record)
        elif (begun := self._calls.pop(record.call, None)) is not None:
            self._return(begun, record.first)

    def unfinished_that_happened(self) -> list[int]:
        """The process was killed: which of the calls that had not returned have happened, as the real files say."""
        return [call for call, record in self._calls.items() if self._has_happened(record)]

    def end_process(self, happened: list[int]) -> None:
        """The process was killed; of the calls that had not returned those in `happened` took place, unsynced."""
        for call, record in list(self._calls.items()):
            if record.kind is Kind.SYNC:
                self._syncs.pop(call)
            elif record.kind in (Kind.WRITE, Kind.TRUNCATE):
                opened, change = self._writes.pop(call)
                change.returned_at = self._now
                if call not in happened:
                    opened.inode.changes.remove(change)
            elif call in happened:
                self._return(record, 0)
        self._calls.clear()
        self._opened.clear()

    def _has_happened(self, record: Record) -> bool:
        match record.kind:
            case Kind.WRITE:
                opened, _ = self._writes[record.call]
                with opened.path.open("rb") as file:
                    file.seek(record.first)
                    return file.read(len(record.rest)) == record.rest
            case Kind.TRUNCATE:
                opened, _ = self._writes[record.call]
                return opened.path.stat().st_size == record.first
            case Kind.SYNC:
                return False
            case Kind.RENAME | Kind.UNLINK:
                return not record.names()[0].exists()
        return record.names()[0].exists()

    def _begin(self, record: Record) -> None:
        match record.kind:
            case Kind.MARK:
                return
            case Kind.CLOSE:
                self._opened.pop(record.descriptor, None)
                return
            case Kind.MAPPED:
                path = self._opened[record.descriptor].path
                # SQLite's index of its WAL, which it makes anew when it is not in use.
                assert path.name.endswith("-shm"), f"writes to {path} through memory cannot be seen"
                return
            case Kind.OTHER:
                raise AssertionError(f"a call that is not known here: {record.names()}")
        self._calls[record.call] = record
        opened = self._opened.get(record.descriptor)
        if record.kind in (Kind.WRITE, Kind.TRUNCATE):
            assert opened is not None
            data = record.rest if record.kind is Kind.WRITE else None
            change = _Change(record.first, data, record.call)
            opened.inode.changes.append(change)
            self._writes[record.call] = opened, change
        elif record.kind is Kind.SYNC:
            assert opened is not None
            self._syncs[record.call] = opened, self._now

    def _return(self, begun: Record, result: int) -> None:
        match begun.kind:
            case Kind.OPEN:
                if result >= 0:
                    self._open(begun.names()[0], begun.first, result)
            case Kind.WRITE | Kind.TRUNCATE:
                opened, change = self._writes.pop(begun.call)
                change.returned_at = self._now
                if opened.flags & os.O_DSYNC and change.data is not None and result == len(change.data):
                    self._note_sync(opened.path, True)
                    if self._works(opened.path, True):
                        change.durable = True
                        opened.inode.settle()
            case Kind.SYNC:
                opened, since = self._syncs.pop(begun.call)
                if result == 0:
                    self._note_sync(opened.path, False)
                    if self._works(opened.path, False):
                        self._sync(opened, since)
            case Kind.RENAME:
                if result == 0:
                    old, new = begun.names()
                    self._name([(new, self._names[old]), (old, None)])
            case Kind.UNLINK:
                if result == 0:
                    self._name([(begun.names()[0], None)])
            case Kind.MKDIR:
                if result == 0:
                    self._name([(begun.names()[0], _Inode(directory=True))])

    def _note_sync(self, path: Path, on_write: bool) -> None:
        self.syncs.add((str(path.relative_to(self.root)), on_write))

    def _open(self, path: Path, flags: int, descriptor: int) -> None:
        if path not in self._names:
            self._name([(path, _Inode())])
        inode = self._names[path]
        if flags & os.O_TRUNC:
            inode.changes.append(_Change(0, None, 0, self._now))
        self._opened[descriptor] = _Opened(path, inode, flags)

    def _name(self, changes: list[tuple[Path, _Inode | None]]) -> None:
        _rename(self._names, changes)
        self._namings.append(_Naming(changes, self._now))

    def _sync(self, opened: _Opened, since: int) -> None:
        if not opened.inode.directory:
            for change in opened.inode.changes:
                if 0 < change.returned_at < since:
                    change.durable = True
            opened.inode.settle()
            return
        rest = []
        for naming in self._namings:
            if naming.returned_at < since and all(path.parent == opened.path for path, _ in naming.changes):
                _rename(self._durable, naming.changes)
            else:
                rest.append(naming)
        self._namings = rest

    # -- what is left

    def write_to(self, directory: Path, fate: Fate, choose: random.Random) -> None:
        """Make in `directory` (new) what the machine finds when its power comes back."""
        names = dict(self._durable)
        for naming in self._namings:
            if fate is Fate.KEPT or (fate is Fate.TORN and choose.random() < 0.5):
                _rename(names, naming.changes)
        directory.mkdir(parents=True)
        for path in sorted(names):
            target = directory / path.relative_to(self.root)
            if path == self.root or path.parent not in names:
                continue
            if names[path].directory:
                target.mkdir()
            else:
                _write_sparse(target, _left(names[path], fate, choose))


def _left(inode: _Inode, fate: Fate, choose: random.Random) -> bytearray:
    if not inode.changes:
        return inode.content
    content = bytearray(inode.content)
    for change in inode.changes:
        if change.durable or fate is Fate.KEPT:
            _apply(content, change.position, change.data)
        elif fate is Fate.TORN:
            lot = choose.random()
            if lot < 0.3:
                _apply(content, change.position, change.data)
            elif lot < 0.7 and change.data is not None:
                _tear(content, change.position, change.data, choose)
    return content


def _tear(content: bytearray, position: int, data: bytes, choose: random.Random) -> None:
    share = choose.choice((0.1, 0.5, 0.9))
    start = 0
    while start < len(data):
        end = min(len(data), ((position + start) // SECTOR_BYTES + 1) * SECTOR_BYTES - position)
        if choose.random() < share:
            _apply(content, position + start, data[start:end])
        start = end


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        data = b""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _rename(names: dict[Path, _Inode], changes: list[tuple[Path, _Inode | None]]) -> None:
    for path, inode in changes:
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


def _write_sparse(path: Path, content: bytearray) -> None:
    with path.open("wb") as file:
        file.truncate(len(content))
        view = memoryview(content)
        for start in range(0, len(content), CHUNK_BYTES):
            chunk = view[start : start + CHUNK_BYTES]
            if chunk != ZEROES[: len(chunk)]:
                file.seek(start)
                file.write(chunk)

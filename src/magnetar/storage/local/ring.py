"""The journal's files: preallocated, written from front to back, used again once no round in them is needed."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.arena import map_memory
from magnetar.storage.local.disk import Disk, File

ZEROES_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class RingFile:
    path: Path
    file: File
    size: int
    epoch: int = 0
    position: int = 0
    last_sequence: int = 0
    """The sequence of the last round in it, if it has been used."""
    failed: bool = False
    """A write to it has failed: it keeps its rounds until they are not needed, and gets no more."""


def prepare_file(disk: Disk, path: Path, size: int, *, direct: bool) -> None:
    """Create one journal file, or none.  It is filled with zeroes, so that later writes do not change the file
    system's metadata.
    """
    temporary = path.with_suffix(".new")
    disk.remove(temporary)
    file = disk.open(temporary, create=True, direct=direct)
    try:
        zeroes = memoryview(map_memory(min(ZEROES_BYTES, size)))
        for position in range(0, size, len(zeroes)):
            file.write(zeroes[: size - position], position)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


class Ring:
    def __init__(self, next_epoch: int) -> None:
        self.next_epoch = next_epoch
        self.current: RingFile | None = None
        self.free: deque[RingFile] = deque()
        self.full: deque[RingFile] = deque()
        self.failed: list[RingFile] = []
        self._half_at = 0
        """Half of the ring is used once the current file is written up to this position.  Kept because each round
        asks for it.
        """

    def add(self, *files: RingFile, full: Iterable[RingFile] = ()) -> None:
        """Add files: free ones, and `full` ones with rounds that are needed."""
        self.full.extend(full)
        self.free.extend(files)
        self._find_half()

    def files(self) -> Iterable[RingFile]:
        current = [] if self.current is None else [self.current]
        return [*self.full, *current, *self.free, *self.failed]

    def reserve(self, size: int) -> RingFile | None:
        """The file that takes a round of `size` bytes at its `position`; None if every file is in use."""
        current = self.current
        if current is not None and current.position + size <= current.size:
            return current
        usable = next((file for file in self.free if file.size >= size), None)
        if current is not None:
            # Even if no file follows: only a file that is not written any more can be recycled.
            self.full.append(current)
            self.current = None
        if usable is None:
            self._find_half()
            return None
        self.free.remove(usable)
        usable.epoch = self.next_epoch
        usable.position = 0
        self.next_epoch += 1
        self.current = usable
        self._find_half()
        return usable

    def give_up_current(self) -> None:
        """Stop using the current file, after a failed write to it, and continue in another one."""
        assert self.current is not None
        self.current.failed = True
        self.full.append(self.current)
        self.current = None
        self._find_half()

    def recycle(self, sequence: int) -> int:
        """Free the files in which no round is greater than `sequence`; returns how many."""
        count = 0
        while self.full and self.full[0].last_sequence <= sequence:
            file = self.full.popleft()
            if file.failed:
                self.failed.append(file)
            else:
                self.free.append(file)
                count += 1
        self._find_half()
        return count

    def half_used(self) -> bool:
        """Whether it is time to make room."""
        current = self.current
        return (0 if current is None else current.position) >= self._half_at

    def _find_half(self) -> None:
        usable = sum(file.size for file in self.files() if not file.failed)
        self._half_at = -(-usable // 2) - sum(file.size for file in self.full)

    def bytes_room(self) -> int:
        """How many bytes can still be written without a checkpoint."""
        room = self.current.size - self.current.position if self.current else 0
        return room + sum(file.size for file in self.free)

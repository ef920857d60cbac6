"""Reading the journal back after a stop, however sudden.

Two steps: `survey` finds out which files are in use and orders them; `walk` goes through the rounds behind the last
checkpoint, and says where they are not what was written.

**Torn or damaged.**  One write is under way at a time, each synced before the next begins.  So a round that is not
whole may be a torn tail only if nothing was written after it: a header of the same use of the file with a greater
number anywhere behind it, or a later file, proves that the round was on disk and is damaged.  Uses differ in epoch and
salt; the salt is random and no client ever sees it, so none can have put such a header into an entry.  (Journals that
are written without syncing prove nothing by that: after a loss of power any of their writes may be missing.)

Two things look alike and are none of it.  A round's number may come a second time in a file of a greater epoch: then
the first one failed, or was torn when the store was stopped, and the file with the greater epoch counts from there
on.  And what an older use has left in a file that was taken again is of rounds that the checkpoint covers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.arena import map_memory
from magnetar.base.errors import StorageError
from magnetar.storage.local.catalogue import Known
from magnetar.storage.local.disk import Disk
from magnetar.storage.local.format import BLOCK_BYTES, ROUND_BYTES, ROUND_MAGIC, align_up
from magnetar.storage.local.ring import RingFile
from magnetar.storage.local.rounds import Record, RoundHead, parse_head, parse_round

READ_BYTES: Final = 4 << 20
SCAN_BYTES: Final = 1 << 20
NO_BOUND: Final = 1 << 63


class _Reader:
    """A journal file, read in large steps only as far as the caller looks."""

    def __init__(self, ring_file: RingFile) -> None:
        self.file = ring_file
        self._filled = 0
        self._memory: memoryview | None = None

    def view(self, start: int, end: int) -> memoryview:
        memory = self._memory
        if memory is None:
            memory = self._memory = memoryview(map_memory(self.file.size))
        while self._filled < end:
            step = memory[self._filled : self._filled + READ_BYTES]
            if self.file.file.read(step, self._filled) < len(step):
                raise StorageError("a journal file is shorter than it was")
            self._filled += len(step)
        return memory[start:end]

    def peek(self, scratch: memoryview, position: int) -> memoryview:
        """As much of the file from `position` on as `scratch` takes, without keeping it."""
        stretch = scratch[: min(len(scratch), self.file.size - position)]
        if self.file.file.read(stretch, position) < len(stretch):
            raise StorageError("a journal file is shorter than it was")
        return stretch

    def heads(self, position: int) -> Iterator[tuple[int, RoundHead]]:
        """Every header from `position` on, whatever it is of.

        All of a file may have to be looked at for them in a start, so what is read is searched and not kept.
        """
        scratch = memoryview(map_memory(SCAN_BYTES))
        while position < self.file.size:
            stretch = self.peek(scratch, position)
            # Of most blocks one byte is enough: what is left of the time is the disk's.
            firsts = stretch[::BLOCK_BYTES].tobytes()
            block = firsts.find(ROUND_MAGIC[0])
            while block >= 0:
                at = block * BLOCK_BYTES
                head = parse_head(stretch[at : at + ROUND_BYTES])
                if head is not None:
                    yield position + at, head
                block = firsts.find(ROUND_MAGIC[0], block + 1)
            position += len(stretch)


@dataclass(slots=True, eq=False)
class Use:
    """One file with the rounds that were written to it last."""

    file: RingFile
    reader: _Reader
    head: RoundHead
    """Of the first round that has one."""
    position: int = 0
    """Where that is: behind the file's beginning only if what stood there is damaged."""

    @property
    def first_sequence(self) -> int:
        """Of the file's first round; the greatest that it can have been if that is damaged."""
        return self.head.sequence if self.position == 0 else self.head.sequence - 1


@dataclass(slots=True)
class Survey:
    uses: list[Use] = field(default_factory=list)
    """By epoch."""
    free: list[RingFile] = field(default_factory=list)
    """Files in which nothing is needed."""
    cut: list[tuple[str, int]] = field(default_factory=list)
    """Files that are no multiple of a block, and their sizes: something has cut them."""

    @property
    def newest_epoch(self) -> int:
        return max((file.epoch for file in self.files()), default=0)

    def files(self) -> list[RingFile]:
        return [use.file for use in self.uses] + self.free


class Whole(NamedTuple):
    """A round as it was written.  Only those behind the checkpoint have their records."""

    use: Use
    head: RoundHead
    records: list[Record]


class Damage(NamedTuple):
    """Rounds that were on disk, and are not what was written."""

    file_name: str
    """Where they should be; empty when it is not known."""
    position: int
    first_sequence: int
    end_sequence: int
    """Of the first whole round behind; the same as the first when none is known to be there."""
    is_synced: bool
    """False: it may be the loss of power that has taken them, as they were not synced."""

    def sentence(self) -> str:
        """Which rounds, and where."""
        if self.end_sequence <= self.first_sequence:
            return f"the file in use when round {self.first_sequence - 1} was written is gone"
        lost = self.end_sequence - self.first_sequence
        which = (
            f"round {self.first_sequence}"
            if lost == 1
            else f"rounds {self.first_sequence} to {self.end_sequence - 1}"
        )
        if not self.file_name:
            return f"{which} are missing, with the file that they were in"
        return f"{self.file_name} at byte {self.position}, {which}"


class Torn(NamedTuple):
    """The journal ends within a file, where something stands that is no whole round."""

    file_name: str
    position: int
    sequence: int


def survey(
    disk: Disk, directory: Path, known: Known, *, direct: bool = False, sync_writes: bool = False
) -> Survey:
    """Blocking.  Every journal file, opened.  Sets `epoch` of those that have rounds.

    Raises:
        OSError: a file cannot be read.
    """
    found = Survey()
    headless = []
    for name in disk.names(directory):
        if not name.endswith(".journal"):
            continue
        path = directory / name
        file = disk.open(path, direct=direct, sync_writes=sync_writes)
        size = file.size()
        if size < BLOCK_BYTES or size % BLOCK_BYTES:
            found.cut.append((name, size))
            if size < BLOCK_BYTES:
                file.close()
                continue
        use = _begun_whole(RingFile(path, file, size - size % BLOCK_BYTES))
        if isinstance(use, Use):
            found.uses.append(use)
        else:
            headless.append(use)
    salts = {known.journal_salt}
    if any(use.head.version == 1 for use in found.uses):
        salts.add(0)
    for reader in headless:
        late = _begun_damaged(reader, salts)
        if late is not None:
            found.uses.append(late)
        else:
            found.free.append(reader.file)
    found.uses.sort(key=lambda use: use.head.epoch)
    for number, use in reversed(list(enumerate(found.uses))):
        if use.head.sequence >= _bound(found.uses, number):
            found.free.append(found.uses.pop(number).file)
    return found


def _begun_whole(file: RingFile) -> "Use | _Reader":
    reader = _Reader(file)
    head = parse_head(reader.peek(memoryview(map_memory(BLOCK_BYTES)), 0))
    if head is None:
        return reader
    file.epoch = head.epoch
    return Use(file, reader, head)


def _begun_damaged(reader: "_Reader", salts: set[int]) -> Use | None:
    """The newest use of a file that does not begin with a round; None when there is none.

    None is the rule: the file was never used, or only its first write was begun.
    """
    beginning = reader.peek(memoryview(map_memory(SCAN_BYTES)), 0).tobytes()
    if not beginning.strip(b"\0"):
        return None
    heads = [(position, head) for position, head in reader.heads(BLOCK_BYTES) if head.salt in salts]
    if not heads:
        return None
    reader.file.epoch = max(head.epoch for _, head in heads)
    position, head = next(found for found in heads if found[1].epoch == reader.file.epoch)
    return Use(reader.file, reader, head, position)


def _bound(uses: list[Use], number: int) -> int:
    """The round from which on later files count instead of this one."""
    return min((use.first_sequence for use in uses[number + 1 :]), default=NO_BOUND)


def walk(found: Survey, known: Known) -> Iterator[Whole | Damage | Torn]:
    """The journal's rounds, in order, over all damage.  Sets `last_sequence` of the files it reads.

    Rounds that the checkpoint covers may be among them, without their records.
    """
    sequence = checkpoint = known.journal_sequence
    newest = found.newest_epoch
    for number, use in enumerate(found.uses):
        bound = _bound(found.uses, number)
        if bound <= checkpoint + 1:
            use.file.last_sequence = bound - 1
            continue
        if use.head.sequence > sequence + 1:
            name = use.file.path.name if use.position else ""
            yield Damage(name, 0, sequence + 1, use.head.sequence, use.head.is_synced)
        for item in _rounds(use, bound, checkpoint):
            if isinstance(item, Whole):
                use.file.last_sequence = item.head.sequence
                sequence = max(sequence, item.head.sequence)
            elif isinstance(item, Torn) and number + 1 < len(found.uses):
                # The next file begins behind it, so this was written and is not what it was.
                following = found.uses[number + 1].first_sequence
                yield Damage(item.file_name, item.position, item.sequence, following, use.head.is_synced)
                sequence = following - 1
                continue
            elif isinstance(item, Damage):
                sequence = item.end_sequence - 1
            yield item
    if known.journal_epoch > newest:
        yield Damage("", 0, sequence + 1, sequence + 1, is_synced=True)


def _rounds(use: Use, bound: int, checkpoint: int) -> Iterator[Whole | Damage | Torn]:
    file, reader, first = use.file, use.reader, use.head
    position = use.position
    expected = first.sequence
    while expected < bound and position + ROUND_BYTES <= file.size:
        head = parse_head(reader.view(position, position + ROUND_BYTES))
        end = position + ROUND_BYTES + (head.length if head is not None else 0)
        records: list[Record] | None = None
        if (
            head is not None
            and head.is_of_the_same_use(first)
            and head.sequence == expected
            and end <= file.size
        ):
            is_needed = head.sequence > checkpoint
            records = parse_round(head, reader.view(position + ROUND_BYTES, end)) if is_needed else []
        if head is not None and records is not None:
            yield Whole(use, head, records)
            position = align_up(end)
            expected += 1
            continue
        behind = (
            (at, other)
            for at, other in reader.heads(position + BLOCK_BYTES)
            if other.is_of_the_same_use(first) and expected < other.sequence < bound
        )
        found = next(behind, None)
        if found is None:
            if bound < NO_BOUND or (head is not None and head.is_of_the_same_use(first)):
                yield Torn(file.path.name, position, expected)
            return
        if found[1].sequence > checkpoint + 1:
            yield Damage(file.path.name, position, expected, found[1].sequence, first.is_synced)
        position, expected = found[0], found[1].sequence

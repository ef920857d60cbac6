"""Reads the journal after a stop of any kind.

There are two steps.  `survey` finds out which files are in use, and orders them.  `walk` goes through the rounds
after the last checkpoint, and reports where they are not what was written.

**Torn or damaged.**  Only one write is under way at a time, and it is synced before the next begins.  So a round that
is not whole can be a torn tail only if nothing was written after it.  A header of the same use of the file with a
greater number anywhere after it, or a later file, proves that the round was on disk and is damaged.  So does a header
with one wrong bit.  Uses differ in epoch and salt.  The salt is random and no client ever sees it, so no client can
have put such a header into an entry.
(In a journal that is written without syncing this proves nothing: after a loss of power any of its writes may be
missing.)

A round that is whole but for one bit was whole once, whatever follows it: a write that stops in between leaves whole
sectors out.  It is damage, and `Damage.mended` has what was written.  By chance, a torn record of `n` bits looks like
that once in 2^32 / n times.  So if nothing follows it, this counts only up to `SURE_BITS`, and if there is something to
lose.  A client can choose a body that looks like that if its last sectors are missing, and then chooses the bit, too.
So a bit that says whose record it is, in a round that may be torn, is damage that is not mended (`is_unclear`).

Two things look like damage and are not.  First, a round's number may occur a second time, in a file of a greater epoch.
Then the first round failed, or was torn when the store stopped, and the file with the greater epoch counts from there
on.  And a file that is used again still has rounds of its older use, which the checkpoint covers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.arena import map_memory
from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.catalogue import Known
from magnetar.storage.local.disk import Disk
from magnetar.storage.local.format import ROUND_BYTES, ROUND_MAGIC
from magnetar.storage.local.ring import RingFile
from magnetar.storage.local.rounds import (
    Mended,
    Record,
    RoundHead,
    mend_head,
    mend_records,
    parse_head,
    parse_round,
)

READ_BYTES: Final = 4 << 20
SCAN_BYTES: Final = 1 << 20
NO_BOUND: Final = 1 << 63
SURE_BITS: Final = 1 << 20
"""Up to this length, a torn record looks like one with one wrong bit less than once in 4,096 times."""

_MAGIC: Final = int.from_bytes(ROUND_MAGIC, "big")


def _head_in(block: memoryview) -> RoundHead | None:
    """The round header in `block`, if no more than one of its bits is wrong."""
    return parse_head(block) or mend_head(block)


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
        """As much of the file from `position` on as fits `scratch`; it is not kept."""
        stretch = scratch[: min(len(scratch), self.file.size - position)]
        if self.file.file.read(stretch, position) < len(stretch):
            raise StorageError("a journal file is shorter than it was")
        return stretch

    def heads(self, position: int) -> Iterator[tuple[int, RoundHead]]:
        """Every round header from `position` on, of any use of the file, also those with one wrong bit.

        A start may have to search a whole file for headers, so the bytes that it reads are not kept.
        """
        scratch = memoryview(map_memory(SCAN_BYTES))
        while position < self.file.size:
            stretch = self.peek(scratch, position)
            for at in range(0, len(stretch), BLOCK_BYTES):
                # For most blocks the magic is enough, so the search costs less than the reading.
                if (int.from_bytes(stretch[at : at + 4], "big") ^ _MAGIC).bit_count() > 1:
                    continue
                head = _head_in(stretch[at : at + ROUND_BYTES])
                if head is not None:
                    yield position + at, head
            position += len(stretch)


@dataclass(slots=True, eq=False)
class Use:
    """One file with the rounds that were written to it last."""

    file: RingFile
    reader: _Reader
    head: RoundHead
    """The header of the first round that has one of which no more than one bit is wrong."""
    position: int = 0
    """The position of that header; greater than 0 only if the beginning of the file is damaged."""

    @property
    def first_sequence(self) -> int:
        """The sequence of the file's first round; if that is damaged, the greatest that it can have been."""
        return self.head.sequence if self.position == 0 else self.head.sequence - 1


@dataclass(slots=True)
class Survey:
    uses: list[Use] = field(default_factory=list)
    """By epoch."""
    free: list[RingFile] = field(default_factory=list)
    """Files without any round that is needed."""
    cut: list[tuple[str, int]] = field(default_factory=list)
    """Files whose size is no multiple of a block, and their sizes: they have been truncated."""

    @property
    def newest_epoch(self) -> int:
        return max((file.epoch for file in self.files()), default=0)

    def files(self) -> list[RingFile]:
        return [use.file for use in self.uses] + self.free


class Whole(NamedTuple):
    """A round as it was written.  It has its records only if it is after the checkpoint."""

    use: Use
    head: RoundHead
    records: list[Record]


class Damage(NamedTuple):
    """Rounds that were on disk, but are not what was written."""

    file_name: str
    """The file where they should be; empty if it is not known."""
    position: int
    first_sequence: int
    end_sequence: int
    """The sequence of the first whole round after them; the same as `first` if none is known."""
    is_synced: bool
    """False: they were not synced, so a loss of power may have taken them."""
    mended: Whole | None = None
    """The round as it was written, if it is one round with one wrong bit."""
    is_unclear: bool = False
    """Whether one bit is wrong that says to which ledger a record belongs, or the round is torn."""

    @property
    def is_proven(self) -> bool:
        """Whether a loss of power cannot have left this."""
        return self.is_synced or self.mended is not None

    def sentence(self) -> str:
        """A sentence that names the rounds, and where they are missing."""
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
        place = f"{self.file_name} at byte {self.position}, {which}"
        if self.is_unclear:
            return f"{place}, has one wrong bit, or was cut short"
        return place if self.mended is None else f"{place}, has one wrong bit"


class Torn(NamedTuple):
    """The journal ends within a file, at bytes that are no whole round."""

    file_name: str
    position: int
    sequence: int


def survey(
    disk: Disk, directory: Path, known: Known, *, direct: bool = False, sync_writes: bool = False
) -> Survey:
    """Blocking.  Opens every journal file.  Sets `epoch` of those that have rounds.

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
        use = _begun(RingFile(path, file, size - size % BLOCK_BYTES))
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


def _begun(file: RingFile) -> "Use | _Reader":
    """The use that the file's first header shows.  A client's bytes are never where that is, so any salt will do."""
    reader = _Reader(file)
    head = _head_in(reader.peek(memoryview(map_memory(BLOCK_BYTES)), 0))
    if head is None:
        return reader
    file.epoch = head.epoch
    return Use(file, reader, head)


def _begun_damaged(reader: "_Reader", salts: set[int]) -> Use | None:
    """The newest use of a file whose first header has more than one wrong bit; None if there is none.

    Mostly it is None: the file was never used, or only its first write had begun.
    """
    beginning = reader.peek(memoryview(map_memory(SCAN_BYTES)), 0)
    if not beginning.tobytes().strip(b"\0"):
        return None
    heads = [(position, head) for position, head in reader.heads(BLOCK_BYTES) if head.salt in salts]
    if not heads:
        return None
    reader.file.epoch = max(head.epoch for _, head in heads)
    position, head = next(found for found in heads if found[1].epoch == reader.file.epoch)
    return Use(reader.file, reader, head, position)


def _bound(uses: list[Use], number: int) -> int:
    """The sequence from which on later files count, and not this one."""
    return min((use.first_sequence for use in uses[number + 1 :]), default=NO_BOUND)


def walk(found: Survey, known: Known) -> Iterator[Whole | Damage | Torn]:
    """The journal's rounds, in order, and what is damaged between them.  Sets `last_sequence` of the files that it
    reads.

    It may yield rounds that the checkpoint covers, without their records.
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
                # The next file begins after it, so this round was written, and is damaged now.
                following = found.uses[number + 1].first_sequence
                yield Damage(item.file_name, item.position, item.sequence, following, use.head.is_synced)
                sequence = following - 1
                continue
            elif isinstance(item, Damage):
                sequence = item.end_sequence - 1
            yield item
    if known.journal_epoch > newest:
        yield Damage("", 0, sequence + 1, sequence + 1, is_synced=True)


class _Step(NamedTuple):
    """What is at one position of a file, and where to look next."""

    found: Whole | Damage | Torn | None
    """None: nothing that a reader after the checkpoint misses."""
    position: int
    expected: int
    """The sequence of the round that should be at `position`."""


def _rounds(use: Use, bound: int, checkpoint: int) -> Iterator[Whole | Damage | Torn]:
    """What one use of a file has of the rounds in front of round `bound`, in order."""
    position, expected = use.position, use.head.sequence
    while expected < bound and position + ROUND_BYTES <= use.file.size:
        found, position, expected = _look(use, position, expected, bound, checkpoint)
        if found is not None:
            yield found


def _look(use: Use, position: int, expected: int, bound: int, checkpoint: int) -> _Step:
    """Decide what is at `position`, where round `expected` should be.  The first of these that is true counts:

    1. Whole: the header is this round's, and each record fits its checksum.
    2. One bit is wrong, and the round was whole once.  Something written later proves that.  If nothing follows, the
       round is so short that no torn one looks like it by chance (`SURE_BITS`), and it has records to lose.  It is
       mended, unless the bit says whose record it is and the round may be torn: then it is unclear.
    3. Damaged: a later round of the same use follows, and the walk goes on there.
    4. Torn: a later file follows (`walk` knows that this is damage), or there is a header of the same use.
    5. The end of what was written to the file.

    The bytes of rounds up to `checkpoint` are not checked, and damage among them is not reported.
    """
    head = parse_head(use.reader.view(position, position + ROUND_BYTES))
    whole = None if head is None else _whole(use, position, head, expected, checkpoint)
    if whole is not None:
        return _Step(whole, _behind(position, whole.head), expected + 1)
    mended = _mended(use, position, head, expected, checkpoint)
    is_sure = mended is not None and bool(mended.records) and mended.bits <= SURE_BITS
    # The search reads the rest of the file, so it is left out where it decides nothing.
    is_clear = is_sure and mended is not None and not mended.moves_record
    later = None if is_clear else _next_head(use, position, expected, bound)
    is_followed = later is not None or bound < NO_BOUND
    name, is_synced = use.file.path.name, use.head.is_synced
    if mended is not None and (is_sure or is_followed):
        written, behind = Whole(use, mended.head, mended.records), _behind(position, mended.head)
        if expected <= checkpoint:
            return _Step(written, behind, expected + 1)
        is_unclear = mended.moves_record and not (is_followed and is_synced)
        mended_round = None if is_unclear else written
        damage = Damage(name, position, expected, expected + 1, is_synced, mended_round, is_unclear)
        return _Step(damage, behind, expected + 1)
    if later is not None:
        at, sequence = later[0], later[1].sequence
        damage = Damage(name, position, expected, sequence, is_synced)
        return _Step(damage if sequence > checkpoint + 1 else None, at, sequence)
    is_torn = bound < NO_BOUND or (head is not None and head.is_of_the_same_use(use.head))
    return _Step(Torn(name, position, expected) if is_torn else None, use.file.size, expected)


def _whole(use: Use, position: int, head: RoundHead, expected: int, checkpoint: int) -> Whole | None:
    """Round `expected` as it was written, if that is at `position`, behind `head`; None if not."""
    end = position + ROUND_BYTES + head.length
    if not head.is_of_the_same_use(use.head) or head.sequence != expected or end > use.file.size:
        return None
    is_needed = expected > checkpoint
    records = parse_round(head, use.reader.view(position + ROUND_BYTES, end)) if is_needed else []
    return None if records is None else Whole(use, head, records)


def _behind(position: int, head: RoundHead) -> int:
    """Where the round after the one at `position` begins."""
    return align_up(position + ROUND_BYTES + head.length)


def _next_head(use: Use, position: int, expected: int, bound: int) -> tuple[int, RoundHead] | None:
    """The first header of a later round behind the one at `position`, and where it is."""
    behind = (
        (at, other)
        for at, other in use.reader.heads(position + BLOCK_BYTES)
        if other.is_of_the_same_use(use.head) and expected < other.sequence < bound
    )
    return next(behind, None)


def _mended(use: Use, position: int, head: RoundHead | None, expected: int, checkpoint: int) -> Mended | None:
    """Round `expected`, which is not whole, as it was before one of its bits changed; None if more is wrong.

    `head` is its header, if that is whole.
    """
    reader = use.reader
    is_whole = head is not None
    if head is None:
        head = mend_head(reader.view(position, position + ROUND_BYTES))
    if head is None or not head.is_of_the_same_use(use.head) or head.sequence != expected:
        return None
    end = position + ROUND_BYTES + head.length
    if end > use.file.size:
        return None
    data = reader.view(position + ROUND_BYTES, end)
    if is_whole:
        return mend_records(head, data)
    records = parse_round(head, data) if expected > checkpoint else []
    return Mended(head, records, 8 * ROUND_BYTES) if records is not None else None

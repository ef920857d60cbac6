"""What tasks read: it cuts the catalogue's answer into pieces, and divides these among tasks.

A piece is one stretch of one partition from one source: a segment file between two positions, or the broker.  A task
is a list of pieces.  This module decides from the answer alone, without I/O.

A batch is divided by its bytes, so that no task runs long after all others have ended, and there are not many tasks
that are shorter than their start.  A stream keeps each partition in one task, so that a task's output is in order.
It divides partitions only by their offsets, so that a batch that runs again is divided in the same way.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from magnetar.client.rest import Located, Segment

MIB: Final = 1 << 20
# Large, because a task needs 50 ms before it reads, for the set-up of two Python workers.
PIECE_BYTES_MAX: Final = 256 * MIB
PIECE_BYTES_MIN: Final = 8 * MIB
TASKS_PER_CORE: Final = 3  # so that cores finish at about the same time
RECORD_BYTES_GUESS: Final = 256  # for the records of a tail, if their size is not known
SMALL_RECORDS: Final = 5_000  # a partition with fewer in a micro-batch shares its task with others

AbortedRange = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """The offsets of a partition from `from_offset` (inclusive) to `to_offset` (exclusive).

    With a `path`, they are in that segment file between `position` and `end_position`, where records begin and end;
    other records may be there, too.  Without a `path`, the broker has them.  `aborted` are the aborted transactions
    of the range: producer id, first offset, offset of the marker.  `size` is in bytes, and an estimate for the
    broker's part.
    """

    topic: str
    full: str
    partition: int
    from_offset: int
    to_offset: int
    size: int
    partitioned: bool = True
    path: str | None = None
    ledger: int = -1
    position: int = 0
    end_position: int = 0
    aborted: tuple[AbortedRange, ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()  # only for planning: (first offset, position)

    @property
    def records(self) -> int:
        return self.to_offset - self.from_offset

    def part(self, from_offset: int, to_offset: int) -> "Piece":
        """The part from `from_offset` (inclusive) to `to_offset` (exclusive), with as few bytes as the cuts allow."""
        assert self.from_offset <= from_offset < to_offset <= self.to_offset
        inside = tuple(each for each in self.aborted if each[2] >= from_offset and each[1] < to_offset)
        share = max(1, self.size * (to_offset - from_offset) // self.records)
        if not self.cuts:
            return replace(self, from_offset=from_offset, to_offset=to_offset, size=share, aborted=inside)
        offsets = [offset for offset, _ in self.cuts]
        first = max(0, bisect_right(offsets, from_offset) - 1)
        behind = bisect_left(offsets, to_offset, first + 1)
        end_position = self.cuts[behind][1] if behind < len(self.cuts) else self.end_position
        return replace(
            self,
            from_offset=from_offset,
            to_offset=to_offset,
            size=min(share, end_position - self.cuts[first][1]) or 1,
            position=self.cuts[first][1],
            end_position=end_position,
            aborted=inside,
            cuts=self.cuts[first:behind],
        )

    def planned(self) -> "Piece":
        """A copy without the values that only planning needs."""
        return replace(self, cuts=())


Task = tuple[Piece, ...]


def pieces_of(
    answer: Located, from_offset: int, to_offset: int, *, files: bool = True, partitioned: bool = True
) -> list[Piece]:
    """The pieces of the offsets from `from_offset` (inclusive) to `to_offset` (exclusive): one for each segment, one
    for the tail.
    """
    whole = Piece(
        topic=answer.topic,
        full=answer.full,
        partition=answer.partition,
        from_offset=from_offset,
        to_offset=to_offset,
        size=0,
        partitioned=partitioned,
        aborted=answer.aborted,
    )
    found: list[Piece] = []
    offset = from_offset
    bytes_known = records_known = 0
    for segment in answer.segments:
        end = min(segment.last_offset + 1, to_offset, answer.tail_from)
        if end <= offset:
            continue
        bytes_known += segment.data_bytes
        records_known += segment.last_offset + 1 - segment.first_offset
        if not files or not segment.cuts:
            continue
        first = max(offset, segment.first_offset)
        if first > offset:  # a gap between files: the broker knows why
            found.append(_asked(whole, offset, first, bytes_known, records_known))
        found.append(_filed(whole, segment, first, end))
        offset = end
    if offset < to_offset:
        found.append(_asked(whole, offset, to_offset, bytes_known, records_known))
    return found


def _filed(whole: Piece, segment: Segment, from_offset: int, to_offset: int) -> Piece:
    cuts = tuple((max(first, segment.first_offset), position) for first, position in segment.cuts)
    every = replace(
        whole,
        from_offset=min(from_offset, cuts[0][0]),
        to_offset=max(to_offset, segment.last_offset + 1),
        size=segment.end_position - cuts[0][1],
        path=segment.path,
        ledger=segment.ledger,
        position=cuts[0][1],
        end_position=segment.end_position,
        cuts=cuts,
    )
    return every.part(from_offset, to_offset)


def _asked(whole: Piece, from_offset: int, to_offset: int, bytes_known: int, records_known: int) -> Piece:
    each = bytes_known / records_known if records_known else RECORD_BYTES_GUESS
    part = whole.part(from_offset, to_offset)
    return replace(part, size=max(1, round(each * part.records)))


def batch_tasks(
    pieces: Sequence[Piece], *, cores: int, tasks_min: int | None, records_max: int | None
) -> list[Task]:
    """Divide a batch into tasks: pieces of about the same size, small ones together."""
    total = sum(piece.size for piece in pieces)
    target = min(PIECE_BYTES_MAX, max(PIECE_BYTES_MIN, -(-total // (cores * TASKS_PER_CORE))))
    if tasks_min is not None:
        target = max(1, min(target, total // tasks_min))
    cut = [part for piece in pieces for part in _parts(piece, target, records_max)]
    tasks: list[list[Piece]] = []
    size = records = 0
    for part in cut:
        full = size + part.size > target or (records_max is not None and records + part.records > records_max)
        if not tasks or full:
            tasks.append([])
            size = records = 0
        tasks[-1].append(part)
        size += part.size
        records += part.records
    return _at_least(tasks, tasks_min)


def stream_tasks(pieces: Sequence[Piece], *, tasks_min: int | None, records_max: int | None) -> list[Task]:
    """Divide a micro-batch into tasks, only by offsets: one task for a partition, and one for several small ones.

    `minPartitions` and `maxRecordsPerPartition` split partitions, as in Spark's `kafka` source.
    """
    by_partition: dict[tuple[str, int], list[Piece]] = {}
    for piece in pieces:
        by_partition.setdefault((piece.full, piece.partition), []).append(piece)
    tasks: list[list[Piece]] = []
    shared: list[Piece] = []
    shared_records = 0
    for own in by_partition.values():
        records = sum(piece.records for piece in own)
        if records_max is not None and records > records_max:
            tasks.extend(_by_records(own, records_max))
        elif records >= SMALL_RECORDS or tasks_min is not None:
            tasks.append(own)
        else:
            limit = min(2 * SMALL_RECORDS, records_max or 2 * SMALL_RECORDS)
            if shared and shared_records + records > limit:
                tasks.append(shared)
                shared, shared_records = [], 0
            shared.extend(own)
            shared_records += records
    if shared:
        tasks.append(shared)
    return _at_least(tasks, tasks_min, by_size=False)


def _parts(piece: Piece, target: int, records_max: int | None) -> Iterable[Piece]:
    """Cut `piece` into parts of about the same size, of at most about `target` bytes."""
    count = max(1, -(-piece.size // target))
    if records_max is not None:
        count = max(count, -(-piece.records // records_max))
    count = min(count, piece.records)
    bounds = [piece.from_offset + piece.records * number // count for number in range(count + 1)]
    return [piece.part(first, end) for first, end in pairwise(bounds)]


def _by_records(pieces: Iterable[Piece], records_max: int) -> list[list[Piece]]:
    tasks: list[list[Piece]] = [[]]
    room = records_max
    for piece in pieces:
        offset = piece.from_offset
        while offset < piece.to_offset:
            if room == 0:
                tasks.append([])
                room = records_max
            end = min(piece.to_offset, offset + room)
            tasks[-1].append(piece.part(offset, end))
            room -= end - offset
            offset = end
    return tasks


def _at_least(tasks: list[list[Piece]], tasks_min: int | None, *, by_size: bool = True) -> list[Task]:
    """Halve the largest task until there are `tasks_min`, or no task can be divided."""
    while tasks_min is not None and len(tasks) < tasks_min:
        weights = [
            sum(piece.size if by_size else piece.records for piece in task)
            if sum(piece.records for piece in task) > 1
            else 0
            for task in tasks
        ]
        if not any(weights):
            break
        number = weights.index(max(weights))
        records = sum(piece.records for piece in tasks[number])
        halves = _by_records(tasks[number], -(-records // 2))
        tasks[number : number + 1] = halves
    return [tuple(piece.planned() for piece in task) for task in tasks if task]

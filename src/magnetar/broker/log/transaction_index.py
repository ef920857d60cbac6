"""The transactions of one partition, as its readers need them (KIP-98): which ones are open, and which were aborted.

A reader that wants only committed records reads below the *last stable offset*, where the oldest undecided
transaction begins.  It gets the list of aborted transactions below it, and skips their records.  A transaction is
undecided until its marker is durable.

As for idempotent producers, the state is a snapshot plus the headers and markers of the log after it.  A snapshot
covers everything that was appended, and is stored once that is durable.

Snapshot, version 2, big-endian; the aborted transactions are in blocks beside it (`aborted_index.py`)::

    0  u8   version         2
    1  u32  open_count      per transaction: i64 producer_id, i64 first_offset
    .  u32  block_count     per block: u32 number

Version 1 had the aborted transactions in place of the blocks' numbers: u32 count, and for each i64 producer_id,
i64 first_offset, i64 last_offset (its marker).
"""

from collections.abc import Mapping, Set
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.log.aborted_index import AbortedIndex
from magnetar.broker.log.model import AbortedRange

_VERSION: Final = 2
_INLINE_VERSION: Final = 1
_HEAD: Final = Struct(">BI")
_COUNT: Final = Struct(">I")
_OPEN: Final = Struct(">qq")
_ABORTED: Final = Struct(">qqq")


class _Ending(NamedTuple):
    first_offset: int
    marker_offset: int


class TransactionIndex:
    """See the module's text."""

    __slots__ = ("_aborted", "_ending", "_open", "aborted_total", "committed_total")

    def __init__(self) -> None:
        self.committed_total = self.aborted_total = 0  # since `count_anew`
        self._open: dict[int, int] = {}  # producer id -> offset of its first record, ascending
        self._ending: dict[int, _Ending] = {}  # its marker is appended, but perhaps not durable
        self._aborted = AbortedIndex()

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    def first_offset(self, producer_id: int) -> int:
        """The offset at which the producer's open transaction begins; -1 if it has none."""
        return self._open.get(producer_id, -1)

    def began(self, producer_id: int, offset: int) -> None:
        """Record that a transactional batch was appended at `offset`; the first one begins the transaction."""
        self._open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Record an appended marker; without an open transaction it has no effect."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ending[producer_id] = _Ending(first_offset, marker_offset)
        if committed:
            self.committed_total += 1
        else:
            self.aborted_total += 1
            self._aborted.add(AbortedRange(producer_id, first_offset, marker_offset))

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset at which the oldest undecided transaction begins; the high watermark if there is none."""
        if self._ending:
            self._ending = {
                producer_id: ending
                for producer_id, ending in self._ending.items()
                if ending.marker_offset >= high_watermark
            }
        elif not self._open:
            return high_watermark  # the usual case, for each fetch
        stable = min(high_watermark, next(iter(self._open.values()), high_watermark))
        for ending in self._ending.values():
            stable = min(stable, ending.first_offset)
        return stable

    def aborted_between(
        self, offset: int, end_offset: int, producers: Set[int] | None = None
    ) -> list[AbortedRange]:
        """The aborted transactions with records or their marker from `offset` (inclusive) to `end_offset`
        (exclusive); only those of `producers` (None: all).
        """
        return self._aborted.between(offset, end_offset, producers)

    def any_aborted(self, offset: int, end_offset: int) -> bool:
        """Whether `aborted_between` returns any."""
        return self._aborted.has_any(offset, end_offset)

    def is_aborted(self, producer_id: int, offset: int, end_offset: int) -> bool:
        """Whether `aborted_between` returns one of the producer."""
        return self._aborted.has(producer_id, offset, end_offset)

    def forget_from(self, end_offset: int) -> None:
        """Forget what was recorded at or above `end_offset`, because these appends failed."""
        for producer_id, ending in list(self._ending.items()):
            if ending.marker_offset >= end_offset:
                del self._ending[producer_id]
                self._open[producer_id] = ending.first_offset
        self._aborted.forget_from(end_offset)
        self._open = _ascending({pid: first for pid, first in self._open.items() if first < end_offset})

    def forget_below(self, log_start: int) -> bool:
        """Forget transactions whose records were deleted, below `log_start`.  Returns whether a stored block is not
        needed any more.
        """
        return self._aborted.forget_below(log_start)

    def count_anew(self) -> None:
        """Set the totals to 0, because the transactions until now were read from the log."""
        self.committed_total = self.aborted_total = 0

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def aborted_count(self) -> int:
        return len(self._aborted)

    def has_aborted(self, producer_id: int) -> bool:
        """Whether an aborted transaction of this producer is still in the log."""
        return producer_id in self._aborted

    def encode(self) -> tuple[bytes, dict[int, bytes]]:
        """The snapshot of everything appended, and the blocks to which it refers, by number."""
        blocks = self._aborted.encode()
        parts = [_HEAD.pack(_VERSION, len(self._open))]
        parts += [_OPEN.pack(producer_id, first) for producer_id, first in self._open.items()]
        parts.append(_COUNT.pack(len(blocks)))
        parts += [_COUNT.pack(number) for number in blocks]
        return b"".join(parts), blocks

    @classmethod
    def decode(
        cls, snapshot: bytes, position: int, blocks: Mapping[int, bytes]
    ) -> "tuple[TransactionIndex, int]":
        """The inverse of `encode`, from `position` on, and the position where the snapshot ends.

        Raises:
            EntryCorrupt: the bytes are no snapshot, or a block is missing or damaged.
        """
        index = cls()
        try:
            version, count = _HEAD.unpack_from(snapshot, position)
            if version not in (_INLINE_VERSION, _VERSION):
                raise EntryCorrupt(f"transaction snapshot of unknown version {version}")
            position += _HEAD.size
            for _ in range(count):
                producer_id, first_offset = _OPEN.unpack_from(snapshot, position)
                index._open[producer_id] = first_offset
                position += _OPEN.size
            index._open = _ascending(index._open)
            (count,) = _COUNT.unpack_from(snapshot, position)
            position += _COUNT.size
            if version == _INLINE_VERSION:
                for _ in range(count):
                    index._aborted.add(AbortedRange(*_ABORTED.unpack_from(snapshot, position)))
                    position += _ABORTED.size
            else:
                numbers = [_COUNT.unpack_from(snapshot, position + 4 * row)[0] for row in range(count)]
                index._aborted = AbortedIndex.decode(numbers, blocks)
                position += _COUNT.size * count
        except StructError as error:
            raise EntryCorrupt("a transaction snapshot is cut short") from error
        return index, position


def _ascending(first_offsets: dict[int, int]) -> dict[int, int]:
    return dict(sorted(first_offsets.items(), key=lambda one: one[1]))

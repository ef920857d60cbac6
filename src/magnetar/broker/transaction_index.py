"""The transactions of one partition, as its readers need them (KIP-98): which are open, which were aborted.

A reader that wants committed records only reads below the *last stable offset*, where the oldest undecided transaction
begins, and is told which transactions below it were aborted, so that it leaves their records out.  A transaction is
undecided until its marker is durable.

The state is a snapshot plus the headers and markers of the log after it, as for idempotent producers.  A snapshot
speaks of everything that was appended, and is stored once that is durable.

Snapshot, version 1, big-endian::

    0  u8   version         1
    1  u32  open_count      per transaction: i64 producer_id, i64 first_offset
    .  u32  aborted_count   per transaction: i64 producer_id, i64 first_offset, i64 last_offset (its marker)
"""

from bisect import bisect_left
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from magnetar.base.errors import EntryCorrupt

_VERSION: Final = 1
_HEAD: Final = Struct(">BI")
_COUNT: Final = Struct(">I")
_OPEN: Final = Struct(">qq")
_ABORTED: Final = Struct(">qqq")


class AbortedRange(NamedTuple):
    """The records of `producer_id` from `first_offset` to the marker at `last_offset` do not count."""

    producer_id: int
    first_offset: int
    last_offset: int


class _Ending(NamedTuple):
    first_offset: int
    marker_offset: int


class TransactionIndex:
    """See the module's text."""

    __slots__ = ("_aborted", "_ending", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer id -> offset of its first record
        self._ending: dict[int, _Ending] = {}  # marker appended, not known to be durable
        self._aborted: list[AbortedRange] = []  # in order of their markers

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    def first_offset(self, producer_id: int) -> int:
        """Where the producer's open transaction begins; -1 without one."""
        return self._open.get(producer_id, -1)

    def began(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended at `offset`; the first one begins the transaction."""
        self._open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """A marker was appended; without an open transaction it says nothing."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ending[producer_id] = _Ending(first_offset, marker_offset)
        if not committed:
            self._aborted.append(AbortedRange(producer_id, first_offset, marker_offset))

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where the oldest undecided transaction begins; the high watermark when there is none."""
        if self._ending:
            self._ending = {
                producer_id: ending
                for producer_id, ending in self._ending.items()
                if ending.marker_offset >= high_watermark
            }
        stable = high_watermark
        for first_offset in self._open.values():
            stable = min(stable, first_offset)
        for ending in self._ending.values():
            stable = min(stable, ending.first_offset)
        return stable

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedRange]:
        """The aborted transactions that have records or their marker in `offset` (inclusive) to `end_offset`."""
        begin = bisect_left(self._aborted, offset, key=_last_offset)
        return [one for one in self._aborted[begin:] if one.first_offset < end_offset]

    def forget_from(self, end_offset: int) -> None:
        """Appends at or above `end_offset` failed: nothing that they said holds."""
        for producer_id, ending in list(self._ending.items()):
            if ending.marker_offset >= end_offset:
                del self._ending[producer_id]
                self._open[producer_id] = ending.first_offset
        self._aborted = [one for one in self._aborted if one.last_offset < end_offset]
        self._open = {pid: first for pid, first in self._open.items() if first < end_offset}

    def forget_below(self, log_start: int) -> None:
        """Records below `log_start` were deleted."""
        if self._aborted and self._aborted[0].last_offset < log_start:
            del self._aborted[: bisect_left(self._aborted, log_start, key=_last_offset)]

    def encode(self) -> bytes:
        """The snapshot of everything appended."""
        parts = [_HEAD.pack(_VERSION, len(self._open))]
        parts += [_OPEN.pack(producer_id, first) for producer_id, first in self._open.items()]
        parts.append(_COUNT.pack(len(self._aborted)))
        parts += [_ABORTED.pack(*one) for one in self._aborted]
        return b"".join(parts)

    @classmethod
    def decode(cls, snapshot: bytes, position: int = 0) -> "tuple[TransactionIndex, int]":
        """The inverse of `encode`, from `position` on, and where the snapshot ends.

        EntryCorrupt when the bytes are not a snapshot.
        """
        index = cls()
        try:
            version, count = _HEAD.unpack_from(snapshot, position)
            if version != _VERSION:
                raise EntryCorrupt(f"transaction snapshot of unknown version {version}")
            position += _HEAD.size
            for _ in range(count):
                producer_id, first_offset = _OPEN.unpack_from(snapshot, position)
                index._open[producer_id] = first_offset
                position += _OPEN.size
            (count,) = _COUNT.unpack_from(snapshot, position)
            position += _COUNT.size
            for _ in range(count):
                index._aborted.append(AbortedRange(*_ABORTED.unpack_from(snapshot, position)))
                position += _ABORTED.size
        except StructError as error:
            raise EntryCorrupt("a transaction snapshot is cut short") from error
        return index, position


def _last_offset(one: AbortedRange) -> int:
    return one.last_offset

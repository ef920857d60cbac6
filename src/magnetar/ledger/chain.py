"""The ledgers of one partition's log, in order, and the decisions about them that need no read.

A chain decides; it never waits, reads or writes.  `ManagedLedger` carries out what it decides.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from magnetar.base.errors import EntryCorrupt
from magnetar.storage.store import LedgerId, LedgerReader, LedgerStat, LedgerWriter


@dataclass(slots=True, eq=False)
class LedgerInfo:
    """A ledger of the chain.  `last_offset` is -1 while it is empty.

    A ledger that compaction has written replaces one or several others.  Its `ledger_id` is that of the last ledger
    that it replaces, so positions still find it.  `earlier_epochs` has the epochs before `leader_epoch`, as pairs
    (leader epoch, its first offset).
    """

    ledger_id: LedgerId
    leader_epoch: int
    created_ms: int
    first_offset: int
    last_offset: int = -1
    entry_count: int = 0  # durable entries
    size_bytes: int = 0
    max_timestamp_ms: int = -1
    reader: LedgerReader | None = None
    writer: LedgerWriter | None = None  # until it is sealed
    rewritten_id: LedgerId | None = None
    epoch_from: int = -1  # the offset at which `leader_epoch` begins; -1: `first_offset`
    earlier_epochs: tuple[tuple[int, int], ...] = ()

    def take(self, stat: LedgerStat) -> None:
        """Copy what the store knows about the ledger, which is not empty."""
        self.last_offset = stat.last_offset
        self.entry_count = stat.entry_count
        self.size_bytes = stat.size_bytes
        self.max_timestamp_ms = stat.max_timestamp_ms

    @property
    def stored_id(self) -> LedgerId:
        """The id under which the store has the ledger."""
        return self.ledger_id if self.rewritten_id is None else self.rewritten_id

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """All leader epochs of its records, ascending, as pairs (leader epoch, its first offset)."""
        begin = self.first_offset if self.epoch_from < 0 else self.epoch_from
        return (*self.earlier_epochs, (self.leader_epoch, begin))

    @property
    def is_empty(self) -> bool:
        return self.last_offset < 0

    @property
    def newest_ms(self) -> int:
        """The timestamp of its newest record in ms; if no record has a timestamp, the time when the ledger was
        created.
        """
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.created_ms

    @property
    def end_offset(self) -> int:
        return self.first_offset if self.last_offset < 0 else self.last_offset + 1


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch: the largest known epoch <= the requested one, and its end offset."""

    leader_epoch: int
    end_offset: int


class TrimPlan(NamedTuple):
    """What a trim will do: the log's new start, the ledgers that stay, and those that the log drops."""

    log_start: int
    kept: list[LedgerInfo]
    dropped: list[LedgerInfo]


class LedgerChain:
    """See the module's text.  The ledgers' offsets follow one another without a gap, and their ids ascend."""

    __slots__ = ("_ledgers",)

    def __init__(self, ledgers: list[LedgerInfo]) -> None:
        self._ledgers = ledgers

    def __iter__(self) -> Iterator[LedgerInfo]:
        return iter(list(self._ledgers))

    def __len__(self) -> int:
        return len(self._ledgers)

    def from_ledger(self, ledger_id: LedgerId) -> list[LedgerInfo]:
        """The ledgers with entries whose id is `ledger_id` or greater, ascending."""
        index = bisect_left(self._ledgers, ledger_id, key=_ledger_id)
        return [info for info in self._ledgers[index:] if not info.is_empty]

    def add(self, info: LedgerInfo) -> None:
        assert not self._ledgers or self._ledgers[-1].ledger_id < info.ledger_id, info
        self._ledgers.append(info)

    def replace(self, ledgers: list[LedgerInfo]) -> None:
        self._ledgers = ledgers

    def end_at(self, offset: int) -> None:
        """The log ends at `offset`, now that appends have failed: empty ledgers behind its last entry begin there."""
        for info in reversed(self._ledgers):
            if not info.is_empty:
                break
            info.first_offset = offset

    def overlapping(self, from_offset: int, to_offset: int) -> list[LedgerInfo]:
        """The ledgers with entries that overlap `from_offset` (inclusive) to `to_offset` (exclusive), ascending."""
        first = max(self._holding(from_offset), 0)
        stop = bisect_left(self._ledgers, to_offset, key=_first_offset)
        return [
            info for info in self._ledgers[first:stop] if not info.is_empty and info.end_offset > from_offset
        ]

    def holder_of(self, offset: int) -> LedgerInfo:
        """The ledger that holds the record at `offset`; raises EntryCorrupt if no ledger does."""
        index = self._holding(offset)
        if index < 0:
            raise EntryCorrupt(f"no ledger holds offset {offset}")
        return self._ledgers[index]

    def _holding(self, offset: int) -> int:
        """The index of the last ledger with entries that begins at or before `offset`; -1 if there is none.

        A successor is created with the offset at which the log ends then; until it takes over, its predecessor still
        grows, so both can begin at or before `offset`.
        """
        index = bisect_right(self._ledgers, offset, key=_first_offset) - 1
        while index >= 0 and self._ledgers[index].is_empty:
            index -= 1
        return index

    def by_id(self, ledger_id: LedgerId) -> LedgerInfo:
        """The ledger with this id, which must be in the chain."""
        return self._ledgers[bisect_left(self._ledgers, ledger_id, key=_ledger_id)]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; a ledger of the chain must hold that offset."""
        info = self._ledgers[bisect_right(self._ledgers, offset, key=_first_offset) - 1]
        return [epoch for epoch, begin in info.epochs if begin <= offset or epoch == info.epochs[0][0]][-1]

    def max_timestamp_ms(self, log_start: int) -> int:
        """The greatest record timestamp, in ms, of the ledgers that end after `log_start`; -1 if there is none."""
        return max(
            (info.max_timestamp_ms for info in self._ledgers if info.end_offset > log_start), default=-1
        )

    @property
    def size_bytes(self) -> int:
        return sum(info.size_bytes for info in self._ledgers)

    def epoch_end(self, leader_epoch: int, log_start: int, high_watermark: int) -> EpochEnd:
        """Where an epoch before the current one ended (KIP-101, KIP-320).

        As in Kafka, epochs without records are skipped, and an epoch that begins below the log's start counts as
        beginning at the log's start.
        """
        known = leader_epoch
        for info in self._ledgers:
            if info.is_empty:
                continue
            for epoch, begin in info.epochs:
                if epoch > leader_epoch:
                    return EpochEnd(known, max(begin, log_start))
                known = epoch
        return EpochEnd(known, high_watermark)

    def plan_trim(
        self,
        log_start: int,
        *,
        expired_before_ms: int | None = None,
        retention_bytes: int | None = None,
        held_from: int | None = None,
        writer_info: LedgerInfo | None = None,
        drops_open: bool = False,
        is_quiet: bool = True,
    ) -> TrimPlan:
        """Which ledgers the log drops if it starts at `log_start` and the two limits apply (None: no limit).

        The oldest ledgers are dropped first.  The limits drop no ledger with an offset at or above `held_from` (None:
        all may be dropped).  `writer_info` is the open ledger: it is dropped only if all of it is too old, or with
        `drops_open`.  If `is_quiet` is false, entries may be on their way into ledgers that are not sealed, so those
        stay.
        """
        keep = list(self._ledgers)
        total = self.size_bytes
        dropped: list[LedgerInfo] = []
        while keep and not keep[0].is_empty:
            oldest = keep[0]
            too_old = expired_before_ms is not None and oldest.newest_ms < expired_before_ms
            too_much = retention_bytes is not None and total - oldest.size_bytes >= retention_bytes
            may_go = held_from is None or oldest.end_offset <= held_from
            if not ((may_go and (too_old or too_much)) or oldest.end_offset <= log_start):
                break
            if oldest.writer is not None and not (
                is_quiet and (too_old or drops_open or oldest is not writer_info)
            ):
                break
            dropped.append(keep.pop(0))
            total -= oldest.size_bytes
            log_start = max(log_start, oldest.end_offset)
        # An empty ledger without a writer never gets an entry, and is not needed once it has a successor.
        useless = [info for info in keep[:-1] if info.is_empty and info.writer is None]
        return TrimPlan(log_start, [info for info in keep if info not in useless], dropped + useless)

    def replaced(self, old: Sequence[LedgerInfo], new: LedgerInfo) -> list[LedgerInfo] | None:
        """All ledgers, with `new` in the place of `old`, which are neighbours; None if some of `old` are gone."""
        index = next((number for number, info in enumerate(self._ledgers) if info is old[0]), -1)
        if index < 0 or self._ledgers[index : index + len(old)] != list(old):
            return None
        return [*self._ledgers[:index], new, *self._ledgers[index + len(old) :]]


def _first_offset(info: LedgerInfo) -> int:
    return info.first_offset


def _ledger_id(info: LedgerInfo) -> LedgerId:
    return info.ledger_id

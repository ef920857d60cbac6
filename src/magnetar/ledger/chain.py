"""The ledgers of one partition's log, in order, and what can be said about them without reading any.

A chain decides; it never waits, reads or writes.  `ManagedLedger` does what it says.
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

    One that compaction has rewritten stands for one or several others: its `ledger_id` is that of the last of those, by
    which positions find it, and `earlier_epochs` (leader epoch, its first offset) are those before `leader_epoch`.
    """

    ledger_id: LedgerId
    leader_epoch: int
    created_ms: int
    first_offset: int
    last_offset: int = -1
    entry_count: int = 0  # durable ones
    size_bytes: int = 0
    max_timestamp_ms: int = -1
    reader: LedgerReader | None = None
    writer: LedgerWriter | None = None  # until it is sealed
    rewritten_id: LedgerId | None = None
    epoch_from: int = -1  # where `leader_epoch` begins in it; -1: at its first offset
    earlier_epochs: tuple[tuple[int, int], ...] = ()

    def take(self, stat: LedgerStat) -> None:
        """Have what the store knows of a ledger that is not empty."""
        self.last_offset = stat.last_offset
        self.entry_count = stat.entry_count
        self.size_bytes = stat.size_bytes
        self.max_timestamp_ms = stat.max_timestamp_ms

    @property
    def stored_id(self) -> LedgerId:
        """The store's own id of it."""
        return self.ledger_id if self.rewritten_id is None else self.rewritten_id

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """(leader epoch, its first offset) of all that were written in it."""
        begin = self.first_offset if self.epoch_from < 0 else self.epoch_from
        return (*self.earlier_epochs, (self.leader_epoch, begin))

    @property
    def is_empty(self) -> bool:
        return self.last_offset < 0

    @property
    def newest_ms(self) -> int:
        """How new its newest record is; for records without a timestamp, the ledger's own age stands in."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.created_ms

    @property
    def end_offset(self) -> int:
        return self.first_offset if self.last_offset < 0 else self.last_offset + 1


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch: the largest known epoch <= the one asked for, and where it ends."""

    leader_epoch: int
    end_offset: int


class TrimPlan(NamedTuple):
    """What a trim comes to: where the log starts then, and which ledgers stay and go."""

    log_start: int
    kept: list[LedgerInfo]
    dropped: list[LedgerInfo]


class LedgerChain:
    """See the module's text.  Its ledgers' offsets follow one another without a gap, and ledger ids grow."""

    __slots__ = ("_ledgers",)

    def __init__(self, ledgers: list[LedgerInfo]) -> None:
        self._ledgers = ledgers

    def __iter__(self) -> Iterator[LedgerInfo]:
        return iter(list(self._ledgers))

    def __len__(self) -> int:
        return len(self._ledgers)

    def from_ledger(self, ledger_id: LedgerId) -> list[LedgerInfo]:
        """The ledgers from this id on, or from the next one that there is; those without entries are left out."""
        index = bisect_left(self._ledgers, ledger_id, key=_ledger_id)
        return [info for info in self._ledgers[index:] if not info.is_empty]

    def add(self, info: LedgerInfo) -> None:
        assert not self._ledgers or self._ledgers[-1].ledger_id < info.ledger_id, info
        self._ledgers.append(info)

    def replace(self, ledgers: list[LedgerInfo]) -> None:
        self._ledgers = ledgers

    def overlapping(self, from_offset: int, to_offset: int) -> list[LedgerInfo]:
        """The ledgers with some of the offsets from `from_offset` to before `to_offset`; none that is empty."""
        first = max(self._holding(from_offset), 0)
        stop = bisect_left(self._ledgers, to_offset, key=_first_offset)
        return [
            info for info in self._ledgers[first:stop] if not info.is_empty and info.end_offset > from_offset
        ]

    def holder_of(self, offset: int) -> LedgerInfo:
        """The ledger that holds the record at `offset`; EntryCorrupt when none does."""
        index = self._holding(offset)
        if index < 0:
            raise EntryCorrupt(f"no ledger holds offset {offset}")
        return self._ledgers[index]

    def _holding(self, offset: int) -> int:
        """Where the last ledger with entries stands that begins at or before `offset`; -1 when there is none.

        While a successor is made it begins where the log ended then, and the one before it goes on.
        """
        index = bisect_right(self._ledgers, offset, key=_first_offset) - 1
        while index >= 0 and self._ledgers[index].is_empty:
            index -= 1
        return index

    def by_id(self, ledger_id: LedgerId) -> LedgerInfo:
        """One of the chain's ledgers."""
        return self._ledgers[bisect_left(self._ledgers, ledger_id, key=_ledger_id)]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, which a ledger holds."""
        info = self._ledgers[bisect_right(self._ledgers, offset, key=_first_offset) - 1]
        return [epoch for epoch, begin in info.epochs if begin <= offset or epoch == info.epochs[0][0]][-1]

    def max_timestamp_ms(self, log_start: int) -> int:
        """The greatest record timestamp in the ledgers that can be read, -1 when there is none."""
        return max(
            (info.max_timestamp_ms for info in self._ledgers if info.end_offset > log_start), default=-1
        )

    @property
    def size_bytes(self) -> int:
        return sum(info.size_bytes for info in self._ledgers)

    def epoch_end(self, leader_epoch: int, log_start: int, high_watermark: int) -> EpochEnd:
        """Where an epoch before the current one ended (KIP-101, KIP-320).

        Epochs without records are skipped, and one that begins below the log's start begins there, as in Kafka.
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
        """Which ledgers go when the log starts at `log_start` and the two limits hold (None: no limit).

        The oldest go first.  From `held_from` on (None: nowhere) nothing goes for the limits' sake.  `writer_info` is
        the open ledger: it goes only when all of it is too old, or with `drops_open`.  Unless `is_quiet`, entries may
        be on their way into ledgers that are not sealed, and those stay.
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
        # Ledgers that never got an entry, never will and have a successor are of no use.
        useless = [info for info in keep[:-1] if info.is_empty and info.writer is None]
        return TrimPlan(log_start, [info for info in keep if info not in useless], dropped + useless)

    def replaced(self, old: Sequence[LedgerInfo], new: LedgerInfo) -> list[LedgerInfo] | None:
        """All ledgers, with `new` in the place of `old`, which are neighbours; None when they are not all there."""
        index = next((number for number, info in enumerate(self._ledgers) if info is old[0]), -1)
        if index < 0 or self._ledgers[index : index + len(old)] != list(old):
            return None
        return [*self._ledgers[:index], new, *self._ledgers[index + len(old) :]]


def _first_offset(info: LedgerInfo) -> int:
    return info.first_offset


def _ledger_id(info: LedgerInfo) -> LedgerId:
    return info.ledger_id

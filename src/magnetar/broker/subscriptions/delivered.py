"""What was delivered and not yet acknowledged, by message id, so that acknowledgements find their offsets.

An entry is here from its first delivery until it is acknowledged as a whole or the mark-delete has passed it.  The
number of entries is bounded: those forgotten too early are looked up in the log again.  Entries that were cut into
parts (`sharing.py`) are bounded by the dispatcher's own limit and never forgotten early, for only what is known
here says who holds which part: an acknowledgement stands for the parts that its sender holds, and for no others.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from magnetar.broker.subscriptions.ack_sets import Range, acknowledged_ranges
from magnetar.broker.subscriptions.dispatch.model import Consumer, Unit
from magnetar.broker.subscriptions.forms import part_ranges, position_of
from magnetar.broker.subscriptions.sharing import acknowledged_of_part

ENTRIES_MAX: Final = 100_000

Position = tuple[int, int]


class AckedId(NamedTuple):
    """One message id of an ACK: an entry, or with a non-empty `ack_set` a part of it."""

    ledger_id: int
    entry_id: int
    ack_set: Sequence[int] = ()


class DeliveredEntries:
    """See the module's text."""

    def __init__(self) -> None:
        self._whole: OrderedDict[Position, Range] = OrderedDict()
        self._cut: dict[Position, list[Unit]] = {}

    def remember(self, units: Iterable[Unit]) -> None:
        """These units go out now."""
        whole = self._whole
        for unit in units:
            position = position_of(unit)
            if part_ranges(unit) is None:
                whole[position] = (unit.base_offset, unit.end_offset)
                continue
            parts = self._cut.setdefault(position, [])
            if unit not in parts:
                parts.append(unit)
        while len(whole) > ENTRIES_MAX:
            whole.popitem(last=False)

    def base_offset(self, position: Position) -> int | None:
        """The first offset of the entry; None when it is not known here."""
        found = self._whole.get(position)
        if found is not None:
            return found[0]
        parts = self._cut.get(position)
        return parts[0].base_offset if parts else None

    def acknowledged(self, consumer: Consumer, acked: AckedId) -> list[Range]:
        """The offsets that `consumer` acknowledges of an entry that is known here."""
        position = (acked.ledger_id, acked.entry_id)
        found = self._whole.get(position)
        if found is not None:
            return ranges_of(found, acked.ack_set)
        ranges: list[Range] = []
        for unit in self._cut.get(position, ()):
            if unit.holder is consumer:
                ranges += acknowledged_of_part(part_ranges(unit) or (), acked.ack_set)
        return sorted(ranges)

    def forget(self, ranges: Iterable[Range], positions: Iterable[Position], mark_delete: int) -> None:
        """`ranges` are acknowledged, of the entries at `positions`, and all below `mark_delete` is."""
        whole, cut = self._whole, self._cut
        done = set(ranges)
        for position in positions:
            if whole.get(position) in done:
                del whole[position]
            elif position in cut and not any(unit.holder is not None for unit in cut[position]):
                del cut[position]
        while whole and next(iter(whole.values()))[1] <= mark_delete:
            whole.popitem(last=False)

    def clear(self) -> None:
        self._whole.clear()
        self._cut.clear()


def ranges_of(entry: Range, ack_set: Sequence[int]) -> list[Range]:
    """The offsets of an entry that an acknowledgement with this ack set stands for."""
    base, end = entry
    return acknowledged_ranges(ack_set, base, end - base) if ack_set else [entry]

"""What was delivered and not yet acknowledged, by message id, so that acknowledgements find their offsets.

An entry, or a part of one (`sharing.py`), is here from its first delivery until it is acknowledged as a whole or the
mark-delete has passed it.  Their number is bounded: those forgotten too early are looked up in the log again.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from magnetar.broker.subscriptions.ack_sets import Range, acknowledged_ranges
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.forms import EntryPart
from magnetar.broker.subscriptions.model import AckedId
from magnetar.broker.subscriptions.sharing import acknowledged_of_part

ENTRIES_MAX: Final = 100_000

Position = tuple[int, int]
Located: TypeAlias = tuple[AckedId, int, list[Range]]
"""An id, its entry's first offset, and the offsets that it acknowledges."""


_Known: TypeAlias = tuple[int, tuple[Range, ...]]
"""The first offset of an entry, and the offsets that were delivered of it.  No class: one is made for each entry."""


class DeliveredEntries:
    """See the module's text.  `known` is for the code that counts them."""

    def __init__(self) -> None:
        self.known: Final[OrderedDict[Position, _Known]] = OrderedDict()

    def remember(self, units: Iterable[Unit], entries_max: int = ENTRIES_MAX) -> None:
        """These units go out now; past so many entries the oldest ones are forgotten."""
        known = self.known
        for unit in units:
            entry: Any = unit.entry  # its ids, and more of a part
            base = unit.base_offset
            ranges = entry.ranges if isinstance(entry, EntryPart) else ((base, unit.end_offset),)
            known[entry[:2]] = base, ranges
        while len(known) > entries_max:
            known.popitem(last=False)

    def units_at(self, positions: Iterable[Position]) -> tuple[set[int], set[object]]:
        """The first offsets of the entries at those positions that are known here, and their units' `entry`."""
        bases: set[int] = set()
        entries: set[object] = set()
        for position in positions:
            found = self.known.get(position)
            if found is not None:
                base, ranges = found
                bases.add(base)
                entries |= {position, EntryPart(*position, ranges)}  # whichever it is
        return bases, entries

    def acknowledged(self, ids: Iterable[AckedId]) -> tuple[list[Located], list[AckedId]]:
        """Each id with its entry's first offset and the offsets that it acknowledges, and those not known here."""
        known: list[Located] = []
        unknown: list[AckedId] = []
        for one in ids:
            found = self.known.get((one.ledger_id, one.entry_id))
            if found is None:
                unknown.append(one)
            else:
                base, ranges = found
                known.append((one, base, ranges_of(ranges, one.ack_set)))
        return known, unknown

    def forget(self, acked: Iterable[Located], mark_delete: int) -> None:
        """These are acknowledged, and all below `mark_delete` is."""
        known = self.known
        for one, _, _ in acked:
            if not one.ack_set:
                known.pop((one.ledger_id, one.entry_id), None)
        while known and next(iter(known.values()))[1][-1][1] <= mark_delete:
            known.popitem(last=False)

    def clear(self) -> None:
        self.known.clear()


def ranges_of(ranges: Sequence[Range], ack_set: Sequence[int]) -> list[Range]:
    """The offsets that an acknowledgement with this ack set stands for, of an entry or part with these offsets."""
    if not ack_set:
        return list(ranges)
    if len(ranges) == 1:
        ((base, end),) = ranges
        return acknowledged_ranges(ack_set, base, end - base)
    return acknowledged_of_part(ranges, ack_set)

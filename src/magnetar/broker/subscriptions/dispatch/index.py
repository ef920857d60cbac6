"""Finds the units that an acknowledgement touches.

An acknowledged range is nearly always exactly one entry: one look into a dictionary.  Any other range costs a binary
search, and then one step per unit that it covers.  Units arrive in the order of their offsets, except units that were
delayed.  So nearly always the sorted list is only appended to.  Numbers of units that are gone stay in it until they
are half of it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from magnetar.broker.subscriptions.dispatch.model import Unit

STALE_MIN = 64


class UnitIndex:
    """All units that a dispatcher has, by the offsets of their entries."""

    __slots__ = ("_bases", "_by_base", "unit_count")

    def __init__(self) -> None:
        self._by_base: dict[int, Unit] = {}
        self._bases: list[int] = []
        self.unit_count = 0

    def __len__(self) -> int:
        """How many entries have units here."""
        return len(self._by_base)

    def __iter__(self) -> Iterator[Unit]:
        for first in list(self._by_base.values()):
            yield from family(first)

    def clear(self) -> None:
        self._by_base.clear()
        self._bases.clear()
        self.unit_count = 0

    def add(self, unit: Unit) -> None:
        """Take a unit that follows all before it, or that is of the same entry as the last one."""
        base = unit.base_offset
        bases = self._bases
        self.unit_count += 1
        unit.order = base
        if bases and base <= bases[-1]:
            assert base == bases[-1], f"offered out of order: {base} after {bases[-1]}"
            # A unit whose siblings are all gone is the first of its entry again.
            unit.sibling = self._by_base.get(base)
        else:
            bases.append(base)
        self._by_base[base] = unit

    def add_late(self, units: Sequence[Unit]) -> None:
        """Take units of entries that are not here, ascending, which may lie before others that are."""
        by_base = self._by_base
        bases: list[int] = []
        for unit in units:
            base = unit.order = unit.base_offset
            unit.sibling = by_base.get(base)
            by_base[base] = unit
            if unit.sibling is None:
                bases.append(base)
        self.unit_count += len(units)
        if bases:
            self._bases += bases
            self._bases.sort()  # two ascending runs: one pass

    def add_beside(self, unit: Unit, other: Unit) -> None:
        """Take a unit that was cut off one that is here; it has that one's place in the order."""
        self.unit_count += 1
        other.order = unit.order
        other.sibling, unit.sibling = unit.sibling, other

    def remove(self, unit: Unit) -> None:
        by_base, base = self._by_base, unit.base_offset
        first = by_base[base]
        self.unit_count -= 1
        if first is unit:
            if unit.sibling is None:
                del by_base[base]
            else:
                by_base[base] = unit.sibling
        else:
            while first.sibling is not unit:
                assert first.sibling is not None, f"{unit} is not here"
                first = first.sibling
            first.sibling = unit.sibling
        unit.sibling = None
        if len(self._bases) > STALE_MIN + 2 * len(by_base):
            self._bases = sorted(by_base)  # nearly in order: keys stay as they came

    def exactly(self, start: int, stop: int) -> Unit | None:
        """The only unit of the entry that is just [start, stop), when there is such an entry."""
        unit = self._by_base.get(start)
        if unit is not None and unit.end_offset == stop and unit.sibling is None:
            return unit
        return None

    def at(self, base: int) -> list[Unit]:
        """The units of the entry with this base offset."""
        first = self._by_base.get(base)
        return [] if first is None else list(family(first))

    def overlapping(self, start: int, stop: int) -> list[Unit]:
        """The units of all entries that have offsets in [start, stop), in order of their entries."""
        bases, by_base = self._bases, self._by_base
        found: list[Unit] = []
        for position in range(max(0, bisect_right(bases, start) - 1), len(bases)):
            base = bases[position]
            if base >= stop:
                break
            first = by_base.get(base)
            if first is not None and first.end_offset > start:
                found.extend(family(first))
        return found


def family(first: Unit) -> Iterator[Unit]:
    """A unit and its siblings."""
    unit: Unit | None = first
    while unit is not None:
        following = unit.sibling
        yield unit
        unit = following

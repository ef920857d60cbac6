"""How often records were delivered in vain, kept while a subscription has no consumers.

Kafka's share groups remember that; Pulsar's subscriptions do not.  It is in memory only: after a restart counts begin
anew.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from magnetar.broker.subscriptions.ack_sets import Range, intersection
from magnetar.broker.subscriptions.dispatch.model import Unit

SUBSCRIPTIONS_MAX: Final = 1_000  # the one whose consumers left longest ago gives way
RANGES_MAX: Final = 10_000  # of each


class Counted(NamedTuple):
    """Records that were delivered in vain so often; half-open."""

    start: int
    stop: int
    times: int


class DeliveryCounts:
    """By log and subscription: a topic that is made anew has another log."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], list[Counted]] = OrderedDict()

    def keep(self, log: str, subscription: str, units: Sequence[Unit]) -> None:
        """These units are forgotten by their dispatcher."""
        counted = sorted(
            Counted(start, stop, unit.redelivery_count)
            for unit in units
            if unit.redelivery_count
            for start, stop in unit.offsets or ((unit.base_offset, unit.end_offset),)
        )
        if counted:
            self._kept[log, subscription] = counted[:RANGES_MAX]
            if len(self._kept) > SUBSCRIPTIONS_MAX:
                self._kept.popitem(last=False)

    def take(self, log: str, subscription: str) -> list[Counted]:
        """What was kept of a subscription, which has consumers again."""
        return self._kept.pop((log, subscription), [])


def with_counts(units: Sequence[Unit], counted: Sequence[Counted]) -> list[Unit]:
    """The units, each with the count of its records; those whose records differ in that are cut."""
    found: list[Unit] = []
    for unit in units:
        low = bisect_right(counted, unit.base_offset, key=lambda one: one.stop)
        own = [
            one
            for one in counted[low : low + unit.end_offset - unit.base_offset]
            if one.start < unit.end_offset
        ]
        found += _cut(unit, own) if own else [unit]
    return found


def _cut(unit: Unit, counted: Sequence[Counted]) -> list[Unit]:
    left: Sequence[Range] = unit.offsets or ((unit.base_offset, unit.end_offset),)
    by_count: dict[int, list[Range]] = {}
    at = unit.base_offset
    for start, stop, count in (*counted, Counted(unit.end_offset, unit.end_offset, 0)):
        if at < start:
            by_count.setdefault(0, []).append((at, start))
        if start < stop:
            by_count.setdefault(count, []).append((max(start, at), min(stop, unit.end_offset)))
        at = max(at, stop)
    pieces = [(count, intersection(left, ranges)) for count, ranges in by_count.items()]
    pieces = [(count, ranges) for count, ranges in pieces if ranges]
    if len(pieces) == 1:
        unit.redelivery_count = pieces[0][0]
        return [unit]
    units: list[Unit] = []
    for count, ranges in sorted(pieces, key=lambda piece: piece[1][0]):
        size = sum([stop - start for start, stop in ranges])
        one = Unit(
            unit.entry, unit.base_offset, unit.end_offset, offsets=ranges, permits=size, slot=unit.slot
        )
        one.redelivery_count = count
        units.append(one)
    return units

"""How often records were delivered in vain; the counts outlive consumers and restarts.

Kafka's share groups store these counts; Pulsar's subscriptions do not.  So only subscriptions that have had share
consumers store them.  While there are consumers, the dispatcher counts.  Its counts go into the cursor before the
dispatcher forgets them, and whenever the cursor is stored.  Records that are read again get the cursor's counts.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from magnetar.broker.subscriptions.ack_sets import Range, intersection
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher
from magnetar.ledger.cursor import Counted, Cursor

HAS_SHARERS: Final = "kafka.share"  # a property of the cursor: it has had share consumers


class Counting(Protocol):
    """A subscription, as its counts see it."""

    @property
    def cursor(self) -> Cursor: ...
    @property
    def dispatcher(self) -> object: ...
    def changed(self) -> None:
        """Store the cursor soon."""
        ...


class DeliveryCounts:
    """The counts of one subscription, which has offered the log up to `offered_to` to its dispatcher."""

    __slots__ = ("_offered_to", "_subscription")

    def __init__(self, subscription: Counting, offered_to: Callable[[], int]) -> None:
        self._subscription = subscription
        self._offered_to = offered_to

    def _dispatcher(self) -> SharedDispatcher | None:
        """None if the subscription stores no counts, or has no dispatcher."""
        found = self._subscription.dispatcher
        is_kept = HAS_SHARERS in self._subscription.cursor.properties
        return found if is_kept and isinstance(found, SharedDispatcher) else None

    def changed(self) -> None:
        """Note that a record was delivered in vain."""
        if self._dispatcher() is not None:
            self._subscription.changed()

    def note(self) -> None:
        """Copy the dispatcher's counts into the cursor; those of records that it has not read yet stay as they are."""
        dispatcher = self._dispatcher()
        if dispatcher is None:
            return
        cursor, offered_to = self._subscription.cursor, self._offered_to()
        unread = [
            one._replace(start=max(one.start, offered_to)) for one in cursor.counted if one.stop > offered_to
        ]
        noted = (*_counted(dispatcher.counted), *unread)
        if noted != cursor.counted:
            cursor.counted = noted
            self._subscription.changed()

    def with_known(self, units: list[Unit]) -> list[Unit]:
        """The units, which were just read, with the counts that the cursor has of them."""
        counted = self._subscription.cursor.counted
        if not counted or counted[-1].stop <= units[0].base_offset or self._dispatcher() is None:
            return units
        return with_counts(units, counted)


def _counted(units: Iterable[Unit]) -> list[Counted]:
    """The offsets of these units that are not acknowledged, with their counts."""
    found: list[Counted] = []
    for start, stop, times in sorted(
        (start, stop, unit.redelivery_count)
        for unit in units
        for start, stop in unit.offsets or ((unit.base_offset, unit.end_offset),)
    ):
        if found and (found[-1].stop, found[-1].times) == (start, times):
            found[-1] = Counted(found[-1].start, stop, times)
        else:
            found.append(Counted(start, stop, times))
    return found


def with_counts(units: Sequence[Unit], counted: Sequence[Counted]) -> list[Unit]:
    """The units, each with the count of its records; a unit whose records have different counts is cut."""
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

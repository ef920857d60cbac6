"""Which consumer has which slots (Key_Shared).

`HashRing` spreads slots over the consumers that are connected (AUTO_SPLIT).  Each consumer stands at 100 points.  A
slot belongs to the first point at or above it; after the last point comes the lowest one.  A consumer that joins or
leaves moves only the slots next to its own points.  `DeclaredRanges` gives slots to the consumers that declared them
(STICKY); a slot that none declared has no consumer.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Protocol

from magnetar.broker.subscriptions.dispatch.errors import ConsumerAssignError
from magnetar.broker.subscriptions.dispatch.hashing import SLOTS, ring_points
from magnetar.broker.subscriptions.dispatch.model import Consumer

Claim = tuple[str, int]  # a consumer's name, and which of the consumers of that name it is


class Selector(Protocol):
    """Slots to consumers."""

    def add(self, consumer: Consumer) -> None: ...

    def remove(self, consumer: Consumer) -> None: ...

    def select(self, slot: int) -> Consumer | None:
        """The owner of a slot, or None when it has none."""
        ...


class HashRing:
    """A consistent-hash ring.

    Consumers of one name stand at points of their own, so that they share evenly.  Where two consumers share a point,
    the first by name has it.
    """

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owner_at: dict[int, Consumer] = {}
        self._claims: dict[int, list[Claim]] = {}
        self._consumers: dict[Claim, Consumer] = {}
        self._claim_of: dict[Consumer, Claim] = {}

    def add(self, consumer: Consumer) -> None:
        number = 0
        while (consumer.name, number) in self._consumers:
            number += 1
        claim = (consumer.name, number)
        self._consumers[claim] = consumer
        self._claim_of[consumer] = claim
        taken = []
        for point in _points(claim):
            if point not in self._claims:
                self._claims[point] = []
                taken.append(point)
            insort(self._claims[point], claim)
            self._owner_at[point] = self._consumers[self._claims[point][0]]
        self._points = sorted(self._points + sorted(taken))

    def remove(self, consumer: Consumer) -> None:
        claim = self._claim_of.pop(consumer)
        for point in _points(claim):
            claims = self._claims[point]
            claims.remove(claim)
            if claims:
                self._owner_at[point] = self._consumers[claims[0]]
            else:
                del self._claims[point], self._owner_at[point]
        del self._consumers[claim]
        self._points = [point for point in self._points if point in self._claims]

    def select(self, slot: int) -> Consumer | None:
        points = self._points
        place = bisect_left(points, slot)
        if place < len(points):
            return self._owner_at[points[place]]
        return self._owner_at[points[0]] if points else None


def _points(claim: Claim) -> set[int]:
    name, number = claim
    return {
        point % SLOTS for point in ring_points(name if not number else f"{name}\0{number}", separator="\0")
    }


class DeclaredRanges:
    """Ranges of slots, both ends included, that consumers declare; no two may overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, Consumer]] = []

    def add(self, consumer: Consumer) -> None:
        """Raises ConsumerAssignError, having changed nothing."""
        ranges = sorted(consumer.hash_ranges)
        if not ranges:
            raise ConsumerAssignError("Ranges for KeyShared policy must not be empty.")
        end_before = -1
        for start, end in ranges:
            if not 0 <= start <= end < SLOTS:
                raise ConsumerAssignError(f"Ranges must be [0, {SLOTS - 1}], not [{start}, {end}]")
            if start <= end_before:
                raise ConsumerAssignError(f"Ranges of one consumer overlap at {start}")
            end_before = end
            self._refuse_overlap(start, end)
        self._set(sorted([*self._ranges, *((*limits, consumer) for limits in ranges)], key=_start))

    def remove(self, consumer: Consumer) -> None:
        self._set([item for item in self._ranges if item[2] is not consumer])

    def select(self, slot: int) -> Consumer | None:
        place = bisect_right(self._starts, slot) - 1
        if place < 0:
            return None
        _, end, consumer = self._ranges[place]
        return consumer if slot <= end else None

    def _refuse_overlap(self, start: int, end: int) -> None:
        place = bisect_right(self._starts, end) - 1
        if place >= 0 and self._ranges[place][1] >= start:
            low, high, other = self._ranges[place]
            raise ConsumerAssignError(
                f"Range conflict with consumer {other.name}: [{start}, {end}] and [{low}, {high}]"
            )

    def _set(self, ranges: list[tuple[int, int, Consumer]]) -> None:
        self._ranges = ranges
        self._starts = [start for start, _, _ in ranges]


def _start(item: tuple[int, int, Consumer]) -> int:
    return item[0]

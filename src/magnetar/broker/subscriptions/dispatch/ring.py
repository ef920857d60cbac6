"""Whose turn it is: available consumers in a circle per priority level, lower levels first.

Only available consumers are in a circle, so finding the next one costs nothing however many there are.  One that
became unavailable is dropped when its turn comes; one that becomes available again goes to the end.
"""

from bisect import insort
from collections import deque

from magnetar.broker.subscriptions.dispatch.model import Consumer


class ConsumerRing:
    """The available consumers in the order of their turns."""

    __slots__ = ("_circles", "_levels")

    def __init__(self) -> None:
        self._circles: dict[int, deque[Consumer]] = {}
        self._levels: list[int] = []  # those that have a circle, sorted

    def permits(self, enough: float) -> int:
        """What available consumers have together, counted until it is `enough`."""
        total = 0
        for level in list(self._levels):
            circle = self._circles[level]
            gone = 0
            for consumer in circle:
                if consumer.available:
                    total += consumer.permits
                    if total >= enough:
                        return total
                else:
                    gone += 1
            if gone:
                self._sweep(level)
        return total

    def join(self, consumer: Consumer) -> None:
        """Let an available consumer take part; nothing happens when it already does."""
        if consumer.in_turn:
            return
        consumer.in_turn = True
        level = consumer.priority_level
        circle = self._circles.get(level)
        if circle is None:
            circle = self._circles[level] = deque()
            insort(self._levels, level)
        circle.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        if consumer.in_turn:
            circle = self._circles[consumer.priority_level]
            circle.remove(consumer)
            consumer.in_turn = False
            if not circle:
                self._drop(consumer.priority_level)

    def next(self) -> Consumer | None:
        """The consumer whose turn it is; it goes to the end of its circle.  None: no consumer is available."""
        levels = self._levels
        while levels:
            circle = self._circles[levels[0]]
            while circle:
                consumer = circle[0]
                if consumer.available:
                    circle.rotate(-1)
                    return consumer
                circle.popleft()
                consumer.in_turn = False
            self._drop(levels[0])
        return None

    def is_alone(self, consumer: Consumer) -> bool:
        """Whether an available consumer is the only available one of its level."""
        return len(self._circles[consumer.priority_level]) == 1

    def stay(self, consumer: Consumer) -> None:
        """The consumer that `next` gave got nothing: it is still its turn."""
        circle = self._circles.get(consumer.priority_level)
        if circle and circle[-1] is consumer:
            circle.rotate(1)

    def _sweep(self, level: int) -> None:
        """Drop those that are not available: each was let in once, so this costs no more than that did."""
        circle = self._circles[level]
        for consumer in circle:
            consumer.in_turn = consumer.available
        self._circles[level] = deque(consumer for consumer in circle if consumer.in_turn)
        if not self._circles[level]:
            self._drop(level)

    def _drop(self, level: int) -> None:
        del self._circles[level]
        self._levels.remove(level)

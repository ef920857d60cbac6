"""Observers of created and deleted topics: the registry notifies them, use cases let clients watch and leave.

Both get the same `TopicsObservers` when they are made, so neither knows the other.
"""

from collections.abc import Callable

TopicsObserver = Callable[[list[str], list[str]], None]  # full names that are gone, and that came


class TopicsObservers:
    """See the module's text.  `if observers` costs nothing while no client watches."""

    def __init__(self) -> None:
        self._observers: set[TopicsObserver] = set()

    def __len__(self) -> int:
        return len(self._observers)

    def add(self, observer: TopicsObserver) -> None:
        """Notify `observer` of every change from now on."""
        self._observers.add(observer)

    def discard(self, observer: TopicsObserver) -> None:
        """Notify it no more."""
        self._observers.discard(observer)

    def tell(self, gone: list[str], came: list[str]) -> None:
        """Call every observer with the names of deleted and created topics; an observer may leave during the call."""
        for observer in list(self._observers):
            observer(gone, came)

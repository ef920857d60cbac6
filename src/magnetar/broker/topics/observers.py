"""Observers of the topics that come and go: the registry notifies them, use cases let clients watch and leave.

Each side is given the same `TopicsObservers` when it is made, so neither reaches into the other.
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
        """Tell `observer` of every change from now on."""
        self._observers.add(observer)

    def discard(self, observer: TopicsObserver) -> None:
        """Tell it no more."""
        self._observers.discard(observer)

    def tell(self, gone: list[str], came: list[str]) -> None:
        """Call every observer with the names that have gone and come; one may leave while it is called."""
        for observer in list(self._observers):
            observer(gone, came)

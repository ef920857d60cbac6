"""Observers of created and deleted topics: the registry notifies them, use cases let clients watch and leave."""

from collections.abc import Callable

from magnetar.base.names import PARTITION_SEPARATOR

TopicsObserver = Callable[[list[str], list[str]], None]  # full names that are gone, and that came


class TopicsObservers:
    """See the module's text.  `if observers` costs nothing while no client watches.

    Observers of one topic cost nothing when others come and go, however many there are.
    """

    def __init__(self) -> None:
        self._observers: set[TopicsObserver] = set()
        self._of_topic: dict[str, set[TopicsObserver]] = {}  # by full name

    def __len__(self) -> int:
        return len(self._observers) + sum(map(len, self._of_topic.values()))

    def __bool__(self) -> bool:
        return bool(self._observers or self._of_topic)

    def add(self, observer: TopicsObserver) -> None:
        """Notify `observer` of every change from now on."""
        self._observers.add(observer)

    def discard(self, observer: TopicsObserver) -> None:
        """Notify it no more."""
        self._observers.discard(observer)

    def add_of(self, topic: str, observer: TopicsObserver) -> None:
        """Notify `observer` of every change of one topic (full name) from now on."""
        self._of_topic.setdefault(topic, set()).add(observer)

    def discard_of(self, topic: str, observer: TopicsObserver) -> None:
        """Notify it no more."""
        observers = self._of_topic.get(topic, set())
        observers.discard(observer)
        if not observers:
            self._of_topic.pop(topic, None)

    def tell(self, gone: list[str], came: list[str]) -> None:
        """Call every observer with the names of deleted and created topics; an observer may leave during the call."""
        for observer in list(self._observers):
            observer(gone, came)
        if self._of_topic:
            for topic in dict.fromkeys(map(_topic_of, (*gone, *came))):
                for observer in list(self._of_topic.get(topic, ())):
                    observer(gone, came)


def _topic_of(name: str) -> str:
    """The topic of a full name, which may be that of a partition."""
    topic, _, index = name.rpartition(PARTITION_SEPARATOR)
    is_index = index.isascii() and index.isdecimal() and (index == "0" or not index.startswith("0"))
    return topic if is_index else name

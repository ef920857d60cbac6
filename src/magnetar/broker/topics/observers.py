"""Observers of created and deleted topics: the registry notifies them, use cases let clients watch and leave.

Both get the same `TopicsObservers` when they are made, so neither knows the other.

What a new topic, or a new partition, has to have before its maker goes on is awaited here, too.
"""

from collections.abc import Awaitable, Callable, Sequence

from magnetar.broker.topics.topic import Topic

TopicsObserver = Callable[[list[str], list[str]], None]  # full names that are gone, and that came


class TopicsObservers:
    """See the module's text.  `if observers` costs nothing while no client watches."""

    def __init__(self, prepare: Callable[[Sequence[Topic]], Awaitable[None]]) -> None:
        """`prepare` is awaited with new topics, and with topics that have new partitions; it raises nothing."""
        self._prepare = prepare
        self._observers: set[TopicsObserver] = set()

    def __len__(self) -> int:
        return len(self._observers)

    def add(self, observer: TopicsObserver) -> None:
        """Notify `observer` of every change from now on."""
        self._observers.add(observer)

    def discard(self, observer: TopicsObserver) -> None:
        """Notify it no more."""
        self._observers.discard(observer)

    async def made(self, topics: Sequence[Topic]) -> None:
        """Topics were created: return when they are prepared."""
        if self._observers:
            self.tell([], [name for topic in topics for name in topic.pulsar_names])
        await self._prepare(topics)

    async def grown(self, topic: Topic) -> None:
        """A topic has new partitions, of which observers know: return when these are prepared."""
        await self._prepare([topic])

    def tell(self, gone: list[str], came: list[str]) -> None:
        """Call every observer with the names of deleted and created topics; an observer may leave during the call."""
        for observer in list(self._observers):
            observer(gone, came)

"""About how many bytes pipelines have read, counted when their positions move.

A worker moves a pipeline's position after each batch.  The bytes between the old and the new position are estimated in
the same way as a backlog (`broker/log/backlog.py`).  The counts begin with the start of the server.
"""

from collections import Counter
from collections.abc import Callable

from magnetar.broker.jobs.model import Pipeline
from magnetar.broker.security.model import OF_PIPELINE
from magnetar.replicators.naming import pipeline_name, replicator_of


class ReadBytes:
    """See the module's text.  `find` finds a pipeline by its name."""

    def __init__(self, find: Callable[[str], Pipeline | None]) -> None:
        self._find = find
        self._counts: Counter[str] = Counter()  # by the names of pipelines

    def add(self, subscription: str, topic: str, size_bytes: int) -> None:
        """A subscription has moved on by so many bytes in a topic (its full name)."""
        replicator = replicator_of(subscription)
        if replicator is not None:
            name = pipeline_name(replicator.type, replicator.region, topic)
        else:
            name = subscription.removeprefix(OF_PIPELINE)
        found = self._find(name)
        if found is not None and found.subscription == subscription:
            self._counts[name] += size_bytes

    def of(self, name: str) -> int:
        """How many bytes a pipeline has read."""
        return self._counts[name]

    def forget(self, name: str) -> None:
        """The pipeline was deleted."""
        self._counts.pop(name, None)

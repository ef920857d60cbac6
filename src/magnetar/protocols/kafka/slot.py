"""The place of one request in the order of responses: what it counts, and what happens to it when the session ends."""

from typing import Final

from magnetar.protocols.kafka.registry import Deferred
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.protocols.outbox import Place

# The memory of a request's objects, besides its bytes, until the server has answered it.  An element of 33 bytes in a
# Fetch becomes 500 bytes, and there are at most `REQUEST_ELEMENTS_MAX`.  Produce has few objects, which are gone when
# it waits; a large request waits until there is room for its objects.
OBJECTS_RATIO: Final = 15
OBJECTS_BYTES_MAX: Final = 100 << 20


class Slot(Place):
    """A `Place` whose size includes the request's objects."""

    __slots__ = ("deferred", "time")

    def __init__(
        self, request_bytes: int, deferred: Deferred | None = None, time: RequestTime | None = None
    ) -> None:
        Place.__init__(self, request_bytes)
        self.deferred = deferred  # the answer that will resolve it, until then
        self.time = time  # its request's time on the loop, if that is limited

    @property
    def can_be_abandoned(self) -> bool:
        """Whether the request waits for other clients, and may be abandoned."""
        return self.deferred is not None and self.deferred.abandon is not None

    def hurry(self) -> None:
        """Answer with what there is, if the request waits for more."""
        if self.deferred is not None and self.deferred.hurry is not None:
            self.deferred.hurry()

    def abandon(self) -> None:
        """End the request and its waits, because the client has gone."""
        if self.time is not None:
            self.time.end()
        # It refers to this slot, and so to the session: a circle would need the collector.
        deferred, self.deferred = self.deferred, None
        if deferred is not None and deferred.abandon is not None:
            deferred.abandon()

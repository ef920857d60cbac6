"""The place of one request in the order of responses: what it counts, and what becomes of it when the session ends."""

from typing import Final

from magnetar.protocols.kafka.registry import Deferred
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.protocols.outbox import Place

# What a request's objects occupy besides its bytes while it is not answered: an element of 33 bytes in a Fetch becomes
# 500, and there are no more of them than `REQUEST_ELEMENTS_MAX`.  Produce's are few and gone when it waits; a large
# request waits until there is room for them.
OBJECTS_RATIO: Final = 15
OBJECTS_BYTES_MAX: Final = 100 << 20


class Slot(Place):
    """What it counts includes the request's objects."""

    __slots__ = ("deferred", "time")

    def __init__(
        self, request_bytes: int, deferred: Deferred | None = None, time: RequestTime | None = None
    ) -> None:
        Place.__init__(self, request_bytes)
        self.deferred = deferred  # what will resolve it, while that is not known
        self.time = time  # what its request takes of the loop's, where that is limited

    @property
    def can_be_abandoned(self) -> bool:
        """Whether the request waits for what other clients do, and may be given up."""
        return self.deferred is not None and self.deferred.abandon is not None

    def hurry(self) -> None:
        """Answer with what there is, if the request waits for more."""
        if self.deferred is not None and self.deferred.hurry is not None:
            self.deferred.hurry()

    def abandon(self) -> None:
        """The client has gone: the request's time is over, and what it waits for need not come."""
        if self.time is not None:
            self.time.end()
        if self.deferred is not None and self.deferred.abandon is not None:
            self.deferred.abandon()

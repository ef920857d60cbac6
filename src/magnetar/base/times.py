"""The times of a server, which its parts share: what time it is, by which time data expires, and what is done when."""

from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.base.expiry_time import ExpiryTime
from magnetar.base.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class Times:
    """See the module's text.  `expiry` and `upkeep` go by `clock`."""

    clock: Clock
    expiry: ExpiryTime
    upkeep: Upkeep

    @classmethod
    def by(cls, clock: Clock) -> "Times":
        """Those of a server that starts now."""
        return cls(clock, ExpiryTime(clock), Upkeep(clock))

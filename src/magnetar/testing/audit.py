"""An audit log in memory."""

import json
from typing import Any

from magnetar.broker.security.audit import Audit
from magnetar.testing.clock import FakeClock


class MemoryAudit:
    """`audit` is the audit log for a broker.  As an `AuditSink` this accepts all lines while it `has_room`.  It has
    its own clock, unless a test passes one.
    """

    def __init__(self, clock: FakeClock | None = None, *, with_logins: bool = False) -> None:
        self._clock = clock = clock or FakeClock()
        self.audit = Audit(clock, self, with_logins=with_logins)
        self.raw: list[bytes] = []
        self.has_room = True
        self.handed_over_count = 0  # how many lines there were when a caller last waited

    def put(self, line: bytes, *, is_change: bool) -> bool:
        if self.has_room:
            self.raw.append(line)
        return self.has_room

    async def handed_over(self) -> None:
        self.handed_over_count = len(self.raw)

    def take(self) -> list[dict[str, Any]]:
        """The lines since the last call, including those that were only counted.  It moves the clock by a second, so
        that there is room for the next lines.
        """
        self.audit.close()
        self._clock.advance(1.0)
        lines = [json.loads(line) for line in self.raw]
        self.raw.clear()
        return lines

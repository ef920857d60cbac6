"""The time by which things expire: it runs as the wall clock does, and does not jump forward with it.

A wall clock can be wrong for a while: a step of NTP, a machine that was suspended, a battery that was empty.  Whatever
is deleted for its age (records, offsets, producers' states, messages' TTL, unused subscriptions) goes by `now_ms` of
this module, which the monotonic clock carries on.  When the wall clock is ahead by more than `JUMP_MS`, its time is
*held*: nothing expires because of it until the server has run for `ACCEPT_S` with it.  So an operator can set the clock
right, or stop the server, before anything is lost.  A clock that goes back is followed at once: it makes things
younger.

How far this time has got is stored, so that a start with a wrong clock is noticed as well.  There the machine may just
have been off: a gap at a start is held all the same, which costs disk space for an hour, and is no `problem`.

Stored at `/expiry-time`, JSON::

    {"v": 1, "now_ms": ..., "held_ms": 0, "held_s": 0.0}

`held_ms` is how far the wall clock was ahead while it was held, and `held_s` for how long; 0 when it was not.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Final

from magnetar.base.clock import Clock

log = logging.getLogger(__name__)

PATH: Final = "/expiry-time"
JUMP_MS: Final = 60_000
START_GAP_MS: Final = 3_600_000  # a shorter absence is nothing to speak of
ACCEPT_S: Final = 3600.0
_DAY_MS: Final = 86_400_000


class ExpiryTime:
    """See the module's text.  `restore` first, if something was stored."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms()
        self._looked_s = clock.monotonic()
        self._held_ms = 0  # how far the wall clock was ahead when it began to be held; 0: it is not held
        self._held_s = 0.0
        self._since_start = False

    def restore(self, stored: bytes) -> None:
        """Go on where the last process was; what cannot be read says nothing."""
        try:
            document = json.loads(stored)
            now_ms = int(document["now_ms"])
            held_ms, held_s = int(document["held_ms"]), float(document["held_s"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the server does not know when it last ran: %r", error)
            return
        ahead_ms = self._clock.now_ms() - now_ms
        if ahead_ms <= START_GAP_MS and not held_ms:
            return
        self._now_ms = now_ms
        if ahead_ms <= JUMP_MS:
            return
        is_the_same = 0 < held_ms <= ahead_ms <= 2 * held_ms + START_GAP_MS  # it may have been off meanwhile
        self._held_ms, self._held_s = ahead_ms, held_s if is_the_same else 0.0
        self._since_start = True
        if ahead_ms > _DAY_MS:
            log.warning(
                "the clock says %s, and the server last ran at %s: the server lets nothing expire for the time between"
                " until it has run for %d minutes",
                _text(self._clock.now_ms()),
                _text(now_ms),
                self._left_s // 60,
            )

    def now_ms(self) -> int:
        """Milliseconds since the epoch: what is older than it may be at this time may go."""
        wall_ms, looked_s = self._clock.now_ms(), self._clock.monotonic()
        elapsed_s = looked_s - self._looked_s
        self._looked_s = looked_s
        self._now_ms += round(elapsed_s * 1000)
        ahead_ms = wall_ms - self._now_ms
        if ahead_ms <= JUMP_MS:
            if self._held_ms:
                log.info("the clock is right again")
            elif ahead_ms < -JUMP_MS:
                log.warning("the clock went back by %d s", -ahead_ms // 1000)
            self._accept(wall_ms)
        elif not self._held_ms or abs(ahead_ms - self._held_ms) > JUMP_MS:
            self._held_ms, self._held_s, self._since_start = ahead_ms, 0.0, False
            log.warning("%s", self.problem)
        else:
            self._held_s += elapsed_s
            if self._held_s >= ACCEPT_S:
                log.warning(
                    "the clock has kept its new time for long enough: the server trusts it again, and data expire by it"
                )
                self._accept(wall_ms)
        return self._now_ms

    def _accept(self, wall_ms: int) -> None:
        self._now_ms = wall_ms
        self._held_ms, self._held_s, self._since_start = 0, 0.0, False

    @property
    def _left_s(self) -> int:
        return max(round(ACCEPT_S - self._held_s), 0)

    @property
    def held_ms(self) -> int:
        """How far the wall clock is ahead of what is believed; 0 when it is believed."""
        return self._held_ms

    @property
    def problem(self) -> str | None:
        """What is wrong, in a sentence for the operator; None for nothing."""
        if not self._held_ms or self._since_start:
            return None
        return (
            f"The clock jumped ahead by {self._held_ms // 1000} s to {_text(self._clock.now_ms())}: nothing expires by"
            f" it for another {-(-self._left_s // 60)} minutes; set it right before, or let it be taken for right."
        )

    def encode(self) -> bytes:
        """What is to be stored, as of the last `now_ms`."""
        document = {"v": 1, "now_ms": self._now_ms, "held_ms": self._held_ms, "held_s": self._held_s}
        return json.dumps(document).encode()


def _text(wall_ms: int) -> str:
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms since 1970"

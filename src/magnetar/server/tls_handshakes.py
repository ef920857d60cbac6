"""The handshakes of TLS that are under way: their places, their turns, and what is said of those that fail.

A handshake is the most expensive request of an unknown client, about a millisecond with an RSA key.  So handshakes
take turns (`base/turns.py`): half a millisecond of them, or one, in each pass of the loop.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.rare_line import RareLine
from magnetar.base.turns import Turns

log = logging.getLogger(__name__)

HANDSHAKES_MAX: Final = 512
CIPHERTEXT_BYTES: Final = 64 << 10  # received at once, and kept by a paused connection


class Shaking(Protocol):
    """A connection in its handshake (`server/tls.py`)."""

    listener: str
    client_host: str

    def shake_hands(self) -> None: ...
    def give_up(self, reason: str, /) -> None: ...
    def abort(self) -> None: ...


class Handshakes:
    """The handshakes under way, of all listeners.

    `take_place` says whether another connection of a listener and a host may be open, and counts it.  `give_place`
    uncounts it if its handshake fails; after a handshake that succeeds it keeps its place.
    """

    def __init__(
        self,
        clock: Clock,
        take_place: Callable[[str, str], bool],
        give_place: Callable[[str, str], None],
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        self.clock = clock
        self.ciphertext = memoryview(bytearray(CIPHERTEXT_BYTES))  # shared: its bytes are decrypted at once
        self.failed_count = 0
        self._take_place = take_place
        self._give_place = give_place
        self._handshakes_max = handshakes_max
        self._under_way: dict[Shaking, None] = {}
        self._turns = Turns(clock.monotonic)
        self._failures = RareLine(log, clock)

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, one: Shaking) -> bool:
        """Whether an accepted connection may begin its handshake.  If too many are under way, the oldest fails."""
        if not self._take_place(one.listener, one.client_host):
            return False
        if len(self._under_way) >= self._handshakes_max:
            next(iter(self._under_way)).give_up("others came after it, and as many are at it as may be")
        self._under_way[one] = None
        return True

    def has_received(self, one: Shaking) -> None:
        """Continue a handshake when it has its turn."""
        self._turns.wait(one.shake_hands)

    def succeeded(self, one: Shaking) -> None:
        del self._under_way[one]

    def failed(self, one: Shaking, reason: str) -> None:
        """Count a failed handshake, if it has a `reason`, and log one now and then, however many there are."""
        self._under_way.pop(one, None)
        if reason:
            self.failed_count += 1
            self._failures.warn(f"TLS with {one.client_host} failed: {reason}", "failed")

    def ended(self, one: Shaking) -> None:
        """Note that a socket has closed whose handshake never succeeded."""
        self._under_way.pop(one, None)
        self._give_place(one.listener, one.client_host)

    def abort_all(self) -> None:
        for one in list(self._under_way):
            one.abort()

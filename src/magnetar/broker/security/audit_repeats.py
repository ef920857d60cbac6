"""What clients can cause as often as they like, written in bounds: refusals, and logins.

The first one is written at once.  Others like it are counted, and written as one line with their `count` when a second
has gone by, then after ever longer, up to five minutes, until there were none.  All together there are `BURST_LINES`
lines, then `LINES_PER_S`; what finds no room is counted in one line a second.

A refusal costs some microseconds here, and only what is written becomes a line.
"""

from collections.abc import Callable, Mapping
from typing import Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.broker.security.audit_line import Event, Key, cut

LINES_PER_S: Final = 10
BURST_LINES: Final = 200
KINDS_MAX: Final = 4096  # of what is counted at a time
KEPT_CHARS_MAX: Final = 200  # of each text of those: names that differ only behind that count as one
WINDOW_S_MIN: Final = 1.0
WINDOW_S_MAX: Final = 300.0
_WINDOW_GROWTH: Final = 4
_LOOK_S: Final = 1.0


class _Repeated:
    __slots__ = ("count", "due_s", "fields", "window_s")

    def __init__(self, fields: Mapping[str, str], now_s: float) -> None:
        self.fields = fields
        self.count = 0  # of those that no line tells of
        self.window_s = WINDOW_S_MIN
        self.due_s = now_s + WINDOW_S_MIN


class Repeats:
    """See the module's text.  `write` gets the fields of a line, and says whether there was room for it."""

    def __init__(self, clock: Clock, write: Callable[[Mapping[str, object]], bool]) -> None:
        self._clock = clock
        self._write = write
        self._known: dict[tuple[str, ...], _Repeated] = {}
        self._dropped = 0
        self._lines_left = float(BURST_LINES)
        self._counted_s = clock.monotonic()
        self._timer: TimerHandle | None = None

    def add(self, fields: Mapping[str, str]) -> None:
        """One more; what its client calls itself makes it no other one."""
        fields = {name: cut(text, KEPT_CHARS_MAX) for name, text in fields.items()}
        kind = tuple(text for name, text in fields.items() if name != Key.CLIENT)
        found = self._known.get(kind)
        if found is not None:
            found.count += 1
            return
        now_s = self._clock.monotonic()
        if len(self._known) >= KINDS_MAX or not self._has_room(now_s):
            self.drop()
            return
        self._known[kind] = _Repeated(fields, now_s)
        self._say(fields)
        self._look_later()

    def drop(self) -> None:
        """Something is not written: the next line that can be says so."""
        self._dropped += 1
        self._look_later()

    def close(self) -> None:
        """Write what was counted: there is no later."""
        if self._timer is not None:
            self._timer.cancel()
        for one in self._known.values():
            if one.count:
                self._say({**one.fields, Key.COUNT: one.count})
        self._known.clear()
        self._say_dropped()

    def _say(self, fields: Mapping[str, object]) -> None:
        if not self._write(fields):
            self._dropped += 1

    def _say_dropped(self) -> None:
        if self._dropped and self._write({Key.EVENT: Event.DROPPED.value, Key.COUNT: self._dropped}):
            self._dropped = 0

    def _has_room(self, now_s: float) -> bool:
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        self._lines_left = min(self._lines_left + passed_s * LINES_PER_S, BURST_LINES)
        if self._lines_left < 1:
            return False
        self._lines_left -= 1
        return True

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        for kind, one in list(self._known.items()):
            if now_s < one.due_s:
                continue
            if not one.count:
                del self._known[kind]
            elif self._has_room(now_s):
                self._say({**one.fields, Key.COUNT: one.count})
                one.count = 0
                one.window_s = min(one.window_s * _WINDOW_GROWTH, WINDOW_S_MAX)
                one.due_s = now_s + one.window_s
        self._say_dropped()
        if self._known or self._dropped:
            self._look_later()

"""Lines that clients can cause any number of times, written within limits: refusals, and logins.

The first one is written at once.  Others like it are counted.  After a second they become one line with their `count`;
further lines follow at longer and longer intervals, up to five minutes, until there is nothing more to count.  All
together there are `BURST_LINES` lines, then `LINES_PER_S`; what finds no room is counted in one line a second.  A
source is a principal at an address.  One source has half of these lines, and half of the counts that the others leave;
`KEPT_LINES` are for sources that have had few.  Without this limit, a source with ever other names would hide what
others try.

A refusal costs some microseconds here, and only what is written becomes a line.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.shares import Shares
from magnetar.broker.security.audit_line import Event, Key, cut

LINES_PER_S: Final = 10
BURST_LINES: Final = 200
KINDS_MAX: Final = 4096  # of what is counted at a time
KEPT_CHARS_MAX: Final = 200  # of each text of those: names that differ only behind that count as one
KEPT_LINES: Final = 50
FEW_LINES: Final = 10
SOURCES_MAX: Final = 4096  # whose lines are counted at a time
WINDOW_S_MIN: Final = 1.0
WINDOW_S_MAX: Final = 300.0
_WINDOW_GROWTH: Final = 4
_LOOK_S: Final = 1.0


_Source = tuple[str, str]  # principal, address


class _Lines:
    """How many lines there may be now: a burst, and so many more in each second.  `tried` is how many were wanted of
    late, whether or not there was room for them.
    """

    __slots__ = ("_burst", "_counted_s", "_per_s", "left", "tried")

    def __init__(self, burst: float, per_s: float, now_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._counted_s = now_s
        self.left = burst
        self.tried = 0.0

    def count(self, now_s: float) -> None:
        """One more is wanted."""
        more, self._counted_s = (now_s - self._counted_s) * self._per_s, now_s
        self.left = min(self.left + more, self._burst)
        self.tried = min(max(self.tried - more, 0) + 1, self._burst)


class _Repeated:
    __slots__ = ("count", "due_s", "fields", "source", "window_s")

    def __init__(self, fields: Mapping[str, str], source: _Source, now_s: float) -> None:
        self.fields = fields
        self.source = source
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
        self._kinds = Shares(KINDS_MAX)
        self._lines = _Lines(BURST_LINES, LINES_PER_S, clock.monotonic())
        self._lines_of: OrderedDict[_Source, _Lines] = OrderedDict()  # the one that was used last comes last
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
        source = fields.get(Key.PRINCIPAL, ""), fields.get(Key.HOST, "")
        if self._kinds.room(source) <= 0 or not self._has_room(source, now_s):
            self.drop()
            return
        self._known[kind] = _Repeated(fields, source, now_s)
        self._kinds.take(source)
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
            self._kinds.give(one.source)
        self._known.clear()
        self._say_dropped()

    def _say(self, fields: Mapping[str, object]) -> None:
        if not self._write(fields):
            self._dropped += 1

    def _say_dropped(self) -> None:
        if self._dropped and self._write({Key.EVENT: Event.DROPPED.value, Key.COUNT: self._dropped}):
            self._dropped = 0

    def _has_room(self, source: _Source, now_s: float) -> bool:
        own = self._lines_of.get(source)
        if own is None:
            own = self._lines_of[source] = _Lines(BURST_LINES / 2, LINES_PER_S / 2, now_s)
            if len(self._lines_of) > SOURCES_MAX:
                self._lines_of.popitem(last=False)
        self._lines_of.move_to_end(source)
        own.count(now_s)
        self._lines.count(now_s)
        kept = KEPT_LINES if own.tried > FEW_LINES else 0
        if own.left < 1 or self._lines.left < 1 + kept:
            return False
        self._lines.left -= 1
        own.left -= 1
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
                self._kinds.give(one.source)
            elif self._has_room(one.source, now_s):
                self._say({**one.fields, Key.COUNT: one.count})
                one.count = 0
                one.window_s = min(one.window_s * _WINDOW_GROWTH, WINDOW_S_MAX)
                one.due_s = now_s + one.window_s
        self._say_dropped()
        if self._known or self._dropped:
            self._look_later()

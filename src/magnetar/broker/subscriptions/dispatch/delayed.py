"""Messages whose time has not come (deliver_at_time), for Shared and Key_Shared: an index of their entries.

Nothing here is stored: a delayed message is simply not acknowledged, so after a restart it is read, and delayed, again.
Never delivered early, and at most one tick late: the timer goes off at whole ticks, so a million messages of one
second need one wake-up.  (Pulsar by default delivers up to a tick early.)

The log has the messages, so the index has of each entry only when it is due and where it begins: a row of two numbers.
The newest rows are in a heap.  When it has `RUN_ROWS` of them they become a run: sorted, 16 bytes each.  The next row
that is due is the first of the heap or of a run, and the runs are in a heap by their first rows.  Rows whose time has
come are taken out of these, and wait, as the entries that are `due`, until the shell has read them again.

Which offsets are delayed is a set of bits.  An acknowledgement takes its offsets out of that set, and looks for no
rows.  A row with nothing left of it is dropped when its time has come, and with the last offset all rows go.
"""

from array import array
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, heapreplace

from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.dispatch.offsets import OffsetSet
from magnetar.broker.subscriptions.dispatch.ranges import OffsetRange

TICK_MS = 1000  # delayedDeliveryTickTimeMillis
DUE_AT_ONCE = 1000  # a million may have the same time
ROWS_AT_ONCE = 5_000  # ... and most of them be acknowledged: a microsecond for each row that is dropped
RUN_ROWS = 8_192  # sorted and packed in 5 ms

# A row as one number, for the heaps: the time, then where the entry begins, then whether it has several messages.
_PLACE_BITS = 64
_PLACE = (1 << _PLACE_BITS) - 1
NEW_ROW_BYTES = 64
_RUN_BYTES = 300  # beside its rows


class _Run:
    """Rows in ascending order; those that were taken are gone."""

    __slots__ = ("_next", "_rows")

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = array("q")
        for row in rows:
            self._rows.append(row >> _PLACE_BITS)
            self._rows.append(row & _PLACE)
        self._next = 0

    @property
    def first(self) -> int | None:
        """The next row; None at the end."""
        at = self._next
        return None if at == len(self._rows) else self._rows[at] << _PLACE_BITS | self._rows[at + 1]

    def drop_first(self) -> None:
        self._next += 2

    @property
    def size_bytes(self) -> int:
        return _RUN_BYTES + len(self._rows) * self._rows.itemsize


class DelayedIndex:
    """See the module's text.  `size_bytes` is about what it takes in memory, 0 where nothing is delayed."""

    __slots__ = (
        "_due",
        "_last",
        "_new",
        "_offsets",
        "_run_bytes",
        "_run_count",
        "_run_rows",
        "_runs",
        "_tick_ms",
        "size_bytes",
    )

    def __init__(self, tick_ms: int = TICK_MS, *, run_rows: int = RUN_ROWS) -> None:
        assert tick_ms > 0
        self._tick_ms = tick_ms
        self._run_rows = run_rows
        self._offsets = OffsetSet()
        self._runs: list[tuple[int, int, _Run]] = []  # by their first rows; the number makes each different
        self.clear()

    def __len__(self) -> int:
        """How many messages are delayed, or due and not read again yet."""
        return self._offsets.count

    def clear(self) -> None:
        self._offsets.clear()
        self._new: list[int] = []
        self._runs.clear()
        self._run_count = self._run_bytes = 0
        self._due: list[int] = []  # ascending by place
        self._last = -1  # the place that was put last
        self.size_bytes = 0

    def put(self, unit: Unit) -> None:
        """Keep what is left of an entry until its time.  Units of one entry come one after the other."""
        base, end = unit.base_offset, unit.end_offset
        for start, stop in ((base, end),) if unit.offsets is None else unit.offsets:
            self._offsets.add(start, stop)
        place = base << 1 | (end - base > 1)
        if place != self._last:
            self._last = place
            heappush(self._new, unit.deliver_at_ms << _PLACE_BITS | place)
            if len(self._new) == self._run_rows:
                self._pack()
        self._measure()

    def acked(self, ranges: Iterable[OffsetRange]) -> None:
        before = self._offsets.count
        self._forget(ranges)
        if self._due and self._offsets.count != before:
            self._due = [place for place in self._due if self._is_left(place)]

    def ripen(self, now_ms: int) -> None:
        """Let entries be due whose time has come, as far as they are not too many."""
        due: list[int] = []
        room = DUE_AT_ONCE - len(self._due)
        for _ in range(ROWS_AT_ONCE):
            if len(due) >= room or (row := self._first()) is None or row >> _PLACE_BITS > now_ms:
                break
            self._drop_first()
            if self._is_left(row & _PLACE):
                due.append(row & _PLACE)
        if due:
            self._due = sorted([*self._due, *due])
        self._measure()

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def due(self, count: int) -> list[int]:
        """Where the first of the due entries begin, ascending: so many at most."""
        return [place >> 1 for place in self._due[:count]]

    def read_again(self, entries: Sequence[OffsetRange]) -> None:
        """These entries are delayed no more: each from its first offset to its end."""
        bases = {start for start, _ in entries}
        self._due = [place for place in self._due if place >> 1 not in bases]
        self._forget(entries)

    @property
    def next_tick_ms(self) -> int | None:
        """The first whole tick at which something is due that may be."""
        row = self._first()
        if row is None or len(self._due) >= DUE_AT_ONCE:
            return None
        return -(-(row >> _PLACE_BITS) // self._tick_ms) * self._tick_ms

    def _is_left(self, place: int) -> bool:
        """Whether some of an entry may still be delayed; for one of several messages, the log and the cursor know."""
        return place & 1 == 1 or place >> 1 in self._offsets

    def _forget(self, ranges: Iterable[OffsetRange]) -> None:
        for start, stop in ranges:
            self._offsets.discard(start, stop)
        if self._offsets.count:
            self._measure()
        else:
            self.clear()

    def _pack(self) -> None:
        self._new.sort()
        run = _Run(self._new)
        self._run_count += 1
        self._run_bytes += run.size_bytes
        heappush(self._runs, (self._new[0], self._run_count, run))
        self._new = []

    def _first(self) -> int | None:
        new, runs = self._new, self._runs
        if new and (not runs or new[0] < runs[0][0]):
            return new[0]
        return runs[0][0] if runs else None

    def _drop_first(self) -> None:
        new, runs = self._new, self._runs
        if new and (not runs or new[0] < runs[0][0]):
            heappop(new)
            return
        _, number, run = runs[0]
        run.drop_first()
        following = run.first
        if following is None:
            heappop(runs)
            self._run_bytes -= run.size_bytes
        else:
            heapreplace(runs, (following, number, run))

    def _measure(self) -> None:
        rows = len(self._new) + len(self._due)
        self.size_bytes = rows * NEW_ROW_BYTES + self._run_bytes + self._offsets.size_bytes

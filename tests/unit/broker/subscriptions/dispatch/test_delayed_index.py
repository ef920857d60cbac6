"""The index of delayed entries against a dictionary of them."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from magnetar.broker.subscriptions.dispatch import delayed
from magnetar.broker.subscriptions.dispatch.delayed import DUE_AT_ONCE, ROWS_AT_ONCE, DelayedIndex
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.dispatch.offsets import STRETCH, OffsetSet

TICK_MS = 100


class IndexMachine(RuleBasedStateMachine):
    """Entries come, are acknowledged in part, fall due and are read again, in any order."""

    @initialize(run_rows=st.sampled_from((1, 2, 5, 1_000)))
    def start(self, run_rows: int) -> None:
        self.index = DelayedIndex(TICK_MS, run_rows=run_rows)
        self.now_ms = 0
        self.end = 0
        self.left: dict[int, set[int]] = {}  # by base, what is delayed of an entry
        self.times: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.ripe: set[int] = set()

    @rule(
        sizes=st.lists(st.sampled_from((1, 1, 1, 3, STRETCH + 1)), min_size=1, max_size=8),
        delays_ms=st.lists(st.integers(1, 1_000), min_size=8, max_size=8),
        gap=st.sampled_from((0, 0, 1, 5 * STRETCH)),
    )
    def put(self, sizes: list[int], delays_ms: list[int], gap: int) -> None:
        for size, delay_ms in zip(sizes, delays_ms, strict=False):
            base = self.end + gap
            self.end = base + size
            at = self.now_ms + delay_ms
            self.index.put(Unit(None, base, self.end, deliver_at_ms=at))
            self.left[base] = set(range(base, self.end))
            self.times[base], self.ends[base] = at, self.end

    @rule(start=st.integers(0, 10_000), count=st.one_of(st.integers(1, 12), st.just(1 << 40)))
    def ack(self, start: int, count: int) -> None:
        start %= self.end + 1
        self.index.acked([(start, start + count)])
        for base, left in list(self.left.items()):
            left -= {offset for offset in left if start <= offset < start + count}
            if not left:
                del self.left[base]
                self.ripe.discard(base)

    @rule(duration_ms=st.integers(0, 400))
    def tick(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        at = self.index.next_tick_ms
        if at is not None and at <= self.now_ms:
            self.index.ripen(self.now_ms)
            self.ripe |= {base for base in self.left if self.times[base] <= self.now_ms}

    @rule(count=st.integers(1, 6))
    def read_again(self, count: int) -> None:
        bases = self.index.due(count)
        self.index.read_again([(base, self.ends[base]) for base in bases])
        for base in bases:
            assert self.times[base] <= self.now_ms, "too early"
            self.left.pop(base, None)
            self.ripe.discard(base)

    @rule()
    def clear(self) -> None:
        self.index.clear()
        self.left.clear()
        self.ripe.clear()

    @invariant()
    def holds_what_the_dictionary_holds(self) -> None:
        if not hasattr(self, "index"):
            return
        assert len(self.index) == sum(map(len, self.left.values()))
        assert bool(self.index.size_bytes) == bool(self.left)
        due = self.index.due(10_000)
        assert due == sorted(due)
        assert self.ripe <= set(due)
        assert all(self.ends[base] - base > 1 for base in set(due) - self.ripe)
        waiting = [self.times[base] for base in self.left if base not in self.ripe]
        if waiting:
            assert self.index.next_tick_ms is not None
            assert self.now_ms < self.index.next_tick_ms <= -(-min(waiting) // TICK_MS) * TICK_MS


TestDelayedIndex = IndexMachine.TestCase


def filled(count: int, at_ms: int = 1_000, run_rows: int = delayed.RUN_ROWS) -> DelayedIndex:
    index = DelayedIndex(TICK_MS, run_rows=run_rows)
    for base in range(count):
        index.put(Unit(None, base, base + 1, deliver_at_ms=at_ms))
    return index


def test_very_many_entries_that_are_due_together_are_due_in_turns() -> None:
    index = filled(2 * DUE_AT_ONCE + 1)
    taken = []
    for _ in range(3):
        index.ripen(5_000)
        taken.append(index.due(10_000))
        assert index.next_tick_ms is None
        index.read_again([(base, base + 1) for base in taken[-1]])
    assert [len(bases) for bases in taken] == [DUE_AT_ONCE, DUE_AT_ONCE, 1]


def test_rows_of_the_acknowledged_are_dropped_in_turns() -> None:
    index = filled(2 * ROWS_AT_ONCE)
    index.acked([(0, 2 * ROWS_AT_ONCE - 1)])
    index.ripen(5_000)
    assert index.due(10) == []
    assert index.next_tick_ms == 1_000, "the timer goes off again at once"
    index.ripen(5_000)
    assert index.due(10) == [2 * ROWS_AT_ONCE - 1]


def test_the_timer_waits_for_whole_ticks() -> None:
    index = DelayedIndex(tick_ms=1_000)
    for base, (at, tick) in enumerate([(2_001, 3_000), (2_000, 2_000), (1, 1_000)]):
        index.put(Unit(None, base, base + 1, deliver_at_ms=at))
        assert index.next_tick_ms == tick


def test_offsets_that_lie_far_apart_cost_a_stretch_each_and_go_at_once() -> None:
    offsets = OffsetSet()
    for number in range(100):
        offsets.add(number << 30, (number << 30) + 1)
    assert offsets.count == 100
    offsets.discard(1, 1 << 60)
    assert (offsets.count, 0 in offsets, 1 << 30 in offsets) == (1, True, False)

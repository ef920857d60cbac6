"""ack_sets against sets of numbers, and against the words that Pulsar's clients send."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscriptions.ack_sets import RUNS_MAX, ack_set_of, acknowledged_ranges


def offsets(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


def test_bit_one_is_still_unacknowledged_and_the_first_message_is_the_lowest_bit() -> None:
    assert acknowledged_ranges([0b1110], 100, 4) == [(100, 101)]
    assert acknowledged_ranges([0b0101], 100, 4) == [(101, 102), (103, 104)]
    assert ack_set_of([(101, 104)], 100, 4) == [0b1110]


def test_words_that_are_left_out_are_acknowledged_and_those_too_many_ignored() -> None:
    assert acknowledged_ranges([], 0, 3) == [(0, 3)]
    assert acknowledged_ranges([-1], 0, 70) == [(64, 70)]
    assert acknowledged_ranges([-1, -1, -1, -1], 0, 70) == []
    assert acknowledged_ranges([(1 << 64) - 1], 0, 64) == [], "unsigned words are taken too"


@given(st.integers(1, 300), st.integers(0, 1 << 40), st.data())
def test_both_directions_agree_with_a_set_of_numbers(count: int, base: int, data: st.DataObject) -> None:
    left = data.draw(st.sets(st.integers(base, base + count - 1)))
    ack_set = ack_set_of([(offset, offset + 1) for offset in left], base, count)
    assert all(-(1 << 63) <= word < 1 << 63 for word in ack_set)
    ranges = acknowledged_ranges(ack_set, base, count)
    assert offsets(ranges) == set(range(base, base + count)) - left
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))


def test_of_a_million_alternating_bits_as_many_runs_are_taken_as_one_turn_has_time_for() -> None:
    """Half a million ranges kept the event loop for a second, and the cursor that took them for longer."""
    count = 1 << 20
    ranges = acknowledged_ranges([0x5555_5555_5555_5555] * (count // 64), 0, count)
    assert ranges == [(at, at + 1) for at in range(1, 2 * RUNS_MAX, 2)]
    assert acknowledged_ranges([0] * (count // 64), 0, count) == [(0, count)], "the end is one run"


def test_words_that_were_not_sent_cost_nothing() -> None:
    """One word for a batch of a million messages took 3 ms, and a command has room for tens of thousands of those."""
    count = 1 << 50  # as text that would be a petabyte
    assert acknowledged_ranges([0b0101], 0, count) == [(1, 2), (3, count)]
    assert acknowledged_ranges([1 << 63], 0, count) == [(0, 63), (64, count)]
    assert acknowledged_ranges([-1], 0, count) == [(64, count)]

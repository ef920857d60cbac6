"""Ranges without ranges: the same as sets, and fast whatever a client acknowledges."""

import random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscriptions.dispatch import ranges as module
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.dispatch.ranges import OffsetRange, merged, without

any_ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair)))
)


def offsets(ranges: list[OffsetRange]) -> set[int]:
    return {offset for start, stop in ranges for offset in range(start, stop)}


def is_normal(ranges: list[OffsetRange]) -> bool:
    numbers = [number for limits in ranges for number in limits]
    return all(low < high for low, high in ranges) and numbers == sorted(numbers)


@given(any_ranges)
def test_merged_ranges_are_ascending_and_the_same_set(ranges: list[OffsetRange]) -> None:
    assert is_normal(merged(ranges))
    assert offsets(merged(ranges)) == offsets(ranges)


@given(any_ranges, any_ranges, st.sampled_from((0, 1, 16)))
def test_what_is_left_is_what_sets_leave(
    ranges: list[OffsetRange], cuts: list[OffsetRange], few: int
) -> None:
    before = module.FEW
    module.FEW = few  # 0: a search for each cut, 16: mostly one pass
    try:
        left, gone = without(merged(ranges), merged(cuts))
    finally:
        module.FEW = before
    assert is_normal(left)
    assert offsets(left) == offsets(ranges) - offsets(cuts)
    assert gone == len(offsets(ranges) & offsets(cuts))


def test_a_tuple_that_is_given_stays_as_it_is() -> None:
    given_ranges = tuple((number * 10, number * 10 + 5) for number in range(100))
    left, gone = without(given_ranges, [(0, 5)])
    assert (len(given_ranges), len(left), gone) == (100, 99, 5)


def test_a_unit_of_which_messages_are_missing_is_done_only_when_nothing_is_left() -> None:
    unit = Unit(None, 0, 10, message_count=3)  # a compacted batch
    assert unit.subtract([(0, 5)]) == 3
    assert not unit.is_acknowledged
    assert unit.subtract([(5, 10)]) == 0
    assert unit.is_acknowledged


def test_half_a_million_messages_of_a_batch_may_be_acknowledged_in_any_way() -> None:
    """A quadratic way would take hours, and run into the time limit of all tests."""
    count = 1 << 19
    unit = Unit(None, 0, count)
    unit.subtract([(offset, offset + 1) for offset in range(0, count, 2)])
    rng = random.Random(1)
    for offset in rng.sample(range(1, count, 2), 2_000):
        unit.subtract([(offset, offset + 1)])
    assert unit.message_count == count // 2 - 2_000

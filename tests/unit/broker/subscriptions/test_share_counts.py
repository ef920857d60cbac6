"""How often records were delivered in vain, kept while a subscription has no consumers."""

from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.share.counts import (
    RANGES_MAX,
    SUBSCRIPTIONS_MAX,
    Counted,
    DeliveryCounts,
    with_counts,
)


def unit(base: int, end: int, count: int = 0, offsets: list[tuple[int, int]] | None = None) -> Unit:
    made = Unit((1, base), base, end, offsets=offsets)
    made.redelivery_count = count
    return made


def shown(units: list[Unit]) -> list[tuple[list[tuple[int, int]], int]]:
    return [(list(one.offsets or [(one.base_offset, one.end_offset)]), one.redelivery_count) for one in units]


def test_what_was_never_delivered_in_vain_costs_nothing() -> None:
    counts = DeliveryCounts()
    counts.keep("log", "g", [unit(0, 5)])
    assert counts.take("log", "g") == []


def test_counts_are_taken_once() -> None:
    counts = DeliveryCounts()
    counts.keep("log", "g", [unit(4, 6, 2), unit(0, 3, 1, [(1, 2)])])
    assert counts.take("log", "other") == []
    assert counts.take("log", "g") == [Counted(1, 2, 1), Counted(4, 6, 2)]
    assert counts.take("log", "g") == []


def test_what_is_kept_is_bounded() -> None:
    counts = DeliveryCounts()
    for number in range(SUBSCRIPTIONS_MAX + 1):
        counts.keep("log", str(number), [unit(0, 1, 1)])
    assert counts.take("log", "0") == []
    counts.keep("log", "wide", [unit(2 * at, 2 * at + 1, 1) for at in range(RANGES_MAX + 1)])
    assert len(counts.take("log", "wide")) == RANGES_MAX


def test_a_unit_whose_records_differ_is_cut() -> None:
    counted = [Counted(2, 4, 3), Counted(5, 6, 1), Counted(10, 30, 2)]
    found = with_counts([unit(0, 6), unit(6, 8), unit(8, 20, 0, [(8, 9), (12, 13)]), unit(20, 25)], counted)
    assert shown(found) == [
        ([(0, 2), (4, 5)], 0),
        ([(2, 4)], 3),
        ([(5, 6)], 1),
        ([(6, 8)], 0),
        ([(8, 9)], 0),
        ([(12, 13)], 2),
        ([(20, 25)], 2),
    ]
    assert [one.permits for one in found[:3]] == [3, 2, 1]

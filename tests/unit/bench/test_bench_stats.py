"""The arithmetic behind a verdict."""

import math

import pytest

from bench import stats
from bench.stats import Better, Figure, Verdict

FASTER = Figure("mb_s", "produce", "MB/s", Better.HIGHER, bar=1.5, goal=3.0)
CHEAPER = Figure("cpu_s_gb", "cpu", "s/GB", Better.LOWER, bar=0.6, goal=0.25)


@pytest.mark.parametrize(
    ("figure", "ours", "theirs", "ratio", "verdict"),
    [
        (FASTER, [300.0], [100.0], 3.0, Verdict.GOAL),
        (FASTER, [299.0], [100.0], 2.99, Verdict.PASS),
        (FASTER, [150.0], [100.0], 1.5, Verdict.PASS),
        (FASTER, [149.0], [100.0], 1.49, Verdict.FAIL),
        (CHEAPER, [1.0], [4.0], 0.25, Verdict.GOAL),
        (CHEAPER, [2.4], [4.0], 0.6, Verdict.PASS),
        (CHEAPER, [2.5], [4.0], 0.625, Verdict.FAIL),
    ],
)
def test_bar_and_goal_bound_the_ratio(
    figure: Figure, ours: list[float], theirs: list[float], ratio: float, verdict: Verdict
) -> None:
    row = stats.compare(figure, ours, theirs)
    assert row.ratio == pytest.approx(ratio)
    assert row.verdict is verdict


def test_ratio_is_of_medians_so_that_one_slow_run_does_not_count() -> None:
    row = stats.compare(FASTER, [200.0, 10.0, 210.0], [100.0, 105.0, 5.0])
    assert row.ratio == pytest.approx(2.0)
    assert row.ours is not None
    assert (row.ours.lowest, row.ours.highest, row.ours.count) == (10.0, 210.0, 3)


def test_median_of_an_even_number_of_runs_lies_between_the_middle_two() -> None:
    summary = stats.summarize([1.0, 4.0, 2.0, 9.0])
    assert summary is not None
    assert summary.median == 3.0


@pytest.mark.parametrize(("ours", "theirs"), [([], [1.0]), ([1.0], []), ([1.0], [0.0]), ([math.nan], [1.0])])
def test_nothing_to_compare_with_is_no_verdict(ours: list[float], theirs: list[float]) -> None:
    row = stats.compare(FASTER, ours, theirs)
    assert row.ratio is None
    assert row.verdict is Verdict.NONE


def test_limit_binds_our_own_value_even_without_a_peer() -> None:
    start = Figure("start_s", "start", "s", Better.LOWER, limit=2.0)
    assert stats.compare(start, [1.9], []).verdict is Verdict.PASS
    assert stats.compare(start, [2.1], [6.5]).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("figure", "ours", "verdict"),
    [
        (FASTER, [160.0, 155.0, 149.0], Verdict.UNDECIDED),
        (FASTER, [160.0, 155.0, 150.0], Verdict.PASS),
        (FASTER, [149.0, 120.0, 110.0], Verdict.FAIL),
        (CHEAPER, [61.0, 50.0, 40.0], Verdict.UNDECIDED),
        (CHEAPER, [160.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0], Verdict.PASS),  # one of nine
    ],
)
def test_pairs_on_both_sides_of_a_bar_allow_no_verdict(
    figure: Figure, ours: list[float], verdict: Verdict
) -> None:
    assert stats.compare(figure, ours, [100.0] * len(ours)).verdict is verdict


def test_runs_on_both_sides_of_a_limit_allow_no_verdict() -> None:
    start = Figure("start_s", "start", "s", Better.LOWER, limit=2.0)
    assert stats.compare(start, [1.9, 2.1, 1.8], []).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("figure", "ours", "verdict"),
    [
        (FASTER, [97.0, 99.0, 103.0], Verdict.PASS),
        (FASTER, [96.9, 99.0, 103.0], Verdict.UNDECIDED),
        (FASTER, [90.0, 95.0, 96.9], Verdict.FAIL),
        (CHEAPER, [103.0, 90.0, 99.0], Verdict.PASS),
        (CHEAPER, [103.1, 90.0, 99.0], Verdict.UNDECIDED),
        (CHEAPER, [103.1, 110.0, 140.0], Verdict.FAIL),
    ],
)
def test_a_change_is_judged_by_three_percent(figure: Figure, ours: list[float], verdict: Verdict) -> None:
    paired = stats.pair(ours, [100.0, 100.0, 100.0])
    assert paired is not None
    assert stats.judge_change(figure, paired) is verdict


def test_samples_of_runs_and_of_measures_add_up() -> None:
    samples: stats.Samples = {}
    stats.add_sample(samples, {"a": 1.0, "b": 2.0})
    stats.add_sample(samples, {"a": 3.0})
    stats.merge(samples, {"b": [4.0, 5.0]})
    assert samples == {"a": [1.0, 3.0], "b": [2.0, 4.0, 5.0]}


def test_cpu_per_gb_counts_ten_to_the_ninth_bytes() -> None:
    assert stats.per_gb(2.5, 500_000_000) == pytest.approx(5.0)
    assert math.isnan(stats.per_gb(1.0, 0))


@pytest.mark.parametrize(
    ("count", "cut"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (18, 4), (20, 5)]
)
def test_the_range_of_a_ratio_leaves_out_the_true_one_in_five_of_100_cases(count: int, cut: int) -> None:
    quotients = [1 + number / 100 for number in range(count)]
    paired = stats.pair(quotients[::-1], [1.0] * count)
    assert paired is not None
    assert (paired.lowest, paired.highest) == (quotients[cut], quotients[count - 1 - cut])
    assert paired.count == count


def test_pairs_are_compared_one_by_one() -> None:
    paired = stats.pair([1.1, 11.0, 110.0], [1.0, 10.0, 100.0])
    assert paired is not None
    assert paired.lowest == pytest.approx(1.1)
    assert paired.highest == pytest.approx(1.1)


def test_runs_that_do_not_match_are_not_paired() -> None:
    assert stats.pair([1.0, 2.0], [1.0]) is None
    assert stats.pair([], []) is None
    assert stats.pair([1.0], [0.0]) is None
    assert stats.pair([math.nan], [1.0]) is None

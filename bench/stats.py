"""The arithmetic of a comparison: medians, ratios, bars.  No I/O.

Runs of two servers alternate, so that a slow minute of the machine hits both.  A figure is the median of its runs, a
comparison is the quotient of two medians, and a bar is a bound on that quotient.  The quotients of the single pairs say
whether the runs allow a verdict: where they lie on both sides of the bar, it is undecided.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

GB = 1_000_000_000
MB = 1_000_000
OUTSIDE_SHARE = 0.05
WORSE_SHARE = 0.03  # what a change may cost: a third of what one run differs from the next

Samples = dict[str, list[float]]
"""Field name (with its unit, such as `produce_mb_s`) -> one value per run."""


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"


class Verdict(Enum):
    GOAL = "goal"  # the goal is reached, and with it the bar
    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"  # the runs lie on both sides of the bar
    NONE = "-"  # there is no bar, or nothing to compare with


@dataclass(frozen=True)
class Figure:
    """One line of the report: a field of one measure, and what is asked of Magnetar / its peer."""

    field: str
    label: str
    unit: str
    better: Better
    bar: float | None = None
    goal: float | None = None
    limit: float | None = None  # a bound on Magnetar's own value, whatever the peer does
    against: str | None = None  # compare with this field of Magnetar's, not with the peer

    def meets(self, value: float, bound: float) -> bool:
        return value >= bound if self.better is Better.HIGHER else value <= bound


@dataclass(frozen=True)
class Summary:
    """Median and extremes of the runs of one field."""

    median: float
    lowest: float
    highest: float
    count: int


@dataclass(frozen=True)
class Paired:
    """The median of the quotients ours / theirs of each pair, and a range that holds the true one in 95 of 100 cases
    (sure from six pairs on; with fewer it is the whole range)."""

    median: float
    lowest: float
    highest: float
    count: int


@dataclass(frozen=True)
class Comparison:
    figure: Figure
    ours: Summary | None
    theirs: Summary | None
    ratio: float | None
    paired: Paired | None
    verdict: Verdict


def summarize(values: Sequence[float]) -> Summary | None:
    """None where no run came back with a finite value."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    return Summary(statistics.median(finite), min(finite), max(finite), len(finite))


def ratio_of(ours: Summary | None, theirs: Summary | None) -> float | None:
    """ours / theirs, or None where one is missing or the divisor is 0 (a tool that rounds to 0 ms)."""
    if ours is None or theirs is None or theirs.median == 0:
        return None
    return ours.median / theirs.median


def compare(figure: Figure, ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    left, right = summarize(ours), summarize(theirs)
    ratio = ratio_of(left, right)
    paired = pair(ours, theirs)
    return Comparison(figure, left, right, ratio, paired, judge(figure, left, ratio, paired))


def pair(ours: Sequence[float], theirs: Sequence[float]) -> Paired | None:
    """None where the runs of the two do not match, or no quotient is a number.

    The range is made of the quotients at equal ranks from both ends: how often the true median lies outside it is the
    binomial distribution's to say, whatever the quotients' own is.
    """
    if len(ours) != len(theirs):
        return None
    quotients = sorted(a / b for a, b in zip(ours, theirs, strict=True) if b and math.isfinite(a / b))
    if not quotients:
        return None
    count = len(quotients)
    rank = outside = 0
    while 2 * (outside + math.comb(count, rank)) <= OUTSIDE_SHARE * 2**count:
        outside += math.comb(count, rank)
        rank += 1
    cut = max(rank - 1, 0)
    return Paired(statistics.median(quotients), quotients[cut], quotients[count - 1 - cut], count)


def judge(figure: Figure, ours: Summary | None, ratio: float | None, paired: Paired | None) -> Verdict:
    """The verdict of the medians, if the single runs allow one."""
    if ours is not None and figure.limit is not None:
        if _is_split(figure, ours.lowest, ours.highest, figure.limit):
            return Verdict.UNDECIDED
        if not figure.meets(ours.median, figure.limit):
            return Verdict.FAIL
    if ratio is None or figure.bar is None:
        return Verdict.PASS if ours is not None and figure.limit is not None else Verdict.NONE
    if paired is not None and _is_split(figure, paired.lowest, paired.highest, figure.bar):
        return Verdict.UNDECIDED
    if figure.goal is not None and figure.meets(ratio, figure.goal):
        return Verdict.GOAL
    return Verdict.PASS if figure.meets(ratio, figure.bar) else Verdict.FAIL


def judge_change(figure: Figure, paired: Paired) -> Verdict:
    """Beside another version: FAIL where this one is worse by more than `WORSE_SHARE`, PASS where it is not."""
    bound = 1 - WORSE_SHARE if figure.better is Better.HIGHER else 1 + WORSE_SHARE
    if _is_split(figure, paired.lowest, paired.highest, bound):
        return Verdict.UNDECIDED
    return Verdict.PASS if figure.meets(paired.median, bound) else Verdict.FAIL


def _is_split(figure: Figure, lowest: float, highest: float, bound: float) -> bool:
    return figure.meets(lowest, bound) != figure.meets(highest, bound)


def add_sample(samples: Samples, run: dict[str, float]) -> None:
    for field, value in run.items():
        samples.setdefault(field, []).append(value)


def merge(samples: Samples, more: Samples) -> None:
    for field, values in more.items():
        samples.setdefault(field, []).extend(values)


def per_gb(amount: float, byte_count: float) -> float:
    """`amount` (CPU seconds) for each 10^9 bytes; not a number where nothing was moved."""
    return amount / byte_count * GB if byte_count else math.nan

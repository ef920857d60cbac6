"""What arrives is counted from a fifth on; what does not arrive, or comes twice, is a failed run."""

from collections.abc import Callable, Iterable

import pytest

from bench.arrivals import STALLED_SECONDS_MAX, START_SECONDS_MAX, Arrivals, watch
from bench.process import RunFailed

COUNT = 100


class Carrier:
    """Each look finds the next number of records, `step_s` after the one before; a second costs a tenth of one."""

    def __init__(self, arrived: Iterable[int], step_s: float = 1.0, ends_after: int = 1_000_000) -> None:
        self._arrived = iter(arrived)
        self._step_s = step_s
        self._ends_after = ends_after
        self._looks = 0
        self._there = 0
        self.now = 0.0

    def watched(self) -> Arrivals:
        return watch(
            self._look,
            COUNT,
            lambda: {"cpu": 7.0 + self.now / 10},
            lambda: self._looks < self._ends_after,
            monotonic=lambda: self.now,
            sleep=self._sleep,
        )

    def _look(self) -> int:
        self._looks += 1
        self._there = next(self._arrived, self._there)
        return self._there

    def _sleep(self, _seconds: float) -> None:
        self.now += self._step_s


def test_the_start_does_not_count() -> None:
    found = Carrier([0, 0, 0, 0, 19, 30, 60, 100]).watched()
    assert (found.records, found.seconds) == (70, 2.0)
    assert found.spent == {"cpu": pytest.approx(0.2)}


def test_a_carrier_that_rests_is_waited_for() -> None:
    found = Carrier([20, 50, *[50] * 10, 100], step_s=STALLED_SECONDS_MAX / 11).watched()
    assert found.records == 80


def test_a_carrier_that_starts_is_waited_for_longer() -> None:
    assert Carrier([*[0] * 10, 20, 100], step_s=START_SECONDS_MAX / 11).watched().records == 80


@pytest.mark.parametrize(
    ("carrier", "why"),
    [
        (lambda: Carrier([0], step_s=START_SECONDS_MAX), "0 of 100 records have arrived, and no more"),
        (lambda: Carrier([0, 40, 99], step_s=50.0), "99 of 100 records have arrived, and no more"),
        (lambda: Carrier([0, 40, 40, 40, 40], ends_after=3), "40 of 100 records have arrived, and no more"),
        (lambda: Carrier([0, 40, 101]), "101 records have arrived, and there are 100"),
        (lambda: Carrier([0, 61]), "61 of 100 records had arrived before they could be counted"),
    ],
)
def test_what_cannot_be_counted_is_a_failed_run(carrier: Callable[[], Carrier], why: str) -> None:
    with pytest.raises(RunFailed, match=why):
        carrier().watched()

"""What the runs do not decide is repeated, and nothing else."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import measures, stats
from bench.client import Librdkafka
from bench.measures import Effort, Tools
from bench.runner import Result, Runner
from bench.stats import Better, Figure

EFFORT = Effort(bulk_bytes=1, single_count=1, latency_seconds=1, pairs=3, pairs_max=9)
SPEED = Figure("mb_s", "speed", "MB/s", Better.HIGHER, bar=1.5)
KAFKAS_MB_S = 100.0


class Told(Runner):
    """Runs that come out as they are told to; Kafka's are always the same."""

    def __init__(self, ours: Sequence[float], effort: Effort, work: Path, base: Path | None = None) -> None:
        names = ("magnetar", "kafka" if base is None else "base")
        tools = Tools(Librdkafka(Path("none")), None)
        super().__init__(names, None, None, tools, effort, work, lambda _: None, base=base)
        self.ours = iter(ours)

    def _run_once(self, name: str, result: Result, pair: int) -> None:
        value = next(self.ours) if name == "magnetar" else KAFKAS_MB_S
        if value < 0:
            result.failures[name] = "it did not start"
        else:
            stats.merge(result.samples.setdefault(name, {}), {SPEED.field: [value]})


def _pairs(
    ours: Sequence[float], work: Path, effort: Effort = EFFORT, *, repeated: bool = True, base: bool = False
) -> int:
    measure = measures.Measure("told", "told", (SPEED,), lambda *_: {}, repeated=repeated)
    with Told(ours, effort, work, work / "magnetar" if base else None) as runner:
        return len(runner.run(measure).values("magnetar", SPEED.field))


def test_runs_that_agree_are_enough(tmp_path: Path) -> None:
    assert _pairs([160.0, 170.0, 155.0, 1.0], tmp_path) == 3
    assert _pairs([120.0, 130.0, 140.0, 1.0], tmp_path) == 3


def test_undecided_pairs_are_repeated_until_one_out_of_line_does_not_count(tmp_path: Path) -> None:
    assert _pairs([140.0, *[160.0] * 20], tmp_path) == 9


def test_a_bar_that_stays_undecided_ends_with_the_last_pair(tmp_path: Path) -> None:
    assert _pairs([140.0, 160.0] * 20, tmp_path) == 9


def test_beside_another_magnetar_three_percent_decide(tmp_path: Path) -> None:
    assert _pairs([98.0, 99.0, 101.0], tmp_path, base=True) == 3
    assert _pairs([96.0, 99.0, 101.0] * 20, tmp_path, base=True) == 9


@pytest.mark.parametrize("effort", [measures.QUICK, Effort(1, 1, 1, pairs=3, pairs_max=3)])
def test_who_asks_for_few_pairs_gets_few(tmp_path: Path, effort: Effort) -> None:
    assert _pairs([140.0, *[160.0] * 20], tmp_path, effort) == 3


def test_a_measure_that_runs_once_is_not_repeated(tmp_path: Path) -> None:
    assert _pairs([140.0, 160.0], tmp_path, repeated=False) == 1


def test_after_a_failure_nothing_is_repeated(tmp_path: Path) -> None:
    assert _pairs([140.0, 160.0, -1.0, 160.0], tmp_path) == 2

"""A short run of the flights into targets that need no Java, with a kill of worker, server and each target."""

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.soak import flights
from tests.soak.__main__ import PARTS
from tests.soak.flights_targets import TARGETS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(1800),
]
SEED = 4711
NAMES = ("magnetar", "kinesis")


def test_a_short_run_with_kills_has_every_flight_in_order(tmp_path: Path) -> None:
    print(flights.run(NAMES, 3_000, len(flights.OURS) + len(NAMES), SEED, tmp_path))


def test_each_is_killed_before_one_is_killed_again() -> None:
    killed = list(islice(flights.in_turn(("worker", "server", "a", "b"), random.Random(SEED)), 8))
    assert sorted(killed[:4]) == sorted(killed[4:]) == ["a", "b", "server", "worker"]


def test_soak_runs_the_flights_into_each_target() -> None:
    assert {part.removeprefix("flights-") for part in PARTS if part.startswith("flights-")} == TARGETS.keys()

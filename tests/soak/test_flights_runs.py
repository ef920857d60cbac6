"""Short runs of the flights into targets that need no Java, with a kill of worker, server and target each."""

from pathlib import Path

import pytest

from tests.soak import flights
from tests.soak.__main__ import PARTS
from tests.soak.flights_targets import TARGETS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(1800),
]
SEED = 4711


@pytest.mark.parametrize("target", ["magnetar", "kinesis"])
def test_a_short_run_with_kills_has_every_flight_in_order(tmp_path: Path, target: str) -> None:
    print(flights.run(target, 3_000, len(flights.KINDS), SEED, tmp_path))


def test_soak_runs_the_flights_into_each_target() -> None:
    assert {part.removeprefix("flights-") for part in PARTS if part.startswith("flights-")} == TARGETS.keys()

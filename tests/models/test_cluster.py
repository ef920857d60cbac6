"""Brokers that take each other's logs keep the promises of one log, and the walks find brokers that do not."""

import pytest

from .cluster import BUGS, run

SEEDS = 100
FINDS_WITHIN = 100
FOUND = (2570, 2931, 3797, 5436)
"""Seeds that have found a fault: an owner that was deposed, and ledgers that were to begin where appends had failed."""


@pytest.mark.parametrize("first", [*range(0, SEEDS, 10)])
def test_whatever_happens_to_brokers_their_logs_stay_whole(first: int) -> None:
    acknowledged = sum(
        len(history.acknowledged)
        for seed in range(first, first + 10)
        for history in run(seed).histories.values()
    )
    assert acknowledged > 10 * 20, "the walks must get somewhere"


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_walk_has_found_stays_mended(seed: int) -> None:
    assert any(history.acknowledged for history in run(seed).histories.values())


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    for seed in range(FINDS_WITHIN):
        try:
            run(seed, bug)
        except AssertionError:
            return
    pytest.fail(f"{FINDS_WITHIN} walks did not find that {BUGS[bug]}")


def test_a_walk_follows_from_its_seed() -> None:
    first, second = run(3), run(3)
    for name, history in first.histories.items():
        assert history.acknowledged == second.histories[name].acknowledged

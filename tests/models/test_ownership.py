"""Brokers that own bundles keep the promises of ownership and of logs, and the walks find brokers that do not."""

import pytest

from .ownership import BUGS, run

SEEDS = 100
FINDS_WITHIN = 300


@pytest.mark.parametrize("first", [*range(0, SEEDS, 10)])
def test_whatever_happens_to_brokers_each_bundle_has_one_owner(first: int) -> None:
    acknowledged = sum(
        len(history.acknowledged)
        for seed in range(first, first + 10)
        for history in run(seed).histories.values()
    )
    assert acknowledged > 10 * 30, "the walks must get somewhere"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_of_ownership_is_found(bug: str) -> None:
    for seed in range(FINDS_WITHIN):
        try:
            run(seed, bug)
        except AssertionError:
            return
    pytest.fail(f"{FINDS_WITHIN} walks did not find that {BUGS[bug]}")


def test_a_walk_of_owners_follows_from_its_seed() -> None:
    first, second = run(3), run(3)
    for name, history in first.histories.items():
        assert history.acknowledged == second.histories[name].acknowledged

"""A short run of mixed transactions, on real servers with real clients, and a bug that it has to find."""

import pytest

from tests.integration.java_tools import needs_java
from tests.soak import mixed
from tests.soak.mixed_history import Broken

pytestmark = [*needs_java, pytest.mark.crash]
MINUTES = 0.2  # `make soak` has an hour of them
SEED = 4711


def test_a_short_run_of_mixed_transactions_with_kills_keeps_everything() -> None:
    print(mixed.run(MINUTES, SEED))


@pytest.mark.soak  # what the checker finds in a history, test_mixed_history.py tries without clients
def test_a_planted_bug_is_found() -> None:
    with pytest.raises(Broken, match=r"is (aborted|open), and \d+ of its records are visible"):
        mixed.run(0.05, SEED, "aborted-visible")

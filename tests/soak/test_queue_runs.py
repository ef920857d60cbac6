"""A short run of the queue of both protocols, on a real server with real clients, and a bug that it has to find."""

import pytest

from tests.integration.java_tools import needs_java
from tests.soak import mixed_queue
from tests.soak.mixed_history import Broken

pytestmark = [*needs_java, pytest.mark.crash]
MESSAGES = 20_000
KILLS = 6
PAUSE_S = 1.5
SEED = 4711


@pytest.mark.soak  # what the check finds in a history, test_queue_history.py tries without clients
def test_a_short_run_of_the_queue_with_kills_keeps_what_is_promised() -> None:
    print(mixed_queue.run(MESSAGES, KILLS, SEED, pause_s=PAUSE_S))


def test_a_planted_bug_of_the_queue_is_found() -> None:
    with pytest.raises(Broken, match=r"is lost: nobody has accepted it"):
        mixed_queue.run(2_000, 1, SEED, "release-lost", pause_s=PAUSE_S)

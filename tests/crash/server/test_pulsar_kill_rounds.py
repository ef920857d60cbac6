"""A few rounds of `kill -9` under Pulsar clients; `python -m tests.crash.server.pulsar_rounds` is the long run."""

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.crash.server.killing import Broken
from tests.crash.server.pulsar_rounds import SETTINGS, Rounds, check_position

ROUNDS = 4


@pytest.mark.crash
@pytest.mark.parametrize("seed", [20261121])
def test_what_pulsar_clients_were_told_survives_kill_9(seed: int) -> None:
    with MagnetarProcess(settings=SETTINGS) as server:
        line = Rounds(server, seed).run(ROUNDS, print)
    assert line.startswith(f"{ROUNDS} rounds, ")


def test_the_check_sees_a_position_ahead_of_acknowledgement() -> None:
    check_position("shared", 0, 3, {0, 1, 2, 5})
    with pytest.raises(Broken, match="3 was never acknowledged"):
        check_position("shared", 0, 4, {0, 1, 2, 5})

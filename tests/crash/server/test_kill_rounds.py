"""A few rounds of `kill -9` with each test run; `python -m tests.crash.server.rounds` is the long run."""

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.crash.server.killing import Broken, check_payload
from tests.crash.server.rounds import SETTINGS, Rounds

ROUNDS = 4


@pytest.mark.crash
@pytest.mark.parametrize("seed", [20261121, 7])
def test_what_was_acknowledged_survives_kill_9(seed: int) -> None:
    with MagnetarProcess(settings=SETTINGS) as server:
        line = Rounds(server, seed).run(ROUNDS, print)
    assert line.startswith(f"{ROUNDS} rounds, ")


def test_the_check_sees_a_wrong_and_a_damaged_record() -> None:
    whole = b"32717477 3 17 padding"
    check_payload(whole, 3, 17)
    with pytest.raises(Broken, match="holds record 17 of 3"):
        check_payload(whole, 3, 18)
    with pytest.raises(Broken, match="is damaged"):
        check_payload(whole.replace(b"pad", b"pat"), 3, 17)

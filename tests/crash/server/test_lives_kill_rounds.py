"""A few rounds of `kill -9` while topics are deleted and made again; `python -m tests.crash.server.lives_rounds` is the
long run.
"""

from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.crash.server import lives
from tests.crash.server.killing import Broken
from tests.crash.server.lives import Life
from tests.crash.server.lives_rounds import SETTINGS, Rounds

ROUNDS = 3


@pytest.mark.crash
def test_topics_that_are_made_again_survive_kill_9() -> None:
    with MagnetarProcess(settings=SETTINGS) as server:
        line = Rounds(server, 20261122).run(ROUNDS, print)
    assert line.startswith(f"{ROUNDS} rounds, ")


def records(*found: tuple[int, int], life: int = 2) -> list[tuple[int, int, int]]:
    return [(offset, life, number) for offset, number in found]


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (records((0, 0)), "has 1 records, 2 were acknowledged"),
        (records((0, 0), (1, 0), (2, 1)), "has record 0 at offset 1 where 1 must be"),
        (records((0, 0), (1, 1), (2, 2), (3, 3)), "has 4 records, 3 were sent"),
        (records((0, 0), life=1), "offset 0 holds record 0 of life 1"),
    ],
)
def test_the_check_of_records_sees(found: Any, complaint: str) -> None:
    life = Life(2, "created", sent=[3, 0], acked=[2, 0])
    lives._check_records("here", life, 0, records((0, 0), (1, 1), (2, 2)), quiet=False, whole=True)
    with pytest.raises(Broken, match=complaint):
        lives._check_records("here", life, 0, found, quiet=False, whole=True)


@pytest.mark.parametrize(
    ("committed", "everything", "complaint"),
    [
        ([0], [0, 1, 2, 3], "1 of 2 records of transaction 1, which is committed, are visible"),
        ([0, 1, 2], [0, 1, 2, 3], "which is aborted, are visible to readers of committed data"),
        ([0, 1, 3], [0, 1, 2, 3], "1 of 2 records of transaction 3, which is committing, are visible"),
        ([0, 1], [0, 1, 2, 9], r"never sent: \[9\]"),
        ([0, 1], [0, 1, 1], "twice"),
    ],
)
def test_the_check_of_transactions_sees(committed: list[int], everything: list[int], complaint: str) -> None:
    life = Life(
        2,
        "created",
        transactions={
            1: ("committed", [(0, 0), (0, 1)]),
            2: ("aborted", [(0, 2)]),
            3: ("committing", [(0, 3), (0, 4)]),
        },
    )

    def check(committed: list[int], everything: list[int]) -> None:
        lives._check_transactions(
            "here",
            life,
            0,
            records(*((each, each) for each in committed)),
            records(*((each, each) for each in everything)),
            whole=True,
        )

    check([0, 1], [0, 1, 2, 3])
    check([0, 1, 3, 4], [0, 1, 2, 3, 4])
    with pytest.raises(Broken, match=complaint):
        check(committed, everything)

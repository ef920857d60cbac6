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


@pytest.fixture
def _two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even records have one key and odd ones another; record 5 is a tombstone."""
    monkeypatch.setattr(lives, "key_of", lambda number: b"%d" % (number % 2))
    monkeypatch.setattr(lives, "is_tombstone", lambda number: number == 5)


@pytest.mark.usefixtures("_two_keys")
@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([0, 1, 2, 3, 4, 5], None),
        ([1, 4, 5], None),
        ([4], None),
        ([5], "has record -1 as the last one of b'0', 4 was acknowledged"),
        ([2, 5], "has record 2 as the last one of b'0', 4 was acknowledged"),
        ([3, 4], "has record 3 as the last one of b'1', 5 was acknowledged"),
        ([4, 5, 6], "has record 6, 7 were sent, 6 acknowledged"),
    ],
)
def test_the_check_of_compacted_topics_sees(numbers: list[int], complaint: str | None) -> None:
    life = Life(2, "created", sent=[7, 0], acked=[6, 0])
    found = records(*((number, number) for number in numbers))
    if complaint is None:
        lives._check_compacted("here", life, 0, found, quiet=True, whole=True)
        return
    with pytest.raises(Broken, match=complaint):
        lives._check_compacted("here", life, 0, found, quiet=True, whole=True)


def test_the_check_of_compacted_topics_sees_records_at_other_offsets() -> None:
    life = Life(2, "created", sent=[9, 0], acked=[9, 0])
    with pytest.raises(Broken, match="out of place"):
        lives._check_compacted("here", life, 0, records((1, 0)), quiet=True, whole=False)


@pytest.mark.usefixtures("_two_keys")
@pytest.mark.parametrize(
    ("numbers", "is_whole"),
    [([0, 1, 2], True), ([1, 2], True), ([0, 1], False), ([2], False), ([0, 2], False)],
)
def test_the_check_of_compacted_transactions_sees(numbers: list[int], is_whole: bool) -> None:
    transactions = {1: ("committed", [(0, 0), (0, 1)]), 2: ("committed", [(0, 2)])}
    life = Life(2, "created", transactions=transactions)
    found = records(*((number, number) for number in numbers))
    if is_whole:
        lives._check_transactions("here", life, 0, found, found, whole=True, compacted=True)
        return
    with pytest.raises(Broken, match="are visible"):
        lives._check_transactions("here", life, 0, found, found, whole=True, compacted=True)


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

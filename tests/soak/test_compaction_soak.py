"""What the check of compacted topics sees, and a short run on a real server, with a bug that it has to find."""

import argparse

import numpy as np
import pytest

from tests.soak import compaction
from tests.soak.compaction import Found, check, key_of, value_of
from tests.soak.mixed_history import Broken

KEYS = 3
SENT = np.array([0, 1, 0, 2, 1, 0], np.int32)
SEED = 4711


def sent(*numbers: int) -> list[Found]:
    return [
        Found(number, number, key_of(int(SENT[number])), value_of(int(SENT[number]), number))
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        (sent(0, 1, 2, 3, 4, 5), ""),
        (sent(3, 4, 5), ""),
        (sent(1, 3, 4, 5), ""),
        (sent(3, 4), "key 0 has record -1 as its last one, 5 was acknowledged"),
        (sent(2, 3, 4), "key 0 has record 2 as its last one, 5 was acknowledged"),
        (sent(4, 3, 5), "offset 3 behind 4"),
        (sent(3, 4, 4, 5), "offset 4 behind 4"),
        ([*sent(3, 4), sent(5)[0]._replace(offset=6)], "offset 6 behind 4 has record 5"),
        ([*sent(3, 4, 5), Found(6, 6, b"", b"")], "offset 6 behind 5 has record 6 of 6"),
        ([sent(3)[0]._replace(value=b"other"), *sent(4, 5)], "at offset 3 is not the one that was sent"),
        ([sent(3)[0]._replace(key=key_of(1)), *sent(4, 5)], "at offset 3 is not the one that was sent"),
    ],
)
def test_the_check_of_compacted_topics_sees(records: list[Found], complaint: str) -> None:
    if not complaint:
        assert check(records, SENT, KEYS) == len(records)
        return
    with pytest.raises(Broken, match=complaint):
        check(records, SENT, KEYS)


def test_a_key_whose_last_record_is_a_tombstone_may_be_gone() -> None:
    number = next(number for number in range(1000) if value_of(0, number) is None)
    keys_of = np.zeros(number + 1, np.int32)
    assert check([], keys_of, 1) == 0
    with pytest.raises(Broken, match=f"has record 0 as its last one, {number}"):
        check([Found(0, 0, key_of(0), value_of(0, 0))], keys_of, 1)


OPTIONS = argparse.Namespace(megabytes=32, keys=5_000, kills=3, ratio=0.0, alone=1.0)


@pytest.mark.soak  # `make test` has compacted topics of real clients in tests/integration/compaction
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_run_of_compaction_with_kills_keeps_the_last_record_of_each_key() -> None:
    with compaction.started() as server:
        print(compaction.run(server, OPTIONS, SEED))


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_planted_bug_of_compaction_is_found() -> None:
    with (
        compaction.started("entry-lost") as server,
        pytest.raises(Broken, match="as its last one"),
    ):
        compaction.run(server, OPTIONS, SEED)

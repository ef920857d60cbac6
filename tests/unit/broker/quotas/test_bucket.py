"""A rate is kept on average, whatever is used and whenever, by clients that wait as long as they are told to."""

import random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.quotas.bucket import Bucket

RATE = 100.0
BURST_S = 10
AMOUNTS = st.integers(1, 5_000)
PAUSES = st.floats(0, 30)


def test_ten_seconds_worth_comes_at_once() -> None:
    bucket = Bucket(RATE, BURST_S, 0.0)
    assert bucket.use(BURST_S * RATE, 0.0) == 0
    assert bucket.use(RATE, 0.0) == 1
    assert bucket.use(RATE, 1.0) == 1
    assert bucket.use(0, 2.0) == 0


def test_nothing_is_used_while_something_is_owed() -> None:
    bucket = Bucket(RATE, BURST_S, 0.0)
    assert bucket.use_unless_owing(900, 0.0) == 0
    assert bucket.use_unless_owing(300, 0.0) == 0
    assert bucket.use_unless_owing(1, 0.0) == 2
    assert bucket.use_unless_owing(300, 1.0) == 1
    assert bucket.use_unless_owing(5_000, 2.0) == 0
    assert bucket.use_unless_owing(1, 2.0) == 50


def test_large_pieces_have_their_turn_beside_small_ones() -> None:
    bucket, now_s, used = Bucket(RATE, BURST_S, 0.0), 0.0, {1_000: 0, 10: 0}
    chance = random.Random(1)
    while now_s < 3_600:
        # Both were told to wait until now; either may be the first.
        for amount in chance.sample((10, 1_000), 2):
            if not bucket.use_unless_owing(amount, now_s):
                used[amount] += amount
        now_s += max(bucket.owed_s(now_s), 0.001)
    assert used[1_000] > 0 < used[10]


def test_new_rate_does_not_forget_what_was_used() -> None:
    bucket = Bucket(RATE, BURST_S, 0.0)
    assert bucket.use(3_000, 0.0) == 20
    bucket.change_rate(2 * RATE)
    assert bucket.use(0, 0.0) == 5


@given(st.integers(0, 5_000), st.floats(1e-6, 1))
def test_lower_rate_holds_nobody_for_longer_than_before(used: int, share: float) -> None:
    bucket = Bucket(RATE, BURST_S, 0.0)
    owed_s = bucket.use(used, 0.0)
    bucket.change_rate(RATE * share)
    assert abs(bucket.owed_s(0.0) - owed_s) < 1e-6
    assert abs(bucket.left(0.0) - (RATE * BURST_S - used) * share) < 1e-6


@given(st.lists(st.tuples(AMOUNTS, PAUSES), min_size=1, max_size=50))
def test_average_of_what_is_used(uses: list[tuple[int, float]]) -> None:
    bucket, now_s, used, last = Bucket(RATE, BURST_S, 0.0), 0.0, 0, 0
    for amount, pause_s in uses:
        # All but the last came after nothing was owed any more.
        assert used - last <= RATE * (now_s + BURST_S) + 1e-6
        used, last = used + amount, amount
        now_s += bucket.use(amount, now_s) + pause_s


@given(st.lists(st.tuples(AMOUNTS, PAUSES), min_size=1, max_size=50))
def test_client_that_asks_again_in_time_is_let_through(uses: list[tuple[int, float]]) -> None:
    bucket, now_s = Bucket(RATE, BURST_S, 0.0), 0.0
    for amount, pause_s in uses:
        wait_s = bucket.use_unless_owing(amount, now_s)
        if wait_s:
            now_s += wait_s + 1e-6
            assert bucket.use_unless_owing(amount, now_s) == 0
        now_s += pause_s

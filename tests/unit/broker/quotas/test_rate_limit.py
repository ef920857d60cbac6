"""What may pass in a period: messages, bytes, or both."""

import pytest

from magnetar.broker.quotas.model import Rate
from magnetar.broker.quotas.rate_limit import RateLimit, at_rate
from magnetar.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("rate", "owed_s"),
    [
        (Rate(10, 0), 2),
        (Rate(0, 100), 4),
        (Rate(10, 100), 4),
        (Rate(10, 1000), 2),
        (Rate(30, 500), 0),
        (Rate(10, 0, period_s=10), 20),
        (Rate(30, 0, period_s=10), 0),
    ],
)
def test_the_limit_that_is_further_exceeded_counts(rate: Rate, owed_s: float) -> None:
    clock = FakeClock()
    limit = RateLimit(rate, clock)
    assert limit.owed_s() == 0
    limit.used(29, 499)
    limit.used(1, 1)
    assert limit.owed_s() == owed_s
    clock.advance(owed_s / 2)
    assert limit.owed_s() == owed_s / 2
    clock.advance(owed_s / 2)
    assert limit.owed_s() == 0


def test_a_limit_keeps_what_was_used_until_its_rate_is_another() -> None:
    clock = FakeClock()
    limit = at_rate(Rate(10, 0), None, RateLimit, clock)
    assert limit is not None
    assert at_rate(Rate(10, 0), limit, RateLimit, clock) is limit
    other = at_rate(Rate(10, 1), limit, RateLimit, clock)
    assert other is not None
    assert other.rate == Rate(10, 1)
    assert at_rate(None, limit, RateLimit, clock) is None

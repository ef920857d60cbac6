"""What may come into a partition in a second: messages, bytes, or both."""

import pytest

from magnetar.broker.quotas.model import PublishRate
from magnetar.broker.quotas.publish_limit import PublishLimit
from magnetar.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("rate", "owed_s"),
    [
        (PublishRate(10, 0), 2),
        (PublishRate(0, 100), 4),
        (PublishRate(10, 100), 4),
        (PublishRate(10, 1000), 2),
        (PublishRate(30, 500), 0),
    ],
)
def test_the_limit_that_is_further_exceeded_counts(rate: PublishRate, owed_s: float) -> None:
    clock = FakeClock()
    limit = PublishLimit(rate, clock)
    assert limit.owed_s() == 0
    limit.published(29, 499)
    limit.published(1, 1)
    assert limit.owed_s() == owed_s
    clock.advance(owed_s / 2)
    assert limit.owed_s() == owed_s / 2
    clock.advance(owed_s / 2)
    assert limit.owed_s() == 0

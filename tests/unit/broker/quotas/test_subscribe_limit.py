"""One consumer may subscribe so often in a period, and another one's times do not count for it."""

import pytest

from magnetar.broker.quotas import subscribe_limit
from magnetar.broker.quotas.model import SubscribeRate
from magnetar.broker.quotas.subscribe_limit import SubscribeLimit
from magnetar.testing.clock import FakeClock


def test_a_consumer_may_subscribe_so_often_in_a_period() -> None:
    clock = FakeClock()
    limit = SubscribeLimit(SubscribeRate(2, 30), clock)
    assert [limit.admit("a") for _ in range(4)] == [True, True, False, False]
    assert limit.admit("b")
    clock.advance(29)
    assert not limit.admit("a")
    clock.advance(1)
    assert [limit.admit("a") for _ in range(3)] == [True, True, False]


def test_consumers_that_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe_limit, "CONSUMERS_MAX", 3)
    limit = SubscribeLimit(SubscribeRate(1, 30), FakeClock())
    assert all(limit.admit(number) for number in range(10))
    assert [limit.admit(number) for number in (9, 8, 7)] == [False] * 3
    assert len(limit._counts) == 3

"""A few rounds of the random walk (`walk.py`) in every test run; each fault that it found keeps its seed."""

import asyncio
import random

import pytest

from magnetar.broker.subscriptions.model import SubscriptionType

from .walk import Walk


@pytest.mark.parametrize("kind", list(SubscriptionType), ids=lambda kind: kind.name)
def test_no_message_is_lost_and_none_comes_after_its_acknowledgement(kind: SubscriptionType) -> None:
    for _ in range(5):
        seed = random.randrange(1 << 32)
        try:
            asyncio.run(Walk(kind, seed).run())
        except BaseException as error:
            error.add_note(f"Walk({kind}, {seed})")
            raise

"""A broker that was never started and has no disk: enough for what HTTP says about it."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.clock import SystemClock
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.metadata import MemoryMetadataStore


@pytest.fixture
def make_broker() -> Callable[[], Broker]:
    """To be called inside the event loop."""
    no_ledgers: Any = None  # no test appends
    return lambda: Broker(
        BrokerSettings(), no_ledgers, MemoryMetadataStore(), SystemClock(), Nodes([Node(1)])
    )

"""One server for each module of client tests.

`MAGNETAR_TEST_BOOTSTRAP=host:port` runs them against a broker that is already there instead: this is how
the tests themselves were proven, on Apache Kafka with `SETTINGS`.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from magnetar.testing.server import MagnetarProcess

SETTINGS: Final = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "400",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if given := os.environ.get("MAGNETAR_TEST_BOOTSTRAP"):
        yield given
        return
    with MagnetarProcess(settings=SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """Names of topics and groups that no earlier run on the same broker has used."""
    number = itertools.count()
    token = os.urandom(4).hex()
    return lambda what: f"{what}-{token}-{next(number)}"

"""One server for each module of client tests.

`MAGNETAR_TEST_BOOTSTRAP=host:port` runs them against a broker that is already there instead: this is how
the tests themselves were proven, on Apache Kafka (`num.partitions=4`,
`group.min.session.timeout.ms=100`).
"""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from magnetar.testing.server import MagnetarProcess


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if given := os.environ.get("MAGNETAR_TEST_BOOTSTRAP"):
        yield given
        return
    settings = {
        "num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
    }
    with MagnetarProcess(settings=settings) as server:
        yield server.bootstrap


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """Names of topics and groups that no earlier run on the same broker has used."""
    number = itertools.count()
    token = os.urandom(4).hex()
    return lambda what: f"{what}-{token}-{next(number)}"

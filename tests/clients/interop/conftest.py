"""One server with both doors for each module of interop tests."""

from collections.abc import Iterator

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.clients.interop.interop_doors import Doors


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    settings = {
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
    }
    with MagnetarProcess(settings=settings) as server:
        yield Doors(server.bootstrap, server.pulsar_url, server.http_url)

"""What `make bench` sends to functions arrives, is counted, and comes back with its own delay."""

import pytest

from bench.arrivals import arrived_in
from bench.function_load import delays, fill, make
from bench.process import RunFailed
from bench.pulsar_client import Addresses
from magnetar.testing.server import MagnetarProcess

pytestmark = pytest.mark.clients

RATE, SECONDS, WARM_UP_SECONDS = 100, 1, 1


def test_messages_of_the_bench_arrive_and_are_timed() -> None:
    with MagnetarProcess() as server:
        where = Addresses(server.pulsar_url, server.http_url)
        make(where, "backlog", "echo")
        arrived = arrived_in(server.bootstrap, "backlog", 1)
        assert arrived() == 0
        fill(where, "backlog", size=100, count=5_000)
        assert arrived() == 5_000
        # A topic that is read as it was written: a function would stand between the two.
        found = delays(
            where, "echo", "echo", size=100, rate=RATE, warm_up_seconds=WARM_UP_SECONDS, seconds=SECONDS
        )
        assert len(found) == RATE * SECONDS
        assert min(found) > 0
        with pytest.raises(RunFailed, match="the end of topic none is not known"):
            arrived_in(server.bootstrap, "none", 1)()

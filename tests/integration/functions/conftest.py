"""One server for each file of tests of functions."""

from collections.abc import Iterator

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import SETTINGS, Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with MagnetarProcess(settings=SETTINGS) as server:
        yield Worker(server)

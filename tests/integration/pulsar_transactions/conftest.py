"""One Java client per module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess

from .java_transactions import JavaTransactions


@pytest.fixture(scope="module")
def java(server: MagnetarProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTransactions]:
    log: Path = tmp_path_factory.mktemp("java") / "log"
    with JavaTransactions(server.pulsar_url, log) as client:
        yield client

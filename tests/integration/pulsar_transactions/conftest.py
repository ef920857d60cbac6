"""One server and one Java client per module; every test has topics of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess

from .java_transactions import JavaTransactions


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as running:
        yield running
        assert "Traceback" not in running.log, running.log[-5000:]


@pytest.fixture(scope="module")
def java(server: MagnetarProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTransactions]:
    log: Path = tmp_path_factory.mktemp("java") / "log"
    with JavaTransactions(server.pulsar_url, log) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(char if char.isalnum() else "-" for char in request.node.name)[:100]

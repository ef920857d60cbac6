"""A server for each module that starts none of its own, and a topic for each test."""

from collections.abc import Iterator

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import KafkaTools


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as running:
        yield running
        assert "Traceback" not in running.log, running.log[-5000:]


@pytest.fixture
def kafka_tools(server: MagnetarProcess) -> Iterator[KafkaTools]:
    with KafkaTools(server.bootstrap) as tools:
        yield tools


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """Of this test's own."""
    return "".join(char if char.isalnum() else "-" for char in request.node.name)[:100]


@pytest.fixture
def topic(topic_name: str) -> str:
    """One that the first client makes that uses it."""
    return topic_name

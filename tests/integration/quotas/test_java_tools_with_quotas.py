"""Kafka's own tools set quotas, show them, and meet them."""

from collections.abc import Iterator

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import PEERS, needs_java, run

pytestmark = needs_java


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        yield one
        assert "Traceback" not in one.log


def configs(server: MagnetarProcess, *arguments: str, code: int = 0) -> str:
    return _tool(server, "kafka.admin.ConfigCommand", *arguments, code=code)


def create(server: MagnetarProcess, topic: str, code: int = 0) -> str:
    return _tool(server, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, code=code)


def _tool(server: MagnetarProcess, name: str, *arguments: str, code: int) -> str:
    return run(
        [str(PEERS / "kafka"), "tool", name, "--bootstrap-server", server.bootstrap, *arguments], code=code
    )


def test_partitions_that_are_made(server: MagnetarProcess) -> None:
    default = ["--entity-type", "users", "--entity-default"]
    configs(server, "--alter", "--add-config", "controller_mutation_rate=0.0005", *default)
    told = configs(server, "--describe", *default)
    assert "controller_mutation_rate=5.0E-4" in told
    assert "Created topic first." in create(server, "first")
    assert "The throttling quota has been exceeded" in create(server, "second", code=1)
    configs(server, "--alter", "--delete-config", "controller_mutation_rate", *default)
    assert "Created topic second." in create(server, "second")

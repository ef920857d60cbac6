"""Kafka's own tools set quotas, show them, and meet them."""

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_kafka

pytestmark = needs_java


def configs(server: MagnetarProcess, *arguments: str, code: int = 0) -> str:
    return run_kafka(server, "kafka.admin.ConfigCommand", *arguments, code=code)


def create(server: MagnetarProcess, topic: str, code: int = 0) -> str:
    return run_kafka(server, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, code=code)


def test_partitions_that_are_made(server: MagnetarProcess) -> None:
    default = ["--entity-type", "users", "--entity-default"]
    configs(server, "--alter", "--add-config", "controller_mutation_rate=0.0005", *default)
    told = configs(server, "--describe", *default)
    assert "controller_mutation_rate=5.0E-4" in told
    assert "Created topic first." in create(server, "first")
    assert "The throttling quota has been exceeded" in create(server, "second", code=1)
    configs(server, "--alter", "--delete-config", "controller_mutation_rate", *default)
    assert "Created topic second." in create(server, "second")

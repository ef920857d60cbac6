"""Kafka's own tools set quotas, show them, and meet them."""

from tests.integration.java_tools import KafkaTools, needs_java

pytestmark = needs_java


def test_partitions_that_are_made(kafka_tools: KafkaTools) -> None:
    def configs(*arguments: str) -> str:
        return kafka_tools.run("kafka.admin.ConfigCommand", *arguments)

    def create(topic: str, code: int = 0) -> str:
        return kafka_tools.run("org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, code=code)

    default = ["--entity-type", "users", "--entity-default"]
    configs("--alter", "--add-config", "controller_mutation_rate=0.0005", *default)
    told = configs("--describe", *default)
    assert "controller_mutation_rate=5.0E-4" in told
    assert "Created topic first." in create("first")
    assert "The throttling quota has been exceeded" in create("second", code=1)
    configs("--alter", "--delete-config", "controller_mutation_rate", *default)
    assert "Created topic second." in create("second")

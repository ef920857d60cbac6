"""Kafka's and Pulsar's own tools at a server with `--secure`, by its files as they are."""

from collections.abc import Iterator

import pytest

from tests.class_archives import kafka_tool, pulsar_tool
from tests.integration.java_tools import KafkaTools, needs_java, run
from tests.peers import installed

from .test_secure import Safe, properties

pytestmark = needs_java


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    one = Safe(tmp_path_factory.mktemp("data"))
    with one.server:
        yield one


def test_kafkas_tools_take_client_properties(safe: Safe) -> None:
    file = safe.folder / "client.properties"
    bootstrap = properties(file)["bootstrap.servers"]
    with KafkaTools(bootstrap) as tools:
        topics = ("org.apache.kafka.tools.TopicCommand", "--command-config", str(file))
        tools.run(*topics, "--create", "--topic", "by-java")
        assert "by-java" in tools.run(*topics, "--list").split()
        produce = [*kafka_tool(), "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap]
        run([*produce, "--command-config", str(file), "--topic", "by-java"], "hello\n")
        consume = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--command-config", str(file))
        consumed = tools.run(*consume, "--topic", "by-java", "--from-beginning", "--max-messages", "1")
        assert consumed == "hello\n"


def test_pulsars_tools_take_client_conf(safe: Safe) -> None:
    file = safe.folder / "client.conf"
    given = properties(file)
    environment = {
        **pulsar_tool(),
        "PULSAR_CLIENT_CONF": str(file),
        "PULSAR_ADMIN_URL": given["webServiceUrl"],
        "PULSAR_URL": given["brokerServiceUrl"],
    }
    pulsar = installed("pulsar")
    run([pulsar, "admin", "topics", "create", "by-pulsar"], environment=environment)
    assert "persistent://public/default/by-pulsar" in run(
        [pulsar, "admin", "topics", "list", "public/default"], environment=environment
    )
    produced = run([pulsar, "client", "produce", "-m", "hello", "by-pulsar"], environment=environment)
    assert "1 messages successfully produced" in produced

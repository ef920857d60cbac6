"""PIP-18's commands against a real server, with clients of Pulsar and Kafka; no worker runs."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Producer

from magnetar.cli.main import run
from magnetar.testing.server import MagnetarProcess

SECRET = "a-very-well-kept-secret"
VARIABLE_SECRET = "kept-in-the-environment"
ORDERS = "persistent://public/default/orders"
BY_KAFKA = "persistent://public/default/clicks-eu"
SUBSCRIPTION = "pulsar.repl.Kafka.us-west1"
PROPERTIES = '{"bootstrap.servers": "127.0.0.1:1"}'

Captured = pytest.CaptureFixture[str]
Magnetar = Callable[..., Any]

pytestmark = pytest.mark.clients


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    settings = {"pipelines.worker.enabled": "false", "replicators.keystore.environment": "public/*:ORDERS_*"}
    environment = {"ORDERS_PASSWORD": VARIABLE_SECRET}
    with MagnetarProcess(settings=settings, environment=environment) as running:
        yield running


@pytest.fixture
def magnetar(server: MagnetarProcess, capsys: Captured) -> Magnetar:
    """Run a command, and return what it has printed as JSON."""

    def command(*arguments: str, code: int = 0) -> Any:
        assert run([*arguments, "--url", server.http_url]) == code, capsys.readouterr().err
        printed = capsys.readouterr()
        return printed.err if code else json.loads(printed.out or "null")

    return command


def _publish(server: MagnetarProcess, topic: str, *texts: str) -> None:
    client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic)
    for text in texts:
        producer.send(text.encode())
    client.close()


def _stats(magnetar: Magnetar, topic: str) -> Any:
    found = magnetar("persistent", "replicator-stats", topic, "-o", "json")
    return found["Kafka"]["us-west1"] if found else None


def _add(magnetar: Magnetar, mapping: dict[str, str], *more: str, code: int = 0) -> Any:
    return magnetar(
        *("namespaces", "add-repl-config", "public/default", "--type", "Kafka", "--region-name", "us-west1"),
        *("--replication-properties", PROPERTIES, "--topicNameMapping", json.dumps(mapping), *more),
        code=code,
    )


def test_the_commands_of_pip_18(server: MagnetarProcess, magnetar: Magnetar, tmp_path: Path) -> None:
    """From `add-repl-config` to `remove-repl-config`, over a power cut."""
    file = tmp_path / "credentials"
    file.write_text(json.dumps({"sasl.username": "u", "sasl.password": SECRET}))
    _publish(server, ORDERS, "1", "2", "3")
    _add(magnetar, {"orders": "copy", "clicks-.+": "{topic}"}, "--auth-param", f"@{file}")

    _publish(server, ORDERS, "4", "5")
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(4):
        producer.produce("clicks-eu", b"%d" % number)
    assert producer.flush(30) == 0
    assert [_stats(magnetar, one)["msgBacklog"] for one in (ORDERS, BY_KAFKA)] == [2, 4]
    assert _stats(magnetar, BY_KAFKA)["target"] == "clicks-eu"

    magnetar("persistent", "update-replicator", "-r", "Kafka", "-a", "Stop", ORDERS)
    server.kill()
    server.restart()
    assert _stats(magnetar, ORDERS)["state"] == "Stopped"
    assert _stats(magnetar, BY_KAFKA)["state"] == "Starting"
    _publish(server, ORDERS, "6")
    assert [_stats(magnetar, one)["msgBacklog"] for one in (ORDERS, BY_KAFKA)] == [3, 4]
    magnetar("persistent", "update-replicator", "-r", "Kafka", "-a", "Restart", ORDERS)
    assert _stats(magnetar, ORDERS)["state"] == "Starting"

    # Another client takes from the subscription what the replicator would.
    client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(ORDERS, SUBSCRIPTION)
    assert _stats(magnetar, ORDERS)["connectedConsumers"] == 1
    assert [consumer.receive(30_000).data() for _ in range(3)] == [b"4", b"5", b"6"]
    client.close()

    magnetar("persistent", "deregister-replicator", "-r", "Kafka", ORDERS)
    assert _stats(magnetar, ORDERS) is None
    assert "has no replicator" in magnetar(
        "persistent", "update-replicator", "-r", "Kafka", "-a", "Start", ORDERS, code=1
    )
    server.restart()
    assert _stats(magnetar, ORDERS) is None
    magnetar("persistent", "register-replicator", "-r", "Kafka", ORDERS)
    assert "already" in magnetar("persistent", "register-replicator", "-r", "Kafka", ORDERS, code=1)
    assert _stats(magnetar, ORDERS)["msgBacklog"] == 0

    shown = magnetar("namespaces", "list-repl-config", "public/default", "-o", "json")
    assert shown["Kafka"]["us-west1"]["hasCredentials"]
    assert SECRET not in json.dumps(shown)
    magnetar(
        *(
            "namespaces",
            "remove-repl-config",
            "public/default",
            "--type",
            "Kafka",
            "--region-name",
            "us-west1",
        )
    )
    assert magnetar("namespaces", "list-repl-config", "public/default", "-o", "json") == {}
    assert [_stats(magnetar, one) for one in (ORDERS, BY_KAFKA)] == [None, None]
    assert not _traces(server, SECRET)


def test_credentials_are_in_no_file_and_no_log(
    server: MagnetarProcess, magnetar: Magnetar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given at the input, or named as a variable of the environment; while they are in use, and after a restart."""
    _publish(server, ORDERS, "1")
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"sasl.password": SECRET, "sasl.username": "u"})))
    _add(magnetar, {"orders": "copy"}, "--auth-param", "-")
    server.restart()
    assert not _traces(server, SECRET)

    refused = _add(
        magnetar,
        {"orders": "copy"},
        *("--auth-plugin-name", "environment", "--auth-param", '{"sasl.password": "PATH"}'),
        code=1,
    )
    assert "may not use the variable PATH" in refused
    _add(
        magnetar,
        {"orders": "copy"},
        *("--auth-plugin-name", "environment", "--auth-param", '{"sasl.password": "ORDERS_PASSWORD"}'),
    )
    server.restart()
    shown = magnetar("namespaces", "list-repl-config", "public/default", "-o", "json")["Kafka"]["us-west1"]
    assert (shown["authParamStorePluginName"], shown["hasCredentials"]) == ("environment", True)
    assert not _traces(server, VARIABLE_SECRET)


def _traces(server: MagnetarProcess, secret: str) -> list[Path]:
    """Where the secret is: files of the server, and its log."""
    found = [
        one for one in server.data_dir.rglob("*") if one.is_file() and secret.encode() in one.read_bytes()
    ]
    return found + [Path("log")] * (secret in server.log)

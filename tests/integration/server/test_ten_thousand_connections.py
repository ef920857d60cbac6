"""Ten thousand connections of clients that never log in: others are served, and nothing of them is left behind."""

import resource
import socket
from contextlib import ExitStack

import confluent_kafka
import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.tls.secured import open_sockets

from .wire import PATIENCE_S, eventually

COUNT = 10_000
OWN_FILES = 500
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * COUNT, reason="needs a limit of 20,000 open files"
    ),
]


@pytest.fixture(autouse=True)
def many_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < COUNT + OWN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def test_others_are_served_beside_them_and_they_leave_nothing() -> None:
    (sasl,) = free_ports(1)
    settings = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "pipelines.worker.enabled": "false",
    }
    with MagnetarProcess(settings=settings) as server, ExitStack() as stack:
        before = open_sockets(server)
        for number in range(COUNT):
            port = sasl if number % 2 else server.pulsar_port
            one = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), PATIENCE_S, (f"127.0.0.{1 + number % 250}", 0))
            )
            if number % 3 == 0:
                one.sendall(b"\0\0\0")  # not even a size
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{sasl}",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "log_level": 0,
            }
        )
        producer.produce("beside", b"value")
        assert producer.flush(60) == 0
        client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.create_producer("beside-pulsar").send(b"value")
        client.close()
        stack.close()
        del producer
        eventually(lambda: open_sockets(server) <= before + 5, "connections were left open", 120)
        assert "Traceback" not in server.log
        assert server.log.count("\n") < 200, "a line for each would fill the disk"

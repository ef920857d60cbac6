"""A run says that its broker has failed, and not that of all tests."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import brokers
import pytest
import suite_librdkafka as suite
from fetch import BrokerFailed
from librdkafka_places import ANY, Place
from outcomes import Outcome

from magnetar.testing.server import answers, free_ports

SERVER = """
import signal, socket, sys
port = int(sys.argv[sys.argv.index("--kafka-port") + 1])
listening = socket.create_server(("127.0.0.1", port))
print("magnetar is ready", flush=True)
{then}
"""
FAILS = "#!/bin/sh\ntest $TESTS = 0002 && sleep 600\nexit 1\n"  # as each of librdkafka's tests would


@pytest.fixture
def server(tmp_path: Path) -> Callable[[str], "contextlib.AbstractContextManager[brokers.Broker]"]:
    def start(then: str) -> contextlib.AbstractContextManager[brokers.Broker]:
        script = tmp_path / "server.py"
        script.write_text(SERVER.format(then=then))
        return brokers.magnetar(brokers.Profile({}), tmp_path / "log", command=[sys.executable, str(script)])

    return start


ServerThat = Callable[[str], "contextlib.AbstractContextManager[brokers.Broker]"]


def test_a_server_that_ends_under_a_suite_is_told_once_and_ends_the_suite(
    server: ServerThat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_PEERS", str(tmp_path / "none"))
    runner = tmp_path / "test-runner"
    runner.write_text(FAILS)
    runner.chmod(0o755)
    reported: list[Outcome] = []
    jobs = [suite.Job(number, False, (f"{number}_any",)) for number in ("0001", "0002", "0003", "0004")]
    dies = "print('out of memory', flush=True); raise SystemExit(9)"

    def start(_: Place) -> "contextlib.AbstractContextManager[brokers.Broker]":
        return server(dies)

    with (
        pytest.raises(BrokerFailed, match=r"(?s)ended by itself with 9.*out of memory"),
        brokers.on_demand(start) as bootstrap,
    ):
        suite.run(
            tmp_path, bootstrap, {ANY: Place(ANY, brokers.Profile({}))}, tmp_path, jobs, 2, reported.append
        )
    assert reported == []


def test_a_server_that_ends_with_0_before_its_suite_is_over_has_failed(server: ServerThat) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(server("listening.accept()"))
        host, port = broker.address.split(":")
        answers(host, int(port), 30.0)  # it ends by that
        with pytest.raises(BrokerFailed, match="ended by itself with 0"):
            stack.close()


def test_a_broker_of_somebody_else_is_asked_as_well() -> None:
    (port,) = free_ports(1)

    def start(_: int) -> "contextlib.AbstractContextManager[brokers.Broker]":
        return brokers.running(f"127.0.0.1:{port}")

    with brokers.on_demand(start) as bootstrap:
        bootstrap(1)
        with pytest.raises(BrokerFailed, match=f"127.0.0.1:{port} does not answer"):
            bootstrap.check(1)

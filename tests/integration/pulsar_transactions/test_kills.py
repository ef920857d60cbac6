"""What a killed server leaves of the transactions that Pulsar's Java client has begun."""

from pathlib import Path

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java

from .java_transactions import JavaTransactions
from .reading import read_to_the_end

pytestmark = needs_java
LONG_MS = 600_000


def test_an_open_transaction_goes_on_after_a_kill_and_what_was_decided_stays(
    topic: str, tmp_path: Path
) -> None:
    with MagnetarProcess() as server, JavaTransactions(server.pulsar_url, tmp_path / "java.log") as java:
        for name, timeout_ms in (
            ("kept", LONG_MS),
            ("open", LONG_MS),
            ("late", 10_000),
            ("dropped", LONG_MS),
        ):
            java.ask("begin", name, timeout_ms)
            java.ask("send", name, topic, "plain", name)
        java.ask("commit", "kept")
        java.ask("abort", "dropped")
        server.kill()
        server.restart()
        java.ask("subscribe", "c", topic, "s", "Exclusive")
        java.ask("send", "-", topic, "plain", "after")
        java.ask("send", "open", topic, "plain", "more")
        java.ask("commit", "open")
        committed = ["kept", "open", "after", "more"]  # behind the late one they wait for its time-out
        assert java.ask("receive", "c", 4) == committed
        for _ in range(2):
            assert read_to_the_end(server, topic) == committed
            everything = ["kept", "open", "late", "dropped", "after", "more"]
            assert read_to_the_end(server, topic, "read_uncommitted") == everything
            server.kill()
            server.restart()
        assert "Traceback" not in server.log, server.log[-5000:]

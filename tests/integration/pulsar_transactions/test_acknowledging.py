"""What Pulsar's Java client acknowledges in transactions."""

import urllib.request
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_pulsar_shell

from .java_transactions import JavaTransactions, Refused

pytestmark = needs_java
LONG_MS = 600_000


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_what_a_transaction_has_acknowledged_waits_for_its_end(
    java: JavaTransactions, topic: str, kind: str
) -> None:
    java.ask("subscribe", "c", topic, "s", kind)
    java.ask("send", "-", topic, "plain", "1", "2", "3")
    assert sorted(java.ask("receive", "c", 3)) == ["1", "2", "3"]
    for name in ("dropped", "other", "kept"):
        java.ask("begin", name, LONG_MS)
    java.ask("ack", "dropped", "c", "1", "2")
    java.ask("redeliver", "c")
    assert java.ask("receive", "c", 1) == ["3"]
    assert java.ask("silence", "c", 500) == []
    for name in ("other", "dropped"):
        with pytest.raises(Refused, match="TransactionConflictException"):
            java.ask("ack", name, "c", "1")
    java.ask("abort", "dropped")
    assert sorted(java.ask("receive", "c", 2)) == ["1", "2"]
    java.ask("ack", "kept", "c", "1", "2")
    java.ask("commit", "kept")
    with pytest.raises(Refused, match="TransactionConflictException"):
        java.ask("ack", "other", "c", "1")
    java.ask("close", "c")
    java.ask("subscribe", "c", topic, "s", kind)
    assert java.ask("receive", "c", 1) == ["3"]
    assert java.ask("silence", "c", 500) == []
    java.ask("close", "c")


def test_a_new_subscription_of_the_name_has_nothing_acknowledged(
    server: MagnetarProcess, java: JavaTransactions, topic: str
) -> None:
    java.ask("subscribe", "c", topic, "s", "Shared")
    java.ask("send", "-", topic, "plain", "1", "2")
    assert java.ask("receive", "c", 2) == ["1", "2"]
    java.ask("begin", "t", LONG_MS)
    java.ask("ack", "t", "c", "1", "2")
    java.ask("close", "c")
    path = f"/admin/v2/persistent/public/default/{topic}/subscription/s"
    request = urllib.request.Request(f"http://127.0.0.1:{server.http_port}{path}", method="DELETE")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 204
    java.ask("subscribe", "c", topic, "s", "Shared")
    assert java.ask("receive", "c", 2) == ["1", "2"]
    java.ask("commit", "t")
    java.ask("close", "c")
    java.ask("subscribe", "c", topic, "s", "Shared")
    assert java.ask("receive", "c", 2) == ["1", "2"]
    java.ask("close", "c")


def test_another_consumer_does_not_get_what_waits_for_the_end(java: JavaTransactions, topic: str) -> None:
    java.ask("subscribe", "first", topic, "s", "Shared")
    java.ask("send", "-", topic, "plain", "1", "2")
    assert java.ask("receive", "first", 2) == ["1", "2"]
    java.ask("begin", "t", LONG_MS)
    java.ask("ack", "t", "first", "1")
    java.ask("subscribe", "second", topic, "s", "Shared")
    java.ask("close", "first")
    assert java.ask("receive", "second", 1) == ["2"]
    assert java.ask("silence", "second", 500) == []
    java.ask("abort", "t")
    assert java.ask("receive", "second", 1) == ["1"]
    java.ask("close", "second")


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_a_cumulative_acknowledgement_waits_for_the_end(
    java: JavaTransactions, topic: str, kind: str
) -> None:
    java.ask("subscribe", "c", topic, "s", kind)
    java.ask("send", "-", topic, "plain", "1", "2", "3")
    assert java.ask("receive", "c", 3) == ["1", "2", "3"]
    for name in ("dropped", "other", "kept"):
        java.ask("begin", name, LONG_MS)
    java.ask("ack-to", "dropped", "c", "1")
    java.ask("ack-to", "dropped", "c", "2")
    with pytest.raises(Refused, match="TransactionConflictException"):
        java.ask("ack-to", "other", "c", "3")
    java.ask("abort", "dropped")
    assert java.ask("receive", "c", 3) == ["1", "2", "3"]
    java.ask("ack-to", "kept", "c", "2")
    java.ask("commit", "kept")
    java.ask("close", "c")
    java.ask("subscribe", "c", topic, "s", kind)
    assert java.ask("receive", "c", 1) == ["3"]
    java.ask("close", "c")


def test_single_messages_of_a_batch_wait_for_the_end(java: JavaTransactions, topic: str) -> None:
    java.ask("subscribe", "c", topic, "s", "Shared")
    java.ask("send", "-", topic, "batched", "1", "2", "3")
    assert java.ask("receive", "c", 3) == ["1", "2", "3"]
    java.ask("begin", "t", LONG_MS)
    java.ask("ack", "t", "c", "2")
    java.ask("redeliver", "c")
    assert java.ask("receive", "c", 2) == ["1", "3"]
    java.ask("commit", "t")
    java.ask("close", "c")
    java.ask("subscribe", "c", topic, "s", "Shared")
    assert java.ask("receive", "c", 2) == ["1", "3"]
    assert java.ask("silence", "c", 500) == []
    java.ask("close", "c")


def test_what_waits_for_the_end_survives_a_kill(topic: str, tmp_path: Path) -> None:
    with MagnetarProcess() as server, JavaTransactions(server.pulsar_url, tmp_path / "java.log") as java:
        java.ask("subscribe", "c", topic, "s", "Shared")
        java.ask("send", "-", topic, "plain", "1", "2", "3", "4")
        assert java.ask("receive", "c", 4) == ["1", "2", "3", "4"]
        for name, value in (("kept", "1"), ("dropped", "2"), ("ended", "3")):
            java.ask("begin", name, LONG_MS)
            java.ask("ack", name, "c", value)
        java.ask("commit", "ended")
        java.ask("close", "c")
        server.kill()
        server.restart()
        java.ask("subscribe", "c", topic, "s", "Shared")
        assert java.ask("receive", "c", 1) == ["4"]
        assert java.ask("silence", "c", 500) == []
        java.ask("abort", "dropped")
        assert java.ask("receive", "c", 1) == ["2"]
        java.ask("commit", "kept")
        java.ask("close", "c")
        server.kill()
        server.restart()
        java.ask("subscribe", "c", topic, "s", "Shared")
        assert java.ask("receive", "c", 2) == ["2", "4"]
        assert java.ask("silence", "c", 500) == []
        assert "Traceback" not in server.log, server.log[-5000:]


def test_a_subscription_made_again_after_a_kill_has_nothing_of_what_was_acknowledged(
    topic: str, tmp_path: Path
) -> None:
    full = f"persistent://public/default/{topic}"
    with MagnetarProcess() as server, JavaTransactions(server.pulsar_url, tmp_path / "java.log") as java:
        java.ask("send", "-", topic, "plain", "one", "two")
        java.ask("subscribe", "first", topic, "s", "Shared")
        assert java.ask("receive", "first", 2) == ["one", "two"]
        java.ask("begin", "t", LONG_MS)
        java.ask("ack", "t", "first", "one", "two")
        java.ask("close", "first")
        run_pulsar_shell(
            server,
            [
                f"admin topics unsubscribe -s s {full}",
                f"admin topics create-subscription -s s -m earliest {full}",
            ],
        )
        server.kill()
        server.restart()
        java.ask("subscribe", "second", topic, "s", "Shared")
        assert java.ask("receive", "second", 2) == ["one", "two"]
        java.ask("commit", "t")
        java.ask("redeliver", "second")
        assert java.ask("receive", "second", 2) == ["one", "two"]

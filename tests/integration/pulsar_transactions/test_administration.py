"""`pulsar-admin transactions` beside Pulsar's Java client."""

import json

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_pulsar_shell

from .java_transactions import JavaTransactions, Refused
from .reading import read_to_the_end

pytestmark = needs_java
LONG_MS = 600_000


def test_an_administrator_sees_a_transaction_and_aborts_it(
    server: MagnetarProcess, java: JavaTransactions, topic: str
) -> None:
    full = f"persistent://public/default/{topic}"
    java.ask("send", "-", topic, "plain", "before")
    java.ask("subscribe", topic, topic, "s", "Exclusive")
    assert java.ask("receive", topic, 1) == ["before"]
    (written,) = java.ask("begin", topic, LONG_MS)
    java.ask("send", topic, topic, "plain", "never")
    java.ask("ack-to", topic, topic, "before")
    most, least = written.strip("()").split(",")
    one = f"-m {most} -l {least}"
    place = f"-t {full}"
    shown = run_pulsar_shell(
        server,
        [
            f"admin transactions {command}"
            for command in (
                f"transaction-metadata {one}",
                f"slow-transactions -t {LONG_MS // 1000 - 1}s",
                f"transaction-in-buffer-stats {one} {place}",
                f"transaction-in-pending-ack-stats {one} {place} -s s",
                f"transaction-buffer-stats {place}",
                f"pending-ack-stats {place} -s s",
                f"abort-transaction {one}",
                f"transaction-buffer-stats {place}",
                f"transaction-in-buffer-stats {one} {place}",
                f"pending-ack-stats {place} -s s",
            )
        ],
    )
    slow, aborted = shown.pop(1), shown.pop(5)
    assert written in slow
    assert aborted == ""
    described, in_buffer, in_pending, buffer, pending, buffer_after, in_buffer_after, after = map(
        json.loads, shown
    )
    assert described["status"] == "OPEN"
    assert described["timeoutAt"] == LONG_MS
    assert described["producedPartitions"] == {full: in_buffer}
    assert described["ackedPartitions"] == {full: {"s": in_pending}}
    assert in_buffer["startPosition"].endswith(":1")
    assert in_pending["cumulativeAckPosition"].endswith(":0")
    assert (buffer["ongoingTxnSize"], buffer["maxReadPosition"]) == (1, in_pending["cumulativeAckPosition"])
    assert pending["ongoingTxnSize"] == 1
    assert (buffer_after["ongoingTxnSize"], buffer_after["totalAbortedTransactions"]) == (0, 1)
    assert in_buffer_after["aborted"]
    assert after["ongoingTxnSize"] == 0
    with pytest.raises(Refused, match="TransactionNotFound"):
        java.ask("commit", topic)
    assert java.ask("receive", topic, 1) == ["before"]
    assert read_to_the_end(server, topic) == ["before"]

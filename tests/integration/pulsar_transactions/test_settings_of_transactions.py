"""What a Java client sees of the settings of Pulsar's transactions."""

from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java

from .java_transactions import JavaTransactions, Refused

pytestmark = needs_java
LONG_MS = 600_000


def test_a_server_without_transactions_says_so_to_java(topic: str, tmp_path: Path) -> None:
    settings = {"transactionCoordinatorEnabled": "false"}
    with MagnetarProcess(settings=settings) as server:
        with (
            JavaTransactions(server.pulsar_url, tmp_path / "java.log") as java,
            pytest.raises(AssertionError, match="has ended"),
        ):
            java.ask("begin", "t", LONG_MS)
        said = (tmp_path / "java.log").read_text()
        assert "doesn't enable the transaction coordinator" in said, said[-3000:]


def test_java_hears_what_a_transaction_may_not_be(topic: str, tmp_path: Path) -> None:
    settings = {"maxActiveTransactionsPerCoordinator": "2", "pulsar.transaction.max.timeout.ms": f"{LONG_MS}"}
    with (
        MagnetarProcess(settings=settings) as server,
        JavaTransactions(server.pulsar_url, tmp_path / "java.log") as java,
    ):
        with pytest.raises(Refused, match=f"pulsar.transaction.max.timeout.ms is {LONG_MS}"):
            java.ask("begin", "a", LONG_MS + 1)
        for name in ("a", "b"):
            java.ask("begin", name, LONG_MS)
        with pytest.raises(Refused, match="2 transactions are open, which is the most"):
            java.ask("begin", "c", LONG_MS)
        java.ask("abort", "a")
        java.ask("begin", "c", LONG_MS)

"""What Pulsar's Java client writes in transactions, as readers of both protocols see it."""

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java

from .java_transactions import JavaTransactions, Refused
from .reading import read_to_the_end

pytestmark = needs_java
LONG_MS = 600_000


@pytest.mark.parametrize("packing", ["plain", "batched", "chunked"])
def test_what_is_committed_is_seen_and_what_is_aborted_is_not_by_both_protocols(
    java: JavaTransactions, server: MagnetarProcess, topic: str, packing: str
) -> None:
    java.ask("subscribe", "c", topic, "s", "Exclusive")
    for name in ("kept", "dropped"):
        java.ask("begin", name, LONG_MS)
    # The first one alone: Java's client sends what waits for a transaction to learn of a topic in any order.
    java.ask("send", "dropped", topic, packing, "a")
    java.ask("send", "dropped", topic, packing, "b", "c")
    java.ask("send", "kept", topic, packing, "d")
    java.ask("send", "kept", topic, packing, "e", "f")
    java.ask("send", "-", topic, packing, "g")
    assert java.ask("silence", "c", 500) == []
    assert read_to_the_end(server, topic) == []
    assert read_to_the_end(server, topic, "read_uncommitted") == [*"abcdefg"]
    java.ask("commit", "kept")
    assert java.ask("silence", "c", 500) == []  # an older one is open
    java.ask("abort", "dropped")
    assert java.ask("receive", "c", 4) == [*"defg"]
    assert java.ask("silence", "c", 200) == []
    java.ask("close", "c")
    assert read_to_the_end(server, topic) == [*"defg"]
    assert read_to_the_end(server, topic, "read_uncommitted") == [*"abcdefg"]


def test_a_transaction_over_several_topics_is_seen_as_a_whole(java: JavaTransactions, topic: str) -> None:
    for number in (1, 2):
        java.ask("subscribe", f"c{number}", f"{topic}-{number}", "s", "Shared")
    java.ask("begin", "both", LONG_MS)
    for number in (1, 2):
        java.ask("send", "both", f"{topic}-{number}", "plain", f"v{number}")
        assert java.ask("silence", f"c{number}", 300) == []
    java.ask("commit", "both")
    for number in (1, 2):
        assert java.ask("receive", f"c{number}", 1) == [f"v{number}"]
        java.ask("close", f"c{number}")


def test_a_transaction_that_has_ended_takes_nothing_more(java: JavaTransactions, topic: str) -> None:
    java.ask("begin", "t", LONG_MS)
    java.ask("send", "t", topic, "plain", "a")
    java.ask("commit", "t")
    with pytest.raises(Refused, match="InvalidTxnStatusException"):
        java.ask("send", "t", topic, "plain", "b")
    with pytest.raises(Refused, match="InvalidTxnStatusException"):
        java.ask("commit", "t")


def test_an_open_transaction_is_aborted_after_its_time_out(java: JavaTransactions, topic: str) -> None:
    java.ask("subscribe", "c", topic, "s", "Exclusive")
    java.ask("begin", "late", 1500)
    java.ask("send", "late", topic, "plain", "a")
    java.ask("send", "-", topic, "plain", "b")
    assert java.ask("receive", "c", 1) == ["b"]
    java.ask("close", "c")
    with pytest.raises(Refused, match=r"TransactionNotFoundException|InvalidTxnStatusException"):
        java.ask("commit", "late")

"""Transactions of a real Apache Pulsar, as its Java client makes them, copied by the command."""

import random
from collections.abc import Iterator
from functools import partial

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.pulsar_transactions.java_transactions import JavaTransactions
from tests.peers import is_here
from tests.pulsar_peer import PulsarPeer

from .cloning import TIMEOUT_S, Cloning, clone, cut, eventually, is_linked, link_of
from .pulsar_topics import address, connected, entries, has_left, is_same, new_topic

pytestmark = [
    pytest.mark.clients,
    pytest.mark.peers,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_here("pulsar"), reason="needs Java and the peer script of Pulsar"),
]

LONG_MS = 600_000
SEED = 20_261
TRANSACTIONS = 60
AT_ONCE = 5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarPeer]:
    settings = {
        "transactionCoordinatorEnabled": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "defaultRetentionTimeInMinutes": "600",
    }
    with PulsarPeer(tmp_path_factory.mktemp("pulsar"), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as running:
        yield running
        assert "Traceback" not in running.log, running.log[-5000:]


@pytest.fixture(scope="module")
def java(source: PulsarPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTransactions]:
    with JavaTransactions(source.url, tmp_path_factory.mktemp("java") / "log") as client:
        yield client


def values(url: str, topic: str) -> list[str]:
    """What a reader of a topic without partitions sees, from its start to its end."""
    found: list[str] = []
    with connected(url) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            found.append(reader.read_next(int(TIMEOUT_S * 1000)).data().decode().strip())
    return found


@pytest.mark.parametrize("packing", ["plain", "batched", "chunked"])
def test_what_was_committed_comes_in_order_and_what_was_aborted_never(
    java: JavaTransactions, source: PulsarPeer, server: MagnetarProcess, packing: str
) -> None:
    topic = new_topic(source.http_url)
    for name in ("kept", "dropped", "late", "last"):
        java.ask("begin", name, LONG_MS)
    java.ask("send", "-", topic, packing, "a")
    java.ask("send", "dropped", topic, packing, "b")
    java.ask("send", "kept", topic, packing, "c")
    java.ask("send", "dropped", topic, packing, "d", "e")
    java.ask("send", "kept", topic, packing, "f", "g")
    java.ask("send", "-", topic, packing, "h")
    clone(address(source.url, topic), server)
    assert values(server.pulsar_url, topic) == ["a"]  # what is behind an open one waits for it
    java.ask("commit", "kept")
    java.ask("abort", "dropped")
    java.ask("send", "late", topic, packing, "i")
    java.ask("send", "-", topic, packing, "j")
    clone(address(source.url, topic), server)
    assert values(server.pulsar_url, topic) == [*"acfgh"]
    java.ask("commit", "late")
    java.ask("send", "last", topic, packing, "k")
    java.ask("abort", "last")
    clone(address(source.url, topic), server)  # which ends, although the end was aborted
    assert values(server.pulsar_url, topic) == [*"acfghij"]
    copied = entries(server.pulsar_url, topic)
    assert copied == entries(source.url, topic)
    server.kill()
    server.restart()
    assert entries(server.pulsar_url, topic) == copied
    cut(server, topic)
    with connected(server.pulsar_url) as client:
        client.create_producer(topic).send(b"l")
    assert values(server.pulsar_url, topic) == [*"acfghijl"]


def test_many_transactions_are_followed_over_kills_of_the_link_the_server_and_the_source(
    java: JavaTransactions, source: PulsarPeer, server: MagnetarProcess
) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    topics = [new_topic(source.http_url) for _ in range(2)]
    links = [Cloning(address(source.url, topic), server, "--follow") for topic in topics]
    sent: dict[str, list[tuple[str, str]]] = {topic: [] for topic in topics}
    committed = {"-"}
    numbers = iter(range(1_000_000))

    def transact(count: int) -> None:
        """So many transactions, of which some are open at once, and messages of none between theirs."""
        left = [f"t{next(numbers)}" for _ in range(count)]
        is_open: list[str] = []
        while left or is_open:
            if left and len(is_open) < AT_ONCE:
                is_open.append(left.pop())
                java.ask("begin", is_open[-1], LONG_MS)
            name, topic = choose.choice([*is_open, "-"]), choose.choice(topics)
            value = f"v{next(numbers)}"
            java.ask("send", name, topic, "plain", value)
            sent[topic].append((name, value))
            if name != "-" and choose.random() < 0.5:
                is_open.remove(name)
                is_committed = choose.random() < 0.5
                java.ask("commit" if is_committed else "abort", name)
                committed.update({name} if is_committed else ())

    with links[0], links[1]:
        for topic in topics:
            eventually(partial(is_linked, server, topic), "the topic is not linked")
        transact(TRANSACTIONS // 3)
        links[0].kill()
        transact(TRANSACTIONS // 3)
        server.kill()
        server.restart()
        transact(TRANSACTIONS // 3)
        clone(address(source.url, topics[0]), server)
        source.kill()
        eventually(lambda: link_of(server, topics[1]).error != "", "no trouble is reported")
        source.start()
        for topic in topics:
            clone(address(source.url, topic), server)
            eventually(partial(is_same, source.url, server.pulsar_url, topic), "the copy is not the same")
    for topic in topics:
        assert values(server.pulsar_url, topic) == [value for name, value in sent[topic] if name in committed]
        assert len({name for name, _ in sent[topic]} - committed) > TRANSACTIONS / 6, "many were aborted"


def test_what_a_transaction_has_acknowledged_counts_when_it_is_committed(
    java: JavaTransactions, source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url)
    java.ask("subscribe", "taker", topic, "s", "Shared")
    java.ask("send", "-", topic, "plain", *"abcdef")
    assert java.ask("receive", "taker", 6) == [*"abcdef"]
    for name in ("counts", "does-not"):
        java.ask("begin", name, LONG_MS)
    java.ask("ack", "counts", "taker", "a", "c")
    java.ask("ack", "does-not", "taker", "b", "d", "e")
    java.ask("commit", "counts")
    java.ask("abort", "does-not")
    clone(address(source.url, topic), server, "--source-admin", source.http_url)
    assert has_left(server.http_url, topic, "s", 4)
    with connected(server.pulsar_url) as client:
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        left = [consumer.receive(int(TIMEOUT_S * 1000)).data().decode() for _ in range(4)]
    assert sorted(left) == [*"bdef"]

"""Clients that ask for records and wait, or do not take them: what they hold is bounded, and others do not notice."""

import urllib.request
from contextlib import suppress

import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from .wire import Wire, eventually, fetch_request, frame, payload, produce_request, record_batch

FOREVER_MS = 2**31 - 1
WIDTH = 50


def metric(server: MagnetarProcess, name: str) -> float:
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def waiting(server: MagnetarProcess) -> float:
    return metric(server, "magnetar_kafka_fetches_waiting")


@pytest.fixture(autouse=True)
def _none_waits(server: MagnetarProcess) -> None:
    """What waits of the test before has gone: the server notices within seconds that its client has hung up."""
    eventually(lambda: waiting(server) == 0, "no fetch waits from before")


def test_thousands_of_fetches_that_wait_hold_up_no_other_client(server: MagnetarProcess, wire: Wire) -> None:
    # Each append looked at every partition of every one of them: a produce took 400 ms.
    made = CreateTopicsRequest([CreatableTopic("awaited", WIDTH, 1)], 10_000)
    assert wire.ask("create_topics", 7, made).topics[0].error_code == 0
    rows = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(WIDTH)]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=FOREVER_MS,
        min_bytes=1 << 30,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic("awaited", partitions=rows)],
    )
    asked = frame("fetch", 12, request) * 20
    silent = [Wire(server.ports[0]) for _ in range(8)]
    try:
        for _ in range(25):
            for one in silent:
                one.socket.setblocking(False)
                with suppress(BlockingIOError):
                    one.socket.send(asked)
        eventually(lambda: waiting(server) == 8, "one fetch of each connection waits")
        for number in range(100):
            batch = record_batch([str(number).encode()])
            assert wire.produce("awaited", batch, index=number % WIDTH).error_code == 0
            assert payload(wire.fetch("awaited", number // WIDTH, index=number % WIDTH))
        assert waiting(server) == 8
    finally:
        for one in silent:
            one.socket.close()
    gone = DeleteTopicsRequest([DeleteTopicState("awaited")], timeout_ms=10_000)
    assert wire.ask("delete_topics", 6, gone).responses[0].error_code == 0
    eventually(lambda: waiting(server) == 0, "the end of a topic ends the wait for it")


def test_the_fetch_of_a_client_that_hangs_up_does_not_go_on_waiting(
    server: MagnetarProcess, topic: str
) -> None:
    with Wire(server.ports[0]) as other:
        other.send(frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=FOREVER_MS)))
        eventually(lambda: waiting(server) == 1, "the fetch waits")
    eventually(lambda: waiting(server) == 0, "no fetch waits for it")


def test_a_client_that_sent_more_before_it_hung_up_does_not_go_on_waiting(
    server: MagnetarProcess, topic: str
) -> None:
    # Nothing is read behind a fetch that waits, so the end of the connection was not seen for five minutes.
    asked = frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=FOREVER_MS))
    with Wire(server.ports[0]) as there:
        there.send(asked * 2)
        for _ in range(3):
            with Wire(server.ports[0]) as other:
                other.send(asked * 100)
                eventually(lambda: waiting(server) == 2, "the fetch waits")
            eventually(lambda: waiting(server) == 1, "only the one whose client is there waits")


def test_a_produce_behind_a_fetch_that_waits_has_its_turn_after_it(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # As with Kafka's broker, which reads nothing behind a request that waits.
    wire.send(frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=60_000), correlation_id=1))
    wire.send(frame("produce", 9, produce_request(topic, record_batch([b"behind"])), correlation_id=2))
    eventually(lambda: waiting(server) == 1, "the fetch waits")
    with Wire(server.ports[0]) as other:
        assert other.produce(topic, record_batch([b"other"])).base_offset == 0
    assert payload(wire.answer("fetch", 12).responses[0].partitions[0])
    assert wire.correlation_id == 1
    assert wire.answer("produce", 9).responses[0].partition_responses[0].base_offset == 1

"""Clients that make the server hold memory: it stays within its limit, and others are served meanwhile."""

import os
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magnetar.wire.kafka.messages.sync_group import SyncGroupRequest

from .wire import Wire, eventually, fetch_request, frame, payload, record_batch, resident_bytes

MIB = 1 << 20
LIMIT_BYTES = 64 * MIB
ONE_BATCH_BYTES = 2 * MIB  # the first batch of a response is sent whatever its size


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    limits = {"queued.max.request.bytes": str(LIMIT_BYTES), "entry.cache.bytes": str(16 * MIB)}
    with MagnetarProcess(settings=limits) as running:
        yield running


def metric(server: MagnetarProcess, name: str) -> float:
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def pour(one: socket.socket, data: bytes) -> None:
    """As much of it as is taken at once."""
    one.setblocking(False)
    with suppress(BlockingIOError):
        while data:
            data = data[one.send(data) :]


def raw(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def lives(wire: Wire, topic: str) -> None:
    """An ordinary client produces and fetches."""
    for _ in range(5):
        offset = wire.produce(topic, record_batch([os.urandom(500_000)])).base_offset
        assert len(payload(wire.fetch(topic, offset))) > 500_000


def test_half_sent_requests_stay_within_the_limit_and_are_given_up(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # Twenty clients made the server hold two gigabytes under a limit of 64 MiB.
    before = resident_bytes(server)
    with ExitStack() as stack:
        half = struct.pack(">i", 60 * MIB) + bytes(30 * MIB)
        for _ in range(20):
            pour(stack.enter_context(raw(server.ports[0])), half)
        part = struct.pack(">i", 4 * MIB) + bytes(2 * MIB)
        for _ in range(40):
            pour(stack.enter_context(raw(server.pulsar_port)), part)
        lives(wire, topic)
        assert metric(server, "magnetar_connection_memory_peak_bytes") <= LIMIT_BYTES + ONE_BATCH_BYTES
        assert resident_bytes(server) < before + 200 * MIB
        eventually(lambda: "that is announced does not come" in server.log, "who sends no more is cut off")
        lives(wire, topic)
    eventually(lambda: metric(server, "magnetar_connection_memory_bytes") == 0, "all of it is given back")


def test_clients_that_announce_a_request_and_go_are_missed(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # Nothing is read while a request waits: 2,400 sockets of clients that had gone were kept, and 64 KiB for each.
    waiting = 'magnetar_connection_memory_holders{state="waiting"}'
    announced = struct.pack(">i", 60 * MIB)
    with ExitStack() as stack:
        pour(stack.enter_context(raw(server.ports[0])), announced + bytes(MIB))
        for _ in range(100):
            with raw(server.ports[0]) as one:
                one.sendall(announced + bytes(100))
        eventually(lambda: metric(server, waiting) == 0, "those that have gone wait no more")
        lives(wire, topic)


def test_a_small_batch_in_a_large_frame_does_not_keep_the_frame(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # The entry cache kept the whole frame and counted the batch: 25 requests were 1.5 GB.
    before = resident_bytes(server)
    junk = bytes(30 * MIB)
    rows = [PartitionProduceData(0, record_batch([b"small"])), PartitionProduceData(9, junk)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic, partition_data=rows)])
    for number in range(15):
        answer = wire.ask("produce", 9, request).responses[0].partition_responses
        assert (answer[0].error_code, answer[0].base_offset) == (0, number)
        assert answer[1].error_code != 0
    assert resident_bytes(server) < before + 200 * MIB
    lives(wire, topic)


def test_responses_that_are_not_taken_stay_within_the_limit(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # Twenty fetches of what is not cached were 730 MB.
    for _ in range(60):
        assert wire.produce(topic, record_batch([os.urandom(1_000_000)])).error_code == 0
    before = resident_bytes(server)
    asked = frame("fetch", 12, fetch_request(topic, 0))
    with ExitStack() as stack:
        lazy = [stack.enter_context(Wire(server.ports[0], receive_buffer=4096)) for _ in range(40)]
        for one in lazy:
            one.send(asked * 3)
        lives(wire, topic)
        assert metric(server, "magnetar_connection_memory_peak_bytes") <= LIMIT_BYTES + ONE_BATCH_BYTES
        assert resident_bytes(server) < before + 250 * MIB
        # A client that begins to read gets what it asked for, in smaller portions.
        assert len(payload(lazy[0].answer("fetch", 12).responses[0].partitions[0])) > 900_000
    eventually(lambda: metric(server, "magnetar_connection_memory_bytes") == 0, "all of it is given back")
    assert len(payload(wire.fetch(topic, 0))) > 10_000_000, "and responses are large again"


def test_members_that_wait_for_others_keep_no_client_from_being_served(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # What they had sent counted sixteen times for as long as one member did not join again: no client was served.
    def joining(metadata: bytes) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol("range", metadata)]
        return JoinGroupRequest("held-up", 60_000, 300_000, "", None, "consumer", protocols)

    first = wire.ask("join_group", 3, joining(b"x"))
    assert first.error_code == 0
    synced = SyncGroupRequest("held-up", first.generation_id, first.member_id, assignments=[])
    assert wire.ask("sync_group", 3, synced).error_code == 0
    with ExitStack() as stack:
        for _ in range(45):
            stack.enter_context(Wire(server.ports[0])).send(frame("join_group", 3, joining(bytes(100_000))))
        time.sleep(1)  # until all of them wait
        lives(wire, topic)

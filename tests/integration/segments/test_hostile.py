"""Requests that are wrong, too many, too long, or given up."""

import http.client
import json
import socket
import threading
import time
import urllib.parse
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from magnetar.broker.history.stored_records import WAITERS_MAX
from magnetar.client.errors import NotFound, OutOfRange, Refused, Unavailable
from magnetar.client.rest import Range, RestClient
from magnetar.testing.server import MagnetarProcess

from .topics import TIMEOUT_S, make_topic, produce

pytestmark = pytest.mark.clients

SEGMENTS = "/magnetar/v1/segments"
ENTRIES = "/magnetar/v1/entries"
POSITIONS = "/magnetar/v1/positions"


def ask(server: MagnetarProcess, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=TIMEOUT_S)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content)


WRONG_BODIES = [
    b"",
    b"[]",
    b"nonsense",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"partitions": {}}',
    b'{"partitions": [1]}',
    b'{"partitions": [{}]}',
    b'{"partitions": [{"topic": 5, "partition": 0}]}',
    b'{"partitions": [{"topic": "t", "partition": -1}]}',
    b'{"partitions": [{"topic": "t", "partition": true}]}',
    b'{"partitions": [{"topic": "t", "partition": 1e3}]}',
    b'{"partitions": [{"topic": "t", "partition": 9999999999999}]}',
    b'{"partitions": [{"topic": "t", "partition": 0, "from_offset": -1}]}',
    b'{"partitions": [{"topic": "t", "partition": 0, "to_offset": 9223372036854775808}]}',
    b'{"partitions": [{"topic": "t", "partition": 0, "from_timestamp": "now"}]}',
    b'{"partitions": [], "lease": 7}',
    b'{"partitions": ' + json.dumps([{"topic": "t", "partition": 0}] * 10_001).encode() + b"}",
]


@pytest.mark.parametrize("body", WRONG_BODIES, ids=lambda body: body[:60].decode(errors="replace"))
def test_a_body_that_is_wrong_is_refused_with_a_sentence(server: MagnetarProcess, body: bytes) -> None:
    status, answer = ask(server, "POST", SEGMENTS, body)
    assert status == 400
    assert answer["error"] == "BAD_REQUEST"
    assert len(answer["reason"]) > 10


def test_a_body_without_end_is_cut_off(server: MagnetarProcess) -> None:
    status, answer = ask(server, "POST", SEGMENTS, b" " * (2 << 20))
    assert (status, answer["error"]) == (413, "REQUEST_ENTITY_TOO_LARGE")


@pytest.mark.parametrize("number", ["-1", "x", "", "1.5", "+1", "٣", "1" * 19, "9" * 5000, "0x1", " 1"])
@pytest.mark.parametrize("name", ["offset", "partition", "bytes_max", "wait_ms", "end_offset"])
def test_a_number_that_is_none_is_refused(server: MagnetarProcess, name: str, number: str) -> None:
    query = {"topic": "nothing", "partition": "0", "offset": "0", name: number}
    status, answer = ask(server, "GET", f"{ENTRIES}?{urllib.parse.urlencode(query)}")
    if number == "1" * 19 and name != "partition":
        assert (status, answer["error"]) == (404, "UNKNOWN_TOPIC")
    else:
        assert status in (400, 404), answer


@pytest.mark.parametrize(
    "names", ["..", "a/b", "persistent://x/y", "t" * 10_000, "t-partition-0", "\0", "persistent://a/b/c/d/e"]
)
def test_names_that_cannot_be_topics_are_refused(client: RestClient, names: str) -> None:
    with pytest.raises(Refused) as refusal:
        client.entries(names, 0, 0)
    assert refusal.value.code in ("INVALID_TOPIC_NAME", "UNKNOWN_TOPIC")
    assert client.segments([Range(names, 0)]).partitions[0].error == refusal.value.code
    with pytest.raises(Refused):
        client.schema(names)


def test_positions_that_are_wrong_change_nothing(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "unmoved")
    for body in (
        {"subscription": "", "positions": []},
        {"subscription": 5, "positions": []},
        {"subscription": "s" * 100_000, "positions": [{"topic": "unmoved", "partition": 0, "offset": 0}]},
        {"subscription": "s", "positions": [{"topic": "unmoved", "partition": 0, "offset": -1}]},
        {"subscription": "s", "positions": [{"topic": "unmoved", "partition": 0}]},
        {"subscription": "s", "positions": [{"topic": "unmoved", "partition": 0, "offset": 0}, 5]},
    ):
        status, answer = ask(server, "POST", POSITIONS, json.dumps(body).encode())
        assert 400 <= status < 500, (body, answer)
    with pytest.raises(NotFound):
        client.positions("s")
    status, _ = ask(server, "GET", POSITIONS)
    assert status == 400


def test_an_offset_ahead_of_the_log_is_refused_at_once(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "behind")
    begun = time.monotonic()
    with pytest.raises(OutOfRange):
        client.entries("behind", 0, 1 << 60, wait_ms=30_000)
    assert time.monotonic() - begun < 20


def test_a_reader_that_waits_for_a_topic_that_is_deleted_gets_an_error(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "doomed")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    timer = threading.Timer(0.3, lambda: admin.delete_topics(["doomed"])["doomed"].result(TIMEOUT_S))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(NotFound, match="deleted"):
        client.entries("doomed", 0, 0, wait_ms=30_000)
    timer.join()
    assert time.monotonic() - begun < 10


def test_one_record_larger_than_asked_for_is_given_whole(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "large")
    produce(server, "large", 3, size=300_000, **{"batch.num.messages": 1})
    answer = client.entries("large", 0, 1, bytes_max=0)
    assert 300_000 < len(answer.data) < 310_000
    assert len(client.entries("large", 0, 0, bytes_max=1 << 60).data) > 900_000


def waiting(server: MagnetarProcess, topic: str) -> socket.socket:
    """A connection that waits for a record."""
    made = socket.create_connection(("127.0.0.1", server.http_port))
    path = f"{ENTRIES}?topic={topic}&partition=0&offset=0&wait_ms=30000"
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return made


def test_clients_that_give_up_waiting_make_room_for_others(server: MagnetarProcess) -> None:
    make_topic(server, "crowded")
    with RestClient(server.http_url, retry_s=0) as client:
        crowd = [waiting(server, "crowded") for _ in range(WAITERS_MAX)]
        deadline = time.monotonic() + TIMEOUT_S
        while refusal_of(client) != "CROWDED":  # until the server has read what all of them want
            assert time.monotonic() < deadline
        assert client.entries("crowded", 0, 0).data == b""  # a request that does not wait is answered
        for one in crowd:
            one.close()
        while refusal_of(client) == "CROWDED":
            assert time.monotonic() < deadline
            time.sleep(0.02)


def refusal_of(client: RestClient) -> str:
    try:
        client.entries("crowded", 0, 0, wait_ms=50)
    except Unavailable as refusal:
        return refusal.code
    return ""


def test_a_server_that_stops_answers_readers_that_wait() -> None:
    with MagnetarProcess() as server:
        make_topic(server, "awaited")
        waiters = [waiting(server, "awaited") for _ in range(20)]
        with RestClient(server.http_url) as client:
            client.entries("awaited", 0, 0, wait_ms=200)  # the others are waiting by now
        begun = time.monotonic()
        server.terminate()
        assert time.monotonic() - begun < 15
        for one in waiters:
            one.settimeout(TIMEOUT_S)
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
            one.close()

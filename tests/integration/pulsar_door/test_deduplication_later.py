"""Deduplication is turned on for topics that have messages: a real client sends again what is in the log already."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.server.wire import eventually

NAMESPACE = "public/dedup-later"
TIMEOUT_MS = 20_000


def call(server: MagnetarProcess, method: str, path: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{server.http_url}/admin/v2/{path}", data=data, method=method, headers=headers
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


def of_namespace(server: MagnetarProcess, topic: str, on: bool) -> None:
    call(server, "POST", f"namespaces/{NAMESPACE}/deduplication", on)


def of_topic(server: MagnetarProcess, topic: str, on: bool) -> None:
    call(server, "POST", f"{topic.replace('://', '/')}/deduplicationEnabled", on)


def send(client: pulsar.Client, topic: str, name: str, numbers: range) -> None:
    """Send messages with sequence ids of their own, whatever the server says was the last one.  They begin at 1: the
    client takes 0 for none.
    """
    producer = client.create_producer(topic, producer_name=name)
    for number in numbers:
        producer.send(f"{name} {number}".encode(), sequence_id=number + 1)
    producer.close()


def contents(client: pulsar.Client, topic: str) -> list[str]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(TIMEOUT_MS).data().decode())
    reader.close()
    return found


def expected(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


@pytest.mark.parametrize("turn", [of_namespace, of_topic])
def test_what_is_in_the_log_is_not_stored_again(
    server: MagnetarProcess, client: pulsar.Client, turn: Callable[[MagnetarProcess, str, bool], None]
) -> None:
    if NAMESPACE not in json.loads(call(server, "GET", "namespaces/public")):
        call(server, "PUT", f"namespaces/{NAMESPACE}")
    of_namespace(server, "", False)
    topic = f"persistent://{NAMESPACE}/{turn.__name__}"
    send(client, topic, "gone", range(10))
    there = client.create_producer(topic, producer_name="there")
    for number in range(3):
        there.send(f"there {number}".encode())
    turn(server, topic, True)
    there.send(b"there 3")
    assert there.last_sequence_id() == 3, "it was disconnected, came again, and goes on where it was"
    again = client.create_producer(topic, producer_name="gone", initial_sequence_id=4)
    for number in range(4, 12):
        again.send(f"gone {number}".encode())
    again.close()
    everything = [*expected("gone", 10), *expected("there", 4), "gone 10", "gone 11"]
    assert contents(client, topic) == everything
    turn(server, topic, False)
    send(client, topic, "between", range(5))
    turn(server, topic, True)
    send(client, topic, "between", range(7))
    again = client.create_producer(topic, producer_name="gone")
    assert again.last_sequence_id() == 12
    again.send(b"gone 12")
    assert contents(client, topic) == [*everything, *expected("between", 7), "gone 12"]


def test_a_producer_that_has_sent_nothing_yet_learns_what_its_name_has_sent(
    server: MagnetarProcess, client: pulsar.Client
) -> None:
    """If it began at 0, the server would take its first messages for those of its earlier life, and lose them."""
    topic = "persistent://public/default/dedup-idle"
    send(client, topic, "idle", range(10))
    idle = client.create_producer(topic, producer_name="idle")
    assert idle.last_sequence_id() == -1
    of_topic(server, topic, True)
    eventually(lambda: idle.last_sequence_id() == 10, "it was not told its last sequence id")
    idle.send(b"idle 10")
    assert contents(client, topic) == expected("idle", 11)


@pytest.mark.crash
def test_a_kill_after_it_was_turned_on_loses_nothing_of_what_was_sent_before(tmp_path: Path) -> None:
    """The snapshot that the first end of the server stores was made without deduplication."""
    topic = "persistent://public/default/t"
    with MagnetarProcess(data_dir=tmp_path) as server:
        client = pulsar.Client(server.pulsar_url)
        send(client, topic, "p", range(20))
        client.close()
    with MagnetarProcess(data_dir=tmp_path) as server:
        of_topic(server, topic, True)
        server.kill()
    with MagnetarProcess(data_dir=tmp_path) as server:
        client = pulsar.Client(server.pulsar_url)
        send(client, topic, "p", range(10, 25))
        assert contents(client, topic) == expected("p", 25)
        client.close()
        server.kill()
    with MagnetarProcess(data_dir=tmp_path) as server:
        client = pulsar.Client(server.pulsar_url)
        send(client, topic, "p", range(26))
        assert contents(client, topic) == expected("p", 26)
        client.close()


def test_the_server_s_setting_turns_it_on_for_topics_without_a_policy(tmp_path: Path) -> None:
    topic = "persistent://public/default/t"
    for setting, again in (("false", 10), ("true", 12)):
        with MagnetarProcess(data_dir=tmp_path, settings={"brokerDeduplicationEnabled": setting}) as server:
            client = pulsar.Client(server.pulsar_url)
            send(client, topic, "p", range(again))
            assert contents(client, topic) == expected("p", again)
            applied = call(server, "GET", f"{topic.replace('://', '/')}/deduplicationEnabled?applied=true")
            assert applied.decode() == setting
            client.close()

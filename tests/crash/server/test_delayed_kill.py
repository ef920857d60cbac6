"""Delayed messages under `kill -9`: their index is in memory only, and the log has them."""

import random
import time

import pulsar
import pytest
from pulsar import ConsumerType

from magnetar.testing.server import MagnetarProcess

COUNT = 400
TOPIC = "persistent://public/default/delayed"
WAIT_MS = 60_000


@pytest.mark.crash
@pytest.mark.parametrize("seed", [20261126])
@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared])
def test_a_kill_loses_no_delayed_message_and_delivers_none_before_its_time(
    seed: int, kind: ConsumerType
) -> None:
    rng = random.Random(seed)
    with MagnetarProcess() as server:
        client = pulsar.Client(server.pulsar_url)
        consumer = client.subscribe(TOPIC, "s", consumer_type=kind)
        producer = client.create_producer(TOPIC)
        first_ms = time.time_ns() // 1_000_000 + 6_000
        times = {}
        for number in range(COUNT):
            at_ms = first_ms + rng.randrange(6_000)
            times[b"%d" % number] = at_ms
            producer.send_async(b"%d" % number, None, deliver_at=at_ms, partition_key=str(number % 7))
        producer.send(b"now")
        producer.flush()
        message = consumer.receive(WAIT_MS)
        assert message.data() == b"now"
        consumer.acknowledge(message)
        client.close()
        server.kill()
        server.start()
        client = pulsar.Client(server.pulsar_url)
        consumer = client.subscribe(TOPIC, "s", consumer_type=kind)
        got: set[bytes] = set()
        while len(got) < COUNT:
            message = consumer.receive(WAIT_MS)
            now_ms = time.time_ns() // 1_000_000
            if message.data() != b"now":  # the kill may have been faster than its acknowledgement
                assert times[message.data()] <= now_ms
                got.add(message.data())
            consumer.acknowledge(message)
        client.close()
    assert got == set(times)

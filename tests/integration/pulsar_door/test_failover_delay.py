"""`activeConsumerFailoverDelayTimeMillis`: real clients take over from each other, and get nothing twice."""

import urllib.request

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess

TOPIC = "persistent://public/default/failover-delay"
TIMEOUT_MS = 30_000


def make_topic(server: MagnetarProcess) -> None:
    path = f"{server.http_url}/admin/v2/{TOPIC.replace('://', '/')}/partitions"
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(path, b"1", headers, method="PUT"), timeout=10):
        pass


def subscribe(client: pulsar.Client, name: str) -> pulsar.Consumer:
    """Of one partition the first consumer by name is the active one, so `a` takes over from `b` while `b` is there."""
    return client.subscribe(TOPIC, "s", consumer_type=pulsar.ConsumerType.Failover, consumer_name=name)


def test_who_takes_over_does_not_get_what_is_acknowledged_in_the_delay() -> None:
    with MagnetarProcess(settings={"activeConsumerFailoverDelayTimeMillis": "5000"}) as server:
        make_topic(server)
        client = pulsar.Client(server.pulsar_url)
        producer = client.create_producer(TOPIC)
        former = subscribe(client, "b")
        for number in range(10):
            producer.send(b"%d" % number)
        got = [former.receive(TIMEOUT_MS) for _ in range(10)]
        following = subscribe(client, "a")
        for message in got:
            former.acknowledge(message)
        producer.send(b"next")
        assert following.receive(TIMEOUT_MS).data() == b"next"
        client.close()


def test_the_delay_is_as_long_as_the_setting_says() -> None:
    with MagnetarProcess(settings={"activeConsumerFailoverDelayTimeMillis": "3600000"}) as server:
        make_topic(server)
        client = pulsar.Client(server.pulsar_url)
        subscribe(client, "b")
        following = subscribe(client, "a")
        client.create_producer(TOPIC).send(b"next")
        with pytest.raises(pulsar.Timeout):
            following.receive(3000)
        client.close()

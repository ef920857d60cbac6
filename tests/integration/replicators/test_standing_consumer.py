"""A consumer that takes nothing, as `pulsar-client` and the admin API see it."""

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pulsar
import pytest

from magnetar.client.login import Login
from magnetar.client.rest import RestClient
from magnetar.client.standing_consumer import StandingConsumer
from magnetar.testing.server import MagnetarProcess
from tests.integration.server.wire import eventually

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SUBSCRIPTION = "pulsar.repl.Kafka.us-west1"


@pytest.fixture
def client(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    silent = logging.getLogger("silent")
    silent.setLevel(logging.CRITICAL + 1)
    made = pulsar.Client(server.pulsar_url, logger=silent)
    yield made
    made.close()


def stats(server: MagnetarProcess, topic: str) -> dict[str, Any]:
    """What `pulsar-admin topics stats` has of the subscription.  While the server makes it, the answer may be 404."""
    path = topic.replace("://", "/")
    found: dict[str, Any] = {"consumers": []}
    with (
        suppress(urllib.error.HTTPError),
        urllib.request.urlopen(f"{server.http_url}/admin/v2/{path}/stats") as answer,
    ):
        found = json.load(answer)["subscriptions"].get(SUBSCRIPTION, found)
    return found


def standing(server: MagnetarProcess, topic: str) -> StandingConsumer:
    return StandingConsumer(server.http_url, Login(), topic, SUBSCRIPTION, "replicator-x")


def test_a_subscription_has_one_consumer_until_it_is_closed_and_stays(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    name = f"persistent://public/default/{topic}"
    producer = client.create_producer(name)
    for number in range(10):
        producer.send(b"%d" % number)
    consumer = standing(server, name)
    eventually(lambda: len(stats(server, name)["consumers"]) == 1, "the consumer is there")
    assert stats(server, name)["msgBacklog"] == 10
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
    consumer.close()
    assert stats(server, name)["consumers"] == []
    assert stats(server, name)["msgBacklog"] == 10


def test_its_subscription_moves_while_it_stands_there(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    name = f"persistent://public/default/{topic}"
    producer = client.create_producer(name)
    for number in range(10):
        producer.send(b"%d" % number)
    consumer = standing(server, name)
    eventually(lambda: len(stats(server, name)["consumers"]) == 1, "the consumer is there")
    with RestClient(server.http_url) as rest:
        rest.set_positions(SUBSCRIPTION, [(name, 0, 7)])
        assert [position.offset for position in rest.positions(SUBSCRIPTION, [name])] == [7]
    assert (len(stats(server, name)["consumers"]), stats(server, name)["msgBacklog"]) == (1, 3)
    consumer.close()


def test_each_partition_has_one_and_they_come_back_after_a_restart(topic: str) -> None:
    name = f"persistent://public/default/{topic}"
    with MagnetarProcess() as server:
        request = urllib.request.Request(
            f"{server.http_url}/admin/v2/persistent/public/default/{topic}/partitions", b"2", method="PUT"
        )
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()

        def is_on_both() -> bool:
            found = [stats(server, f"{name}-partition-{number}")["consumers"] for number in (0, 1)]
            return [len(one) for one in found] == [1, 1]

        consumer = standing(server, name)
        eventually(is_on_both, "each partition has a consumer")
        server.kill()
        server.restart()
        eventually(is_on_both, "each partition has a consumer again")
        consumer.close()
        assert not any(stats(server, f"{name}-partition-{number}")["consumers"] for number in (0, 1))

"""pulsar-client's consumers get no more than they may leave unacknowledged, as policies or the configuration say."""

import json

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask

from .clients import new_client
from .consuming import WAIT_MS, Fill, nothing_comes, numbers, take

ADMIN = "/admin/v2/persistent/public/default"
JSON = {"Content-Type": "application/json"}


def set_limit(server: MagnetarProcess, topic: str, name: str, limit: int) -> None:
    where = f"{server.http_url}{ADMIN}/{topic.rpartition('/')[2]}/{name}"
    assert ask(where, JSON, method="POST", body=b"%d" % limit)[0] == 204


def blocked(server: MagnetarProcess, topic: str) -> tuple[bool, bool]:
    """Whether stats show the first consumer, and the subscription, as blocked."""
    where = f"{server.http_url}{ADMIN}/{topic.rpartition('/')[2]}/stats"
    stats = json.loads(ask(where)[1])["subscriptions"]["s"]
    return stats["consumers"][0]["blockedConsumerOnUnackedMsgs"], stats["blockedSubscriptionOnUnackedMsgs"]


@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("name", "seen"),
    [("maxUnackedMessagesOnConsumer", (True, False)), ("maxUnackedMessagesOnSubscription", (False, True))],
)
def test_a_topics_limit(
    server: MagnetarProcess,
    client: pulsar.Client,
    topic: str,
    fill: Fill,
    kind: ConsumerType,
    name: str,
    seen: tuple[bool, bool],
) -> None:
    fill(topic, 30, batching_enabled=False)
    set_limit(server, topic, name, 10)
    consumer = client.subscribe(topic, "s", consumer_type=kind, initial_position=InitialPosition.Earliest)
    first = [consumer.receive(WAIT_MS) for _ in range(10)]
    assert nothing_comes(consumer)
    assert blocked(server, topic) == seen
    for message in first[:5]:
        consumer.acknowledge(message)
    second = [consumer.receive(WAIT_MS) for _ in range(5)]
    assert nothing_comes(consumer)
    for message in [*first[5:], *second]:
        consumer.acknowledge(message)
    found = [message.data() for message in [*first, *second]] + take(consumer, 15)
    assert sorted(found, key=int) == numbers(0, 30)
    assert blocked(server, topic) == (False, False)


def test_the_configurations_limits_hold_where_no_policy_does() -> None:
    settings = {"maxUnackedMessagesPerConsumer": "3", "maxUnackedMessagesPerSubscription": "5"}
    with MagnetarProcess(settings=settings) as server:
        client = new_client(server.pulsar_url)
        topic = "persistent://public/default/limited"
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(9):
            producer.send(b"%d" % number)
        where = f"{server.http_url}{ADMIN}/limited"
        for name, limit in [("Consumer", b"3"), ("Subscription", b"5")]:
            assert ask(f"{where}/maxUnackedMessagesOn{name}?applied=true")[1] == limit
        consumers = [
            client.subscribe(
                topic, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
            )
            for _ in range(2)
        ]
        take(consumers[0], 3, acknowledge=False)
        take(consumers[1], 2, acknowledge=False)
        assert all(nothing_comes(one) for one in consumers)
        client.close()

"""pulsar-client consumes: every subscription type, what is acknowledged and what comes again."""

import json
import time
import urllib.request
from collections.abc import Callable

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from magnetar.testing.server import MagnetarProcess

from .clients import new_client
from .consuming import ALL_TYPES, WAIT_MS, Fill, nothing_comes, numbers, take

# Subscription types


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_what_is_acknowledged_never_comes_again(
    client: pulsar.Client, topic: str, fill: Fill, kind: ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    fill(topic, 50)
    assert sorted(take(consumer, 50)) == sorted(numbers(0, 50))
    consumer.close()
    fill(topic, 5, first=50)
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    assert sorted(take(consumer, 5)) == numbers(50, 55)
    assert nothing_comes(consumer)
    consumer.unsubscribe()
    consumer = client.subscribe(topic, "s", consumer_type=kind, initial_position=InitialPosition.Earliest)
    assert len(take(consumer, 55)) == 55


def test_a_second_exclusive_consumer_is_refused(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_another_type_is_refused_while_consumers_are_connected(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)
    consumer.close()
    client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)


def test_shared_consumers_share_and_what_one_leaves_goes_to_the_other(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    other_client = new_client(server.pulsar_url)
    second = other_client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    fill(topic, 200, batching_enabled=False)
    mine = take(first, 20)
    theirs = take(second, 20, acknowledge=False)
    assert not set(mine) & set(theirs)
    other_client.close()
    assert sorted(mine + take(first, 180)) == sorted(numbers(0, 200))


def test_failover_goes_over_in_order(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    other = new_client(server.pulsar_url)
    consumers = {
        name: (owner, owner.subscribe(topic, "s", consumer_type=ConsumerType.Failover, consumer_name=name))
        for name, owner in (("a", client), ("b", other))
    }
    fill(topic, 20, batching_enabled=False)
    active, idle = "a", "b"
    first: list[bytes] = []
    while not first:
        try:
            message = consumers[active][1].receive(200)
        except pulsar.Timeout:
            active, idle = idle, active
            continue
        consumers[active][1].acknowledge(message)
        first = [message.data(), *take(consumers[active][1], 9)]
    nothing_comes(consumers[idle][1])
    assert first == numbers(0, 10)
    consumers[active][1].close()
    assert take(consumers[idle][1], 10) == numbers(10, 20)
    other.close()


def test_key_shared_keeps_the_order_of_a_key_over_joins_and_leaves(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    consumers = [client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared, consumer_name="c0")]
    seen: dict[str, list[int]] = {}

    def consume() -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < 0.5:
            for consumer in consumers:
                try:
                    message = consumer.receive(20)
                except pulsar.Timeout:
                    continue
                seen.setdefault(message.partition_key(), []).append(int(message.data()))
                consumer.acknowledge(message)
                idle_since = time.monotonic()

    sent = 0
    for step in range(4):
        for _ in range(50):
            producer.send(b"%d" % sent, partition_key=f"k{sent % 7}")
            sent += 1
        if step == 0:
            consumers.append(
                client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared, consumer_name="c1")
            )
        if step == 2:
            consumers.pop(0).close()
        consume()
    assert sum(map(len, seen.values())) == sent
    assert all(order == sorted(order) for order in seen.values())


def test_two_clients_use_one_consumer_name_and_both_get_messages(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    other = new_client(server.pulsar_url)
    consumers = [
        owner.subscribe(
            topic, "s", consumer_type=ConsumerType.Shared, consumer_name="same", receiver_queue_size=10
        )
        for owner in (client, other)
    ]
    fill(topic, 100, batching_enabled=False)
    found = [take(consumer, 10) for consumer in consumers]
    assert not set(found[0]) & set(found[1])
    other.close()


# Acknowledging and redelivery


def test_negative_acknowledgements_come_again_with_a_count(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
    )
    fill(topic, 2, batching_enabled=False)
    first, second = (consumer.receive(WAIT_MS) for _ in range(2))
    consumer.acknowledge(second)
    for count in range(1, 4):
        consumer.negative_acknowledge(first)
        first = consumer.receive(WAIT_MS)
        assert (first.data(), first.redelivery_count()) == (b"0", count)
    consumer.acknowledge(first)
    assert nothing_comes(consumer)


def test_exclusive_consumers_get_everything_again_in_order(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s")
    fill(topic, 10, batching_enabled=False)
    assert take(consumer, 4) == numbers(0, 4)
    take(consumer, 6, acknowledge=False)
    consumer.redeliver_unacknowledged_messages()
    assert take(consumer, 6) == numbers(4, 10)


@pytest.mark.slow
def test_unacknowledged_messages_come_again_after_the_clients_timeout(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=10_000
    )
    fill(topic, 1)
    consumer.receive(WAIT_MS)
    again = consumer.receive(30_000)
    assert (again.data(), again.redelivery_count()) == (b"0", 1)


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(
        max_redeliver_count=2, dead_letter_topic=f"{topic}-DLQ", initial_subscription_name="kept"
    )
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    fill(topic, 1)
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    dead = client.subscribe(f"{topic}-DLQ", "kept")
    message = dead.receive(WAIT_MS)
    assert message.data() == b"0"
    assert message.properties()["REAL_TOPIC"].endswith(topic)
    assert nothing_comes(consumer)


def test_messages_of_a_batch_are_acknowledged_one_by_one(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    def subscribe() -> pulsar.Consumer:
        return client.subscribe(topic, "s", batch_index_ack_enabled=True)

    consumer = subscribe()
    fill(topic, 10, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    for number in range(10):
        message = consumer.receive(WAIT_MS)
        if number % 2 == 0:
            consumer.acknowledge(message)
    consumer.close()
    consumer = subscribe()
    assert take(consumer, 5) == [b"1", b"3", b"5", b"7", b"9"]
    consumer.close()
    assert nothing_comes(subscribe())


def test_cumulative_acknowledgements_in_the_middle_of_a_batch(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    fill(topic, 20, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    messages = [consumer.receive(WAIT_MS) for _ in range(20)]
    consumer.acknowledge_cumulative(messages[13])
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert take(consumer, 6) == numbers(14, 20)


# Listeners


def test_a_paused_listener_hears_what_came_meanwhile_when_it_goes_on(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    heard: list[bytes] = []

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", message_listener=listen)
    fill(topic, 5)
    _until(lambda: len(heard) == 5)
    consumer.pause_message_listener()
    fill(topic, 5, first=5)
    _until(lambda: delivered(server, topic, "s") == 10)  # into the client's queue
    assert len(heard) == 5
    consumer.resume_message_listener()
    _until(lambda: len(heard) == 10)
    assert heard == numbers(0, 10)


def delivered(server: MagnetarProcess, topic: str, subscription: str) -> int:
    """How many messages were sent to the subscription's consumers."""
    url = f"{server.http_url}/admin/v2/persistent/public/default/{topic}/stats"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(json.load(answer)["subscriptions"][subscription]["msgOutCounter"])


def _until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


# A small receiver queue, and a large backlog


@pytest.mark.parametrize("size", [1, 1000])
def test_a_backlog_is_read_whatever_the_receiver_queue(
    client: pulsar.Client, topic: str, fill: Fill, size: int
) -> None:
    client.subscribe(topic, "s").close()
    fill(topic, 3000, batching_enabled=True, max_pending_messages=5000)
    consumer = client.subscribe(topic, "s", receiver_queue_size=size)
    assert take(consumer, 3000) == numbers(0, 3000)


def test_a_consumer_without_a_receiver_queue_asks_for_each_message(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    fill(topic, 50, batching_enabled=False)
    found = []
    for _ in range(50):
        message = consumer.receive()  # with a queue of none the client takes no timeout
        found.append(message.data())
        consumer.acknowledge(message)
    assert found == numbers(0, 50)

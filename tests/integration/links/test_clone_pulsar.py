"""Topics of a real Apache Pulsar, copied by the command, as clients of both sides see them."""

from collections.abc import Iterator
from functools import partial

import pulsar
import pulsar.schema as schemas
import pytest

from magnetar.testing.server import MagnetarProcess, free_ports
from tests.peers import is_here
from tests.pulsar_peer import PulsarPeer, admin

from .cloning import Cloning, clone, cut, eventually, is_linked, link_of
from .pulsar_topics import (
    NAMESPACE,
    address,
    connected,
    entries,
    has_left,
    is_same,
    new_topic,
    numbers_of,
    publish,
    read_all,
    received,
    seen,
)

pytestmark = [
    pytest.mark.clients,
    pytest.mark.peers,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_here("pulsar"), reason="needs Java and the peer script of Pulsar"),
]

COMPRESSIONS = (
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarPeer]:
    settings = {"brokerDeleteInactiveTopicsEnabled": "false", "defaultRetentionTimeInMinutes": "600"}
    with PulsarPeer(tmp_path_factory.mktemp("pulsar"), **settings) as running:
        yield running


def test_every_message_is_the_same_with_keys_properties_batches_and_compression(
    source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url, 3)
    for number, compression in enumerate(COMPRESSIONS):
        numbers = range(200 * number, 200 * number + 200)
        batched = number % 2 == 0
        publish(source.url, topic, numbers, compression_type=compression, batching_enabled=batched)
    said = clone(address(source.url, topic), server)
    assert "1,000 records are copied" in said
    theirs = entries(source.url, topic)
    assert entries(server.pulsar_url, topic) == theirs
    assert 500 > sum(map(len, theirs.values())) > 400, "some are batches"
    counts = [
        admin(source.http_url, f"persistent/{NAMESPACE}/{topic}-partition-{index}/stats")["msgInCounter"]
        for index in range(3)
    ]
    assert sum(counts) == 1000
    assert seen(server.pulsar_url, topic, counts) == seen(source.url, topic, counts)
    server.kill()
    server.restart()
    assert entries(server.pulsar_url, topic) == theirs
    assert clone(address(source.url, topic), server).startswith("subscriptions are not copied")
    assert entries(server.pulsar_url, topic) == theirs


def test_messages_larger_than_one_entry_come_too(source: PulsarPeer, server: MagnetarProcess) -> None:
    topic = new_topic(source.http_url)
    content = bytes(range(256)) * (50 << 10)  # 12.5 MiB in chunks of 5
    with connected(source.url) as client:
        producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        producer.send(content)
        producer.send(b"small")
    clone(address(source.url, topic), server)
    assert entries(server.pulsar_url, topic) == entries(source.url, topic)
    ((large, small),) = seen(server.pulsar_url, topic, [2])
    assert large.data == content
    assert small.data == b"small"


class Order(schemas.Record):  # type: ignore[misc]
    number = schemas.Integer()


class NotedOrder(schemas.Record):  # type: ignore[misc]
    number = schemas.Integer()
    note = schemas.String(required_default=True)


NotedOrder.__name__ = "Order"  # one record, whose schema has changed


def test_schemas_have_the_same_versions(source: PulsarPeer, server: MagnetarProcess) -> None:
    topic = new_topic(source.http_url, 2)
    path = f"schemas/{NAMESPACE}/{topic}/schemas"
    with Cloning(address(source.url, topic), server, "--follow"):
        eventually(lambda: is_linked(server, topic), "the topic is not linked")
        with connected(source.url) as client:
            first = client.create_producer(topic, schema=schemas.JsonSchema(Order))
            first.send(Order(number=1))
            second = client.create_producer(topic, schema=schemas.JsonSchema(NotedOrder))
            second.send(NotedOrder(number=2, note="two"))
        eventually(lambda: is_same(source.url, server.pulsar_url, topic), "the copy is not the same")
    theirs, ours = admin(source.http_url, path), admin(server.http_url, path)
    shown = ("version", "type", "data", "properties")
    assert [[one[name] for name in shown] for one in ours["getSchemaResponses"]] == [
        [one[name] for name in shown] for one in theirs["getSchemaResponses"]
    ]
    assert len(ours["getSchemaResponses"]) == 2
    with connected(server.pulsar_url) as client:
        consumer = client.subscribe(
            topic,
            "typed",
            schema=schemas.JsonSchema(NotedOrder),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        values = [message.value() for message in received(consumer, 2)]
    assert sorted((one.number, one.note) for one in values) == [(1, None), (2, "two")]


def test_subscriptions_resume_without_a_repeated_or_a_missing_message(
    source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url, 2)
    left: dict[str, set[int]] = {}
    with connected(source.url) as client:
        earliest = pulsar.InitialPosition.Earliest
        holes = client.subscribe(topic, "with holes", pulsar.ConsumerType.Shared, initial_position=earliest)
        front = client.subscribe(topic, "front", pulsar.ConsumerType.Failover, initial_position=earliest)
        untouched = client.subscribe(topic, "a/b c+d%", initial_position=earliest)
        publish(source.url, topic, range(600), batching_enabled=False)
        left["a/b c+d%"] = set(range(600))
        left["with holes"] = set(range(600))
        for message in received(holes, 400):
            number = int(message.data())
            if number % 7 and number % 31 != 5:
                holes.acknowledge(message)
                left["with holes"].remove(number)
        left["front"] = set(range(600))
        for message in received(front, 250):
            front.acknowledge(message)
            left["front"].remove(int(message.data()))
        for consumer in (holes, front, untouched):
            consumer.close()
    for name, numbers in left.items():
        acknowledged = partial(has_left, source.http_url, topic, name, len(numbers), 2)
        eventually(acknowledged, f"the source has not noted what {name} has acknowledged")
    clone(address(source.url, topic), server, "--source-admin", source.http_url)
    for _ in range(2):
        for name, numbers in left.items():
            assert has_left(server.http_url, topic, name, len(numbers), 2), name
        server.kill()
        server.restart()
    with connected(server.pulsar_url) as client:
        for name, numbers in left.items():
            consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
            rest = received(consumer, len(numbers))
            assert sorted(numbers_of(rest)) == sorted(numbers), name
            for message in rest:
                consumer.acknowledge(message)
            eventually(partial(has_left, server.http_url, topic, name, 0, 2), "there is still a backlog")
            consumer.close()
    # They have moved over: what the source still shows takes nothing back.
    clone(address(source.url, topic), server, "--source-admin", source.http_url)
    assert all(has_left(server.http_url, topic, name, 0, 2) for name in left)


def test_a_subscription_is_followed_while_it_is_used_in_the_source(
    source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url)
    arguments = ("--follow", "--source-admin", source.http_url)
    with Cloning(address(source.url, topic), server, *arguments), connected(source.url) as client:
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        eventually(lambda: is_linked(server, topic), "the topic is not linked")
        publish(source.url, topic, range(100), batching_enabled=False)
        messages = received(consumer, 100)
        for message in messages[10:60]:
            consumer.acknowledge(message)
        eventually(partial(has_left, server.http_url, topic, "s", 50), "the hole is not copied")
        for message in messages[:10]:
            consumer.acknowledge(message)
        eventually(partial(has_left, server.http_url, topic, "s", 40), "the position is not followed")


def refusal(server: MagnetarProcess, topic: str) -> str:
    with connected(server.pulsar_url) as client, pytest.raises(pulsar.PulsarException) as raised:
        client.create_producer(topic)
    return str(raised.value)


def test_only_the_link_writes_until_the_topic_is_cut_loose(
    source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url)
    publish(source.url, topic, range(10))
    clone(address(source.url, topic), server)
    for _ in range(2):
        assert "NotAllowed" in refusal(server, topic)
        server.restart()
    cut(server, topic)
    publish(server.pulsar_url, topic, [10])
    ((*_, last),) = seen(server.pulsar_url, topic, [11])
    assert last.data == b"10"
    code, said = Cloning(address(source.url, topic), server).run()
    assert code == 1
    assert "exists and is not linked" in said
    assert "Traceback" not in said


def test_what_follows_comes_too_over_kills_of_the_link_the_server_and_the_source(
    source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url, 2)
    place = address(source.url, topic)
    publish(source.url, topic, range(20_000))
    for number in range(1, 4):
        with Cloning(place, server, "--follow") as link:
            eventually(lambda: is_linked(server, topic), "the topic is not linked")
            publish(source.url, topic, range(20_000 * number, 20_000 * number + 20_000))
            link.kill()
    with Cloning(place, server, "--follow"):
        publish(source.url, topic, range(80_000, 100_000))
        server.kill()
        publish(source.url, topic, range(100_000, 105_000))
        server.restart()
        eventually(lambda: is_same(source.url, server.pulsar_url, topic), "the copy is not the same")
        source.kill()
        eventually(lambda: link_of(server, topic).error != "", "no trouble is reported")
        source.start()
        clone(place, server)  # which ends, although the source's newest ledger is empty
        publish(source.url, topic, range(105_000, 106_000))
        admin(source.http_url, f"persistent/{NAMESPACE}/{topic}/partitions", "POST", 3)
        publish(source.url, topic, range(106_000, 107_000))
        eventually(lambda: is_same(source.url, server.pulsar_url, topic), "the copy is not the same", 120)
        eventually(lambda: link_of(server, topic).lag == 0, "the lag is not reported")
        eventually(lambda: link_of(server, topic).error == "", "the trouble is still reported")
    copied = read_all(server.pulsar_url, topic)
    assert len(copied) == 3
    assert sum(one.message_count for found in copied.values() for one in found) == 107_000


def test_two_links_of_one_topic_copy_each_message_once(source: PulsarPeer, server: MagnetarProcess) -> None:
    topic = new_topic(source.http_url, 2)
    publish(source.url, topic, range(10_000))
    place = address(source.url, topic)
    with Cloning(place, server, "--follow"), Cloning(place, server, "--follow"):
        for number in range(1, 4):
            publish(source.url, topic, range(10_000 * number, 10_000 * number + 10_000))
        eventually(lambda: is_same(source.url, server.pulsar_url, topic), "the copy is not the same")
        publish(source.url, topic, range(100))
        eventually(lambda: is_same(source.url, server.pulsar_url, topic), "the links have stopped")


def test_topics_of_a_namespace_are_found_by_their_names(source: PulsarPeer, server: MagnetarProcess) -> None:
    topic = new_topic(source.http_url)
    other = new_topic(source.http_url, 2)
    for name in (topic, other):
        publish(source.url, name, range(10))
    with Cloning(f"{source.url}/{NAMESPACE}", server, "--topics", f"{topic}|{other}|later.*", "--follow"):
        for name in (topic, other):
            eventually(partial(is_same, source.url, server.pulsar_url, name), "a topic is not copied")
        publish(source.url, f"later-{topic}", range(10))
        eventually(lambda: is_linked(server, f"later-{topic}"), "the new topic is not found")
    with connected(server.pulsar_url) as client:
        assert client.get_topic_partitions(topic) == [f"persistent://{NAMESPACE}/{topic}"]


def test_only_messages_since_a_time_come(source: PulsarPeer, server: MagnetarProcess) -> None:
    topic = new_topic(source.http_url)
    publish(source.url, topic, range(100), batching_enabled=False)
    (every,) = read_all(source.url, topic).values()
    ((*messages,),) = seen(source.url, topic, [100])
    middle_ms = messages[50].publish_ms
    (since,) = read_all(source.url, topic, middle_ms).values()
    first = next(index for index, one in enumerate(messages) if one.publish_ms >= middle_ms)
    assert since == every[first:]
    clone(address(source.url, topic), server, "--since", "1ms")
    assert entries(server.pulsar_url, topic) == {0: []}
    clone(address(source.url, topic), server, "--since", "7d")
    assert entries(server.pulsar_url, topic) == entries(source.url, topic)


def test_a_copy_goes_on_only_from_the_same_address(source: PulsarPeer, server: MagnetarProcess) -> None:
    topic = new_topic(source.http_url)
    publish(source.url, topic, range(10))
    clone(address(source.url, topic), server)
    code, said = Cloning(address(source.url.replace("127.0.0.1", "localhost"), topic), server).run()
    assert code == 1
    assert "is a copy of another topic" in said


def test_a_wrong_address_a_missing_topic_and_a_wrong_admin_are_one_sentence(
    source: PulsarPeer, server: MagnetarProcess
) -> None:
    topic = new_topic(source.http_url)
    publish(source.url, topic, range(3))
    (port,) = free_ports(1)
    cases: tuple[tuple[str, tuple[str, ...], str], ...] = (
        (address(f"pulsar://127.0.0.1:{port}", topic), (), "does not answer"),
        (address(source.http_url.replace("http:", "pulsar:"), topic), (), "does not answer"),
        (address(source.url, "no-such-topic"), (), "has no topic whose name fits"),
        (f"{source.url}/no-such-tenant/at-all/t", (), "has no topic whose name fits"),
        (address(source.url, topic), ("--source-admin", f"http://127.0.0.1:{port}"), "does not answer"),
        (address(source.url, topic), ("--source-admin", server.http_url + "/no"), "is no admin API"),
    )
    for place, arguments, sentence in cases:
        code, said = Cloning(place, server, *arguments).run()
        lines = [line for line in said.splitlines() if not line.startswith("subscriptions are not copied")]
        assert (code, len(lines)) == (1, 1), said
        assert sentence in said, said
    assert f"persistent://{NAMESPACE}/no-such-topic" not in admin(source.http_url, f"persistent/{NAMESPACE}")

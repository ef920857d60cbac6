"""Offsets, schemas, and the subscriptions that pipelines leave their positions in."""

import json
from collections.abc import Iterator

import pulsar
import pytest
from confluent_kafka import Producer

from magnetar.client.errors import NotFound, Refused
from magnetar.client.rest import Range, RestClient
from magnetar.testing.server import MagnetarProcess

from .topics import TIMEOUT_S, make_topic, produce

pytestmark = pytest.mark.clients


@pytest.fixture
def pulsar_client(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def test_offsets_are_told_with_those_of_a_time(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "limits", 2)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(5):
        producer.produce("limits", b"x", partition=1, timestamp=1_000 + number)
        producer.flush(TIMEOUT_S)
    empty, asked, late, unknown = client.offsets(
        [("limits", 0, 1_000), ("limits", 1, 1_003), ("limits", 1, 9_000), ("limit", 0, None)]
    )
    assert (empty.earliest, empty.high_watermark, empty.offset_for_timestamp) == (0, 0, None)
    assert (asked.earliest, asked.high_watermark, asked.last_stable, asked.offset_for_timestamp) == (
        0,
        5,
        5,
        3,
    )
    assert late.offset_for_timestamp is None
    assert (unknown.topic, unknown.error) == ("limit", "UNKNOWN_TOPIC")


def test_an_open_transaction_holds_the_last_stable_offset_and_an_aborted_one_is_named(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "decided")
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "one"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("decided", b"aborted", partition=0)
    producer.flush(TIMEOUT_S)
    undecided = client.offsets([("decided", 0, None)])[0]
    assert (undecided.high_watermark, undecided.last_stable) == (1, 0)
    producer.abort_transaction(TIMEOUT_S)
    located = client.segments([_all("decided")]).partitions[0]
    assert (located.high_watermark, located.last_stable) == (2, 2)
    ((_, first, last),) = located.aborted
    assert (first, last) == (0, 1)


def test_a_subscription_is_made_at_an_offset_holds_data_and_moves_forward_only(
    server: MagnetarProcess, client: RestClient, pulsar_client: pulsar.Client
) -> None:
    make_topic(server, "followed", 2)
    produce(server, "followed", 10, **{"batch.num.messages": 1})
    produce(server, "followed", 10, partition=1)
    with pytest.raises(NotFound) as unknown:
        client.positions("pipeline")
    assert unknown.value.code == "SUBSCRIPTION_NOT_FOUND"
    client.set_positions("pipeline", [("followed", 0, 3), ("followed", 1, 0)])
    assert [(one.topic, one.partition, one.offset, one.backlog) for one in client.positions("pipeline")] == [
        ("followed", 0, 3, 7),
        ("followed", 1, 0, 10),
    ]
    client.set_positions("pipeline", [("followed", 0, 2), ("followed", 1, 4)])
    assert [one.offset for one in client.positions("pipeline", ["followed"])] == [3, 4]
    consumer = pulsar_client.subscribe("followed-partition-0", "pipeline")
    first = consumer.receive(timeout_millis=20_000)
    assert first.data()[:2] == b"3:"
    client.set_positions("pipeline", [("followed", 0, 8)])  # under the consumer's feet
    assert [one.offset for one in client.positions("pipeline")] == [8, 4]
    consumer.close()
    server.restart()
    assert [one.offset for one in client.positions("pipeline")] == [8, 4]
    assert client.drop_positions("pipeline", ["followed"]) == 2
    assert client.drop_positions("pipeline") == 0


def test_a_position_behind_the_end_is_refused_and_the_others_are_set(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "ahead", 2)
    produce(server, "ahead", 5)
    with pytest.raises(Refused, match="ends at 0") as refusal:
        client.set_positions("eager", [("ahead", 0, 5), ("ahead", 1, 1)])
    assert refusal.value.code == "OFFSET_OUT_OF_RANGE"
    assert [(one.partition, one.offset) for one in client.positions("eager")] == [(0, 5)]


def test_the_newest_schema_is_told_and_older_ones_by_version(
    server: MagnetarProcess, client: RestClient, pulsar_client: pulsar.Client
) -> None:
    class Old(pulsar.schema.Record):  # type: ignore[misc]
        number = pulsar.schema.Integer()

    class New(pulsar.schema.Record):  # type: ignore[misc]
        number = pulsar.schema.Integer()
        text = pulsar.schema.String(required_default=True)

    for record in (Old, New):
        pulsar_client.create_producer("described", schema=pulsar.schema.AvroSchema(record)).close()
    newest = client.schema("described")
    assert (newest.version, newest.type) == (1, "AVRO")
    assert [field["name"] for field in json.loads(newest.schema)["fields"]] == ["number", "text"]
    assert client.schema("persistent://public/default/described", 0).version == 0
    with pytest.raises(NotFound, match="version 7"):
        client.schema("described", 7)
    make_topic(server, "plain")
    with pytest.raises(NotFound) as none:
        client.schema("plain")
    assert none.value.code == "SCHEMA_NOT_FOUND"


def _all(topic: str) -> Range:
    return Range(topic, 0)

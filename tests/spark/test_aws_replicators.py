"""Replicators to AWS as a user has them: a server with its worker, and moto's server as the target."""

import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pulsar
import pytest
from boto3.dynamodb.types import TypeDeserializer
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from magnetar.testing.server import MagnetarProcess
from tests.aws_peer import KEYS, REGION, MotoServer
from tests.spark.pipelines import settings
from tests.spark.replicated import Replicated, copied, full, replicator

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world() -> Iterator[Replicated]:
    with MagnetarProcess(settings=settings()) as server:
        made = Replicated(server)
        yield made
        made.close()


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


def replicate(world: Replicated, kind: str, topic: str, url: str, target: str, **properties: str) -> str:
    config = {
        **replicator(topic, "", target),
        "type": kind,
        "properties": {"awsRegion": REGION, "awsEndpoint": url, **properties},
        "credentials": KEYS,
        "records_per_batch": 500,
    }
    name = f"to-{target}"
    world.client.create(name, "replicator", config)
    return name


class Flight(Record):  # type: ignore[misc]
    carrier = String()
    number = Integer()


@pytest.mark.parametrize("schema", [AvroSchema(Flight), JsonSchema(Flight)], ids=["avro", "json"])
def test_fields_of_a_topics_schema_become_attributes(
    world: Replicated, moto: MotoServer, schema: Any
) -> None:
    topic = world.topic(1)
    make_table(moto, topic, "id:S")
    client = pulsar.Client(world.server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(full(topic), schema=schema)
    for number in range(30):
        flight = Flight(carrier=f"c{number % 3}", number=number)
        producer.send(flight, partition_key=f"c{number % 3}", event_timestamp=5000 + number)
    client.close()
    name = replicate(world, "DynamoDB", topic, moto.url, topic, writeMode="upsert")
    world.until(lambda: world.backlog(name) == 0)
    found = {item["id"]: item for item in all_items(moto, topic)}
    assert {
        key: (item["carrier"], item["number"], item["__timestamp"], item["__offset"])
        for key, item in found.items()
    } == {f"c{one}": (f"c{one}", 27 + one, 5027 + one, 27 + one) for one in range(3)}
    assert not any("__value" in item for item in found.values())
    world.client.delete(name, force=True)


def test_wrong_keys_stop_a_replicator_until_a_user_starts_it(world: Replicated) -> None:
    topic = world.topic(1)
    with MotoServer() as guarded:
        make_table(guarded, topic, "place:S", "number:N")
        guarded.ask_for_credentials()
        world.write(topic, 10)
        name = replicate(world, "DynamoDB", topic, guarded.url, topic)
        status = world.until_state(name, "FAILED")
    assert f"AWS refuses who writes to table {topic} of DynamoDB" in status.reason
    assert KEYS["secretKey"] not in repr(status)
    assert "retry_in_s" not in status.status
    assert world.backlog(name) == 10
    world.client.delete(name, force=True)


def test_a_record_that_is_too_large_is_a_dead_letter(world: Replicated, moto: MotoServer) -> None:
    topic = world.topic(1)
    make_table(moto, topic, "place:S", "number:N")
    for content in (b"0", os.urandom(500_000), b"2"):
        world._producer.produce(topic, content, b"k")
    assert world._producer.flush(60) == 0
    name = replicate(world, "DynamoDB", topic, moto.url, topic)
    world.until(lambda: world.backlog(name) == 0)
    assert {bytes(item["__value"]) for item in all_items(moto, topic)} == {b"0", b"2"}
    [(_, value, headers)] = copied(world.server.bootstrap, f"{topic}-{world.get(name).subscription}-DLQ")
    assert len(value or b"") == 500_000
    assert b"too large for DynamoDB" in (dict(headers)["magnetar.reason"] or b"")
    world.client.delete(name, force=True)


def make_table(moto: MotoServer, name: str, *keys: str) -> None:
    pairs = [key.split(":") for key in keys]
    moto.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": one, "KeyType": kind}
            for (one, _), kind in zip(pairs, ("HASH", "RANGE"), strict=False)
        ],
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": kind} for one, kind in pairs],
        BillingMode="PAY_PER_REQUEST",
    )


def all_items(moto: MotoServer, name: str) -> list[dict[str, Any]]:
    read = TypeDeserializer()
    pages = moto.client("dynamodb").get_paginator("scan").paginate(TableName=name)
    found = [
        {one: read.deserialize(value) for one, value in item.items()}
        for page in pages
        for item in page["Items"]
    ]
    assert all(isinstance(item["__timestamp"], Decimal) for item in found)
    return found

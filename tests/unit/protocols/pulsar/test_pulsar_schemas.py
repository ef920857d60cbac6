"""GET_SCHEMA and GET_OR_CREATE_SCHEMA: errors stand inside the responses."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.schemas.model import Schema, SchemaType
from magnetar.protocols.pulsar.handlers.schema import schema_message, schema_of
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

WithDoor = Callable[..., None]
TOPIC = "persistent://public/default/t"
AVRO = Schema(SchemaType.AVRO, b'{"type":"record","name":"R","fields":[]}', {"k": "v"}, "AVRO")


async def get(client: PulsarClient, topic: str, version: bytes = b"") -> Any:
    command = pb.CommandGetSchema(topic=topic, request_id=5)
    if version:
        command.schema_version = version
    found = await client.ask(command, BaseCommand.GET_SCHEMA_RESPONSE)
    assert found.request_id == 5
    return found


async def get_or_create(client: PulsarClient, topic: str, schema: pb.Schema) -> Any:
    command = pb.CommandGetOrCreateSchema(topic=topic, request_id=6, schema=schema)
    found = await client.ask(command, BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    assert found.request_id == 6
    return found


def test_a_schema_is_made_once_and_read_by_version_and_as_the_latest(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await door.broker.pulsar_topics.create(TopicName.parse(TOPIC), 2)
        for topic in (TOPIC, f"{TOPIC}-partition-1"):
            made = await get_or_create(client, topic, schema_message(AVRO))
            assert made.schema_version == b"\0" * 8
            assert not made.HasField("error_code")
        for version in (b"", b"\0" * 8):
            found = await get(client, f"{TOPIC}-partition-0", version)
            assert schema_of(found.schema) == AVRO
            assert found.schema_version == b"\0" * 8

    with_door(scenario)


def test_what_there_is_not_is_said_inside_the_response(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await get(client, TOPIC)
        assert (found.error_code, found.error_message) == (
            ServerError.TopicNotFound,
            "Topic not found or no-schema",
        )
        assert (await get(client, TOPIC, b"\0")).error_code == ServerError.TopicNotFound
        made = await get_or_create(client, TOPIC, schema_message(AVRO))
        assert made.error_code == ServerError.TopicNotFound

    with_door(scenario)


def test_a_schema_that_is_not_taken_is_an_incompatible_one(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await door.broker.pulsar_topics.create(TopicName.parse(TOPIC))
        await get_or_create(client, TOPIC, schema_message(AVRO))
        for refused in (Schema(SchemaType.STRING), Schema(SchemaType.AVRO, b"{")):
            made = await get_or_create(client, TOPIC, schema_message(refused))
            assert made.error_code == ServerError.IncompatibleSchema

    with_door(scenario)


def test_plain_bytes_are_no_schema(with_door: WithDoor) -> None:
    assert schema_of(pb.Schema(name="BYTES", type=pb.Schema.Type.Name(0), schema_data=b"")) is None

    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await door.broker.pulsar_topics.create(TopicName.parse(TOPIC))
        plain = pb.Schema(name="BYTES", type=pb.Schema.Type.Name(0), schema_data=b"")
        assert (await get_or_create(client, TOPIC, plain)).schema_version == b""
        assert (await get(client, TOPIC)).error_code == ServerError.TopicNotFound

    with_door(scenario)


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_message_without_a_version_is_of_plain_bytes_for_a_client_that_asks(
    with_door: WithDoor, has_schema: bool
) -> None:
    """Pulsar's Go client asks, for a consumer with a schema of bytes, with a version that is there and empty."""

    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await door.broker.pulsar_topics.create(TopicName.parse(TOPIC))
        if has_schema:
            await get_or_create(client, TOPIC, schema_message(AVRO))
        command = pb.CommandGetSchema(topic=TOPIC, request_id=5, schema_version=b"")
        found = await client.ask(command, BaseCommand.GET_SCHEMA_RESPONSE)
        assert not found.HasField("error_code")
        assert (found.schema.type, found.schema.schema_data, found.schema_version) == (
            pb.Schema.Bytes,
            b"",
            b"",
        )

    with_door(scenario)


async def produce(client: PulsarClient, number: int, schema: Schema | None) -> Any:
    command = pb.CommandProducer(topic=TOPIC, producer_id=number, request_id=number)
    if schema is not None:
        command.schema.CopyFrom(schema_message(schema))
    client.say(command)
    return await answer(client, BaseCommand.PRODUCER_SUCCESS)


async def consume(client: PulsarClient, number: int, schema: Schema) -> Any:
    command = pb.CommandSubscribe(
        topic=TOPIC,
        subscription=f"s{number}",
        subType=pb.CommandSubscribe.Exclusive,
        consumer_id=number,
        request_id=number,
        schema=schema_message(schema),
    )
    client.say(command)
    return await answer(client, BaseCommand.SUCCESS)


async def answer(client: PulsarClient, success: "BaseCommand.Type") -> Any:
    """What comes first of an answer and an ERROR."""
    waits = [asyncio.create_task(client.hear(kind)) for kind in (success, BaseCommand.ERROR)]
    done, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return done.pop().result()


def test_producers_bring_schemas_and_are_told_their_versions(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        assert (await produce(client, 1, AVRO)).schema_version == b"\0" * 8
        assert (await produce(client, 2, None)).schema_version == b""
        assert (await produce(client, 3, Schema(SchemaType.STRING))).error == ServerError.IncompatibleSchema
        await door.broker.namespaces.change("public/default", lambda _: {"schema_validation_enforced": True})
        assert (await produce(client, 4, None)).error == ServerError.IncompatibleSchema
        assert (await produce(client, 5, AVRO)).schema_version == b"\0" * 8

    with_door(scenario)


def test_a_consumer_gives_an_unused_topic_its_schema_and_is_held_to_it_otherwise(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        assert (await consume(client, 1, AVRO)).request_id == 1
        assert door.broker.schemas.has_schema(TopicName.parse(TOPIC))
        assert (await consume(client, 2, Schema(SchemaType.STRING))).error == ServerError.IncompatibleSchema
        assert (await consume(client, 3, Schema(SchemaType.AUTO_CONSUME))).request_id == 3

    with_door(scenario)


def test_a_consumer_with_a_schema_does_not_join_producers_without_one(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await produce(client, 1, None)
        assert (await consume(client, 2, AVRO)).error == ServerError.IncompatibleSchema

    with_door(scenario)

"""GET_SCHEMA and GET_OR_CREATE_SCHEMA: errors stand inside the responses."""

from collections.abc import Callable
from typing import Any

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

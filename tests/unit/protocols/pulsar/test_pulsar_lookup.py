"""LOOKUP and PARTITIONED_METADATA: where topics are said to be, and what is made on the way."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.cluster.model import Endpoint, PulsarEndpoints
from magnetar.broker.topics.model import NewTopic
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)

WithDoor = Callable[..., None]
TOPIC = "persistent://public/default/t"


async def look_up(client: PulsarClient, topic: str, **fields: Any) -> CommandLookupTopicResponse:
    found: CommandLookupTopicResponse = await client.ask(
        CommandLookupTopic(topic=topic, request_id=5, **fields), BaseCommand.LOOKUP_RESPONSE
    )
    assert found.request_id == 5
    return found


async def partitions(
    client: PulsarClient, topic: str, **fields: Any
) -> CommandPartitionedTopicMetadataResponse:
    found: CommandPartitionedTopicMetadataResponse = await client.ask(
        CommandPartitionedTopicMetadata(topic=topic, request_id=6, **fields),
        BaseCommand.PARTITIONED_METADATA_RESPONSE,
    )
    assert found.request_id == 6
    return found


async def set_auto_creation(door: PulsarDoor, value: dict[str, Any]) -> None:
    await door.broker.namespaces.change(
        "public/default", lambda policies: {**policies, "autoTopicCreationOverride": value}
    )


@pytest.mark.parametrize(
    "topic",
    [
        TOPIC,
        TOPIC + "-partition-3",
        TOPIC + "-.*",
        "persistent://public/default/(a|b)+",
        "non-persistent://public/default/t",
        "public/default/t",
        "t",
    ],
)
def test_every_topic_is_here(with_door: WithDoor, topic: str) -> None:
    async def scenario(door: PulsarDoor) -> None:
        found = await look_up(await door.connected(), topic)
        assert found.response == CommandLookupTopicResponse.Connect
        assert found.brokerServiceUrl == "pulsar://broker.example:6650"
        assert found.authoritative

    with_door(scenario)


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "pulsar://127.0.0.1:7"), ("::1", "pulsar://[::1]:7")]
)
def test_a_server_without_a_name_tells_the_address_that_was_come_to(
    with_door: WithDoor, host: str, url: str
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.session.local_host = host
        assert (await look_up(client, TOPIC)).brokerServiceUrl == url

    with_door(scenario, pulsar={"endpoints": PulsarEndpoints(Endpoint("", 7))})


def test_a_listener_that_is_not_there_is_refused_in_the_words_that_spare_the_connection(
    with_door: WithDoor,
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await look_up(client, TOPIC, advertised_listener_name="test")
        assert (found.response, found.error) == (
            CommandLookupTopicResponse.Failed,
            ServerError.ServiceNotReady,
        )
        assert found.message == "the broker do not have test listener"
        ours = await look_up(client, TOPIC, advertised_listener_name="pulsar")
        assert ours.response == CommandLookupTopicResponse.Connect

    with_door(scenario)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("persistent://public/default/", ServerError.InvalidTopicName),
        ("ftp://public/default/t", ServerError.InvalidTopicName),
        ("persistent://public/cluster/default/t", ServerError.InvalidTopicName),
        ("persistent://public/nowhere/t", ServerError.TopicNotFound),
        ("persistent://nobody/default/t", ServerError.TopicNotFound),
    ],
)
def test_a_topic_that_cannot_be_is_nowhere(with_door: WithDoor, topic: str, error: "ServerError") -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await look_up(client, topic)
        assert (found.response, found.error) == (CommandLookupTopicResponse.Failed, error)
        counted = await partitions(client, topic)
        assert (counted.response, counted.error) == (
            CommandPartitionedTopicMetadataResponse.Failed,
            error,
        )

    with_door(scenario)


def test_partitions_are_counted(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        topics = door.broker.topics
        await topics.create(
            [
                topics.plan(NewTopic(TopicName.parse("kafkas"), 3)),
                topics.plan(NewTopic(TopicName.parse("one"), 1)),
                topics.plan(NewTopic(TopicName.parse("plain"), 1, is_partitioned=False)),
            ]
        )
        client = await door.connected()
        assert (await partitions(client, "persistent://public/default/kafkas")).partitions == 3
        assert (await partitions(client, "persistent://public/default/one")).partitions == 1
        assert (await partitions(client, "persistent://public/default/plain")).partitions == 0
        assert (await partitions(client, "persistent://public/default/kafkas-partition-2")).partitions == 0
        beyond = await partitions(client, "persistent://public/default/kafkas-partition-3")
        assert beyond.error == ServerError.TopicNotFound

    with_door(scenario)


def test_a_topic_that_is_not_there_is_made_by_the_client_that_opens_it(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await partitions(client, TOPIC)
        assert (found.response, found.partitions) == (CommandPartitionedTopicMetadataResponse.Success, 0)
        assert not len(door.broker.topics)
        refused = await partitions(client, TOPIC, metadata_auto_creation_enabled=False)
        assert refused.error == ServerError.TopicNotFound

    with_door(scenario)


def test_a_namespace_of_partitioned_topics_makes_them_when_they_are_counted(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
        await set_auto_creation(door, policy)
        client = await door.connected()
        assert (await partitions(client, TOPIC)).partitions == 4
        topic = door.broker.topics.find(TopicName.parse("t"))
        assert topic is not None
        assert (topic.is_partitioned, topic.partition_count) == (True, 4)
        await set_auto_creation(door, {"allowAutoTopicCreation": False})
        refused = await partitions(client, TOPIC + "2")
        assert refused.error == ServerError.TopicNotFound

    with_door(scenario)

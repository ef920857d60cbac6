"""`auto.create.topics.enable`, `delete.topic.enable`: what clients may do to topics at all, whatever their rights."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.errors import TopicDeletionDisabled
from magnetar.broker.security.authorizer import Authorizer
from magnetar.broker.security.model import Caller, Operation, Resource, ResourceType
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

Run = Callable[..., None]


async def made(client: Any) -> bytes:
    """The id of a new topic `t`."""
    topics, name = client.broker.topics, client.broker.kafka_topics.name("t")
    await topics.create([topics.plan(NewTopic(name, 1))])
    topic_id: bytes = topics.get(name).topic_id
    return topic_id


@pytest.mark.parametrize(("version", "code"), [(6, "TOPIC_DELETION_DISABLED"), (2, "INVALID_REQUEST")])
def test_deletion_can_be_switched_off(with_broker: Run, version: int, code: str) -> None:
    async def scenario(client: Any) -> None:
        await made(client)
        by_name = DeleteTopicsRequest([], ["t"])  # until v5
        request = DeleteTopicsRequest([DeleteTopicState("t")]) if version > 5 else by_name
        (row,) = (await client.ask("delete_topics", version, request)).responses
        assert (row.name, ErrorCode(row.error_code).name) == ("t", code)
        assert len(client.broker.topics) == 1

    with_broker(scenario, delete_topics=False)


def test_no_handler_finds_a_topic_to_delete_where_deletion_is_switched_off(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic_id, topics = await made(client), client.broker.cases.topics
        with pytest.raises(TopicDeletionDisabled):
            topics.to_delete(client.caller, "t")
        with pytest.raises(TopicDeletionDisabled):
            topics.to_delete_by_id(client.caller, topic_id)

    with_broker(scenario, delete_topics=False)


class MakesNothing:
    """An authorizer that lets no caller create anything."""

    tells_hosts_apart = False

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.CREATE

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return operation is not Operation.CREATE


@pytest.mark.parametrize("authorizer", [None, MakesNothing()], ids=["may", "may not"])
def test_creation_of_what_clients_ask_for_can_be_switched_off(
    with_broker: Run, authorizer: Authorizer | None
) -> None:
    """A client without the right to create gets the same answer, because the server creates it for no client."""

    async def scenario(client: Any) -> None:
        asked = MetadataRequest([MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        (row,) = (await client.ask("metadata", 12, asked)).topics
        assert ErrorCode(row.error_code).name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert len(client.broker.topics) == 0

    with_broker(scenario, authorizer=authorizer, auto_create_topics=False)

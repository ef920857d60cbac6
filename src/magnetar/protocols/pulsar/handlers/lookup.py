"""LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

Every topic is here, so a lookup of whatever lies in a namespace is answered Connect, with this server's address as the
client's listener has it.  Neither answer may be a ServiceNotReady: see `errors.lookup_error`.

A client that wants transactions asks first for the topic of their coordinators, and is told there that there are none.
"""

from typing import TYPE_CHECKING, Final

from magnetar.base.names import InvalidTopicName, TopicName, parse_partition
from magnetar.broker.errors import PolicyViolation
from magnetar.protocols.pulsar.errors import lookup_error
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.protocols.pulsar.session import PulsarSession

_COORDINATORS: Final = TopicName("pulsar", "system", "transaction_coordinator_assign")


def _refuse_transactions(topic: str) -> None:
    if _COORDINATORS.local in topic and parse_partition(topic)[0] == _COORDINATORS:
        raise PolicyViolation("Transactions of Pulsar are not available: Magnetar does not support them")


def _namespace_of(topic: str) -> str:
    try:
        name, _ = parse_partition(topic)
    except InvalidTopicName:
        # Java looks a pattern up as if it were a topic, to learn where its WATCH_TOPIC_LIST belongs.
        domain, _, path = topic.partition("://")
        parts = path.split("/")
        if domain not in ("persistent", "non-persistent") or len(parts) != 3 or not all(parts):
            raise
        return f"{parts[0]}/{parts[1]}"
    return name.namespace_name


def lookup(session: "PulsarSession", command: CommandLookupTopic) -> Answer:
    _refuse_transactions(command.topic)
    session.broker.namespaces.require(_namespace_of(command.topic))
    listener = command.advertised_listener_name
    if listener and listener != session.service.settings.listener_name:
        # The words by which clients know that other lookups on this connection are not concerned.
        return _lookup_failed(
            command, ServerError.ServiceNotReady, f"the broker do not have {listener} listener"
        )
    return BaseCommand(
        type=BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=CommandLookupTopicResponse(
            request_id=command.request_id,
            response=CommandLookupTopicResponse.Connect,
            brokerServiceUrl=session.service_url,
            authoritative=True,
        ),
    )


def refuse_lookup(command: CommandLookupTopic, error: Exception) -> BaseCommand:
    return _lookup_failed(command, lookup_error(error), str(error))


def _lookup_failed(command: CommandLookupTopic, error: "ServerError", text: str) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=CommandLookupTopicResponse(
            request_id=command.request_id,
            response=CommandLookupTopicResponse.Failed,
            error=error,
            message=text,
        ),
    )


async def partitioned_metadata(
    session: "PulsarSession", command: CommandPartitionedTopicMetadata
) -> BaseCommand:
    _refuse_transactions(command.topic)
    count = await session.broker.pulsar_topics.partition_count_or_create(
        command.topic, may_create=command.metadata_auto_creation_enabled
    )
    return BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=CommandPartitionedTopicMetadataResponse(
            request_id=command.request_id,
            response=CommandPartitionedTopicMetadataResponse.Success,
            partitions=count,
        ),
    )


def refuse_partitioned_metadata(command: CommandPartitionedTopicMetadata, error: Exception) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=CommandPartitionedTopicMetadataResponse(
            request_id=command.request_id,
            response=CommandPartitionedTopicMetadataResponse.Failed,
            error=lookup_error(error),
            message=str(error),
        ),
    )


COMMANDS = (
    Command(BaseCommand.LOOKUP, lookup, refuse_lookup),
    Command(BaseCommand.PARTITIONED_METADATA, partitioned_metadata, refuse_partitioned_metadata),
)

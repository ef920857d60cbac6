"""LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

The answer to a lookup is Connect, with the addresses of the broker that serves the topic; a single server serves all.
The client uses the one with TLS or the one without, as it is configured.  It may ask for the addresses of an advertised
listener by name (PIP-61).  No other refusal may be a ServiceNotReady: see `errors.lookup_error`.

A client that wants transactions first asks for the topic of their coordinators.  It has one partition, is no real
topic, and only says that there is one coordinator.
"""

from magnetar.base.names import InvalidTopicName, parse_partition
from magnetar.base.pulsar_listeners import PULSAR, PULSAR_TLS
from magnetar.broker.cluster.model import NO_LISTENER, PulsarEndpoints, url_of
from magnetar.protocols.pulsar.errors import lookup_error
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)


def _lookup(session: PulsarSession, topic: str) -> PulsarEndpoints:
    """The addresses where a topic is served."""
    own = session.service.settings.endpoints
    try:
        name, index = parse_partition(topic)
    except InvalidTopicName:
        # Java looks up a pattern as if it were a topic, to find the server for WATCH_TOPIC_LIST.
        domain, _, path = topic.partition("://")
        parts = path.split("/")
        if domain not in ("persistent", "non-persistent") or len(parts) != 3 or not all(parts):
            raise
        session.cases.pulsar_topics.lookup_namespace(session.caller, f"{parts[0]}/{parts[1]}")
        return own
    place = session.cases.pulsar_topics.lookup(session.caller, name, index)
    return own if place is None else place.pulsar


def lookup(session: PulsarSession, command: CommandLookupTopic) -> Answer:
    found = _lookup(session, command.topic)
    listener = command.advertised_listener_name or session.advertised_listener
    endpoints = found.of(listener)
    if endpoints is None:
        # By this text clients know that other look-ups on this connection are not affected.
        return _lookup_failed(command, ServerError.ServiceNotReady, NO_LISTENER.format(listener))
    return BaseCommand(
        type=BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=CommandLookupTopicResponse(
            request_id=command.request_id,
            response=CommandLookupTopicResponse.Connect,
            brokerServiceUrl=url_of(endpoints, PULSAR, session.local_host),
            brokerServiceUrlTls=url_of(endpoints, PULSAR_TLS, session.local_host),
            authoritative=True,
        ),
    )


def refuse_lookup(command: CommandLookupTopic, error: Exception) -> BaseCommand:
    return _lookup_failed(command, lookup_error(error), str(error))


def _lookup_failed(command: CommandLookupTopic, error: ServerError, text: str) -> BaseCommand:
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
    session: PulsarSession, command: CommandPartitionedTopicMetadata
) -> BaseCommand:
    count = await session.cases.pulsar_topics.partition_count_or_create(
        session.caller, command.topic, may_create=command.metadata_auto_creation_enabled
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
    Command(BaseCommand.LOOKUP, lookup, refuse_lookup, right="Lookup"),
    Command(
        BaseCommand.PARTITIONED_METADATA,
        partitioned_metadata,
        refuse_partitioned_metadata,
        right="Get Partition Metadata",
    ),
)

"""StreamsGroupDescribe: state, topology, members and tasks of Kafka Streams applications (KIP-1071).

Served: v0.  A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.  Once all topics of a topology
exist, the answer has the numbers of partitions that the server has decided on.  A request for many groups, or for a
large one, leaves turns to others.
"""

from collections.abc import Iterable, Iterator

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import DescribedStreamsMember, InternalTopic, Tasks
from magnetar.broker.groups.model import Topology as GroupTopology
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import (
    GROUP_ERROR_CODES,
    by_subtopology,
    described,
)
from magnetar.protocols.kafka.large import Large, Pieces
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import streams_group_describe as codec
from magnetar.wire.kafka.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

VERSIONS = (0, 0)
PIECES = Pieces("group_ids", "", "groups")


async def handle(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse | Large:
    return await described(context, request, StreamsGroupDescribeResponse(), _head, _member, DescribedGroup)


def _head(context: RequestContext, group_id: str) -> tuple[DescribedGroup, Iterator[DescribedStreamsMember]]:
    """A group without its members, and what they are read from."""
    try:
        found = context.cases.streams_groups.describe(context.caller, context.node, group_id)
    except BrokerError as refusal:
        return DescribedGroup(error_code(refusal), str(refusal), group_id), iter(())
    if found.error is not GroupError.NONE:
        return DescribedGroup(GROUP_ERROR_CODES[found.error], found.error.value, group_id), iter(())
    row = DescribedGroup(
        group_id=group_id,
        group_state=found.state.value,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        topology=None if found.topology is None else _topology(found.topology),
    )
    return row, iter(found.members)


def _topology(topology: GroupTopology) -> Topology:
    parts = sorted(topology.subtopologies, key=lambda part: part.subtopology_id)
    return Topology(
        topology.epoch,
        [
            Subtopology(
                part.subtopology_id,
                sorted(part.sources),
                sorted(part.sinks),
                _infos(part.changelogs),
                _infos(part.repartitions),
            )
            for part in parts
        ],
    )


def _infos(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.configs))
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _pairs(rows: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key, value) for key, value in rows]


def _member(context: RequestContext, member: DescribedStreamsMember) -> Member:
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else Endpoint(*member.endpoint),
        client_tags=_pairs(member.tags),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
    )


def _assignment(tasks: Tasks) -> Assignment:
    active, standby = (
        [TaskIds(subtopology, indexes) for subtopology, indexes in by_subtopology(role)] for role in tasks
    )
    return Assignment(active, standby, [])


API = Api.of(codec, VERSIONS, handle, PIECES)

"""ShareGroupDescribe: state, members and assignments of share groups (KIP-932).

Served: v1.  A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.  Members of many groups leave
turns to others.
"""

from collections.abc import Iterator

from magnetar.base.errors import BrokerError
from magnetar.base.names import TopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import DescribedConsumer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, described
from magnetar.protocols.kafka.large import Large, Pieces
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import share_group_describe as codec
from magnetar.wire.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

VERSIONS = (1, 1)
PIECES = Pieces("group_ids", "", "groups")


async def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | Large:
    return await described(context, request, ShareGroupDescribeResponse(), _head, _member, DescribedGroup)


def _head(context: RequestContext, group_id: str) -> tuple[DescribedGroup, Iterator[DescribedConsumer]]:
    """A group without its members, and an iterator of these."""
    try:
        found = context.cases.groups.describe_sharers(context.caller, context.node, group_id)
    except BrokerError as refusal:
        return DescribedGroup(error_code(refusal), str(refusal), group_id), iter(())
    if found.error is not GroupError.NONE:
        return DescribedGroup(GROUP_ERROR_CODES[found.error], found.error.value, group_id), iter(())
    row = DescribedGroup(
        group_id=group_id,
        group_state=found.state.value,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
    )
    return row, iter(found.members)


def _member(context: RequestContext, member: DescribedConsumer) -> Member:
    shown = context.cases.kafka_names.shown
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.names),
        assignment=Assignment(
            [
                TopicPartitions(topic_id, shown(TopicName.parse(name)), rows)
                for topic_id, name, rows in member.assigned
            ]
        ),
    )


API = Api.of(codec, VERSIONS, handle, PIECES)

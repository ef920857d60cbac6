"""TxnOffsetCommit: offsets that become a group's when the transaction commits (KIP-98, KIP-447).

Served: v0-4 (members are checked v3+; v4 adds an error code that is not given here).  Asked of the group's coordinator.
A fenced producer is told INVALID_PRODUCER_EPOCH in every version, as by Kafka.
"""

from typing import TYPE_CHECKING

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.offsets import CommitRequest, OffsetToCommit
from magnetar.broker.transactions.rules import Producer
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, full_name, is_coordinator
from magnetar.protocols.kafka.transactions import transaction_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "txn_offset_commit"
VERSIONS = (0, 4)


async def handle(context: "RequestContext", request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    response = TxnOffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    rows: list[TxnOffsetCommitResponsePartition] = []  # of `offsets`, in the same order
    is_here = is_coordinator(context, request.group_id)
    refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_here else ErrorCode.NOT_COORDINATOR
    for topic in request.topics:
        full = full_name(context, topic.name) if is_here else None
        answers = [TxnOffsetCommitResponsePartition(one.partition_index, refusal) for one in topic.partitions]
        response.topics.append(TxnOffsetCommitResponseTopic(topic.name, answers))
        if full is not None:
            rows += answers
            offsets += [
                OffsetToCommit(
                    full,
                    one.partition_index,
                    one.committed_offset,
                    one.committed_metadata or "",
                    one.committed_leader_epoch,
                )
                for one in topic.partitions
            ]
    if offsets:
        errors = await context.broker.transactions.commit_offsets(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            CommitRequest(
                request.group_id,
                offsets,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
            ),
        )
        for row, error in zip(rows, errors, strict=True):
            row.error_code = (
                GROUP_ERROR_CODES[error]
                if isinstance(error, GroupError)
                else transaction_code(error, knows_fenced=False)
            )
    return response

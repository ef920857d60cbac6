"""TxnOffsetCommit: offsets that become a group's when the transaction commits (KIP-98, KIP-447).

Served: v0-5 (members are checked v3+; v4 has TRANSACTION_ABORTABLE, KIP-1050, where older ones get INVALID_TXN_STATE;
v5 adds the group to the transaction, KIP-890).  Clients send it to the group's coordinator.  A fenced producer gets
INVALID_PRODUCER_EPOCH in every version, as from Kafka.
"""

from typing import Final

from magnetar.base.errors import BrokerError, kept
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, topic_code
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large, Pieces, cut
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import transaction_code
from magnetar.wire.kafka.messages import txn_offset_commit as codec
from magnetar.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

VERSIONS = (0, 5)

_ABORTABLE_SINCE: Final = 4
_ADDS_GROUP_SINCE: Final = 5


_PIECES: Final = Pieces("topics", "partitions", "topics")


async def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | Large:
    response = TxnOffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    rows: list[TxnOffsetCommitResponsePartition] = []  # of `offsets`, in the same order
    is_large = sum(1 + len(topic.partitions) for topic in request.topics) > ELEMENTS_AT_ONCE
    if is_large:
        # Taken piece by piece, and committed as a whole: each commit writes all that the transaction has.
        for size, piece in cut(request, _PIECES):
            async with context.service.large.turn(size):
                _take(context, piece, response, offsets, rows)
    else:
        _take(context, request, response, offsets, rows)
    if offsets:
        errors = await context.cases.transactions.commit_offsets(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            CommitRequest(
                request.group_id,
                offsets,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
            ),
            adds_group=context.api_version >= _ADDS_GROUP_SINCE,
        )
        knows_abortable = context.api_version >= _ABORTABLE_SINCE
        for row, error in zip(rows, errors, strict=True):
            row.error_code = (
                GROUP_ERROR_CODES[error]
                if isinstance(error, GroupError)
                else transaction_code(error, knows_fenced=False, knows_abortable=knows_abortable)
            )
    return Large(response) if is_large else response


def _take(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    response: TxnOffsetCommitResponse,
    offsets: list[OffsetToCommit],
    rows: list[TxnOffsetCommitResponsePartition],
) -> None:
    """Add the request's rows to the response, and to `offsets` those that the caller may commit."""
    try:
        found = context.cases.offsets.to_commit_in_transaction(
            context.caller,
            context.node,
            request.transactional_id,
            request.group_id,
            [topic.name for topic in request.topics],
        )
    except BrokerError as refusal:
        found = [kept(refusal)] * len(request.topics)
    for topic, full in zip(request.topics, found, strict=True):
        code = topic_code(full)
        answers = [TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
        response.topics.append(TxnOffsetCommitResponseTopic(topic.name, answers))
        if isinstance(full, str):
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


API = Api.of(codec, VERSIONS, handle)

"""Produce: record batches into partitions.

Served: v3-13 (v9 flexible, v10 leader hints of KIP-951, v13 topic ids).  acks 1 and -1 mean the same here: an
acknowledged batch is on disk.  acks=0 gets no response.  `timeout_ms` does not apply: a batch is acknowledged in
one synced write or fails with it.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import InvalidRecord, NotLeader
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.registry import Deferred
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from magnetar.broker.partition import Partition
    from magnetar.broker.topics import Topic
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "produce"
VERSIONS = (3, 13)

_TOPIC_IDS_SINCE: Final = 13
_LEADER_HINTS_SINCE: Final = 10


class _Pending(Deferred):
    """A produce request whose batches are on their way to disk; resolved by the last one that arrives."""

    __slots__ = ("left", "response")

    mutes = False  # batches of many requests share a synced write

    def __init__(self, response: ProduceResponse) -> None:
        super().__init__()
        self.response = response
        self.left = 1  # one for stage one itself, so that nothing resolves before all batches are queued

    def finish_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.resolve(self.response)

    def done(self, answer: PartitionProduceResponse, error: Exception | None) -> None:
        """The batch behind `answer` is durable, or will never be."""
        if error is not None:
            _refuse(answer, error)
        self.finish_one()


def handle(context: "RequestContext", request: ProduceRequest) -> Deferred | ProduceResponse | None:
    if request.acks not in (-1, 0, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    now_ms = context.broker.clock.now_ms()
    pending = _Pending(ProduceResponse())
    answers = pending.response.responses
    for topic_data in request.topic_data:
        partition_answers: list[PartitionProduceResponse] = []
        answers.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, partition_answers))
        try:
            topic = _topic_of(context, topic_data)
        except BrokerError as error:
            for data in topic_data.partition_data:
                partition_answers.append(answer := PartitionProduceResponse(data.index))
                _refuse(answer, error)
            continue
        for data in topic_data.partition_data:
            partition_answers.append(answer := PartitionProduceResponse(data.index))
            try:
                _append(context, topic.partition(data.index), data, now_ms, answer, pending)
            except NotLeader as error:
                _refuse(answer, error)
                if context.api_version >= _LEADER_HINTS_SINCE:
                    partition = topic.partition(data.index)
                    answer.current_leader = LeaderIdAndEpoch(partition.leader_id, partition.log.leader_epoch)
                    pending.response.node_endpoints = node_endpoints(context, NodeEndpoint)
            except BrokerError as error:
                _refuse(answer, error)
    pending.finish_one()
    return None if request.acks == 0 else pending


def _topic_of(context: "RequestContext", data: TopicProduceData) -> "Topic":
    if context.api_version >= _TOPIC_IDS_SINCE:
        return context.broker.topics.get_by_id(data.topic_id)
    return context.broker.kafka_topic(data.name)


def _append(
    context: "RequestContext",
    partition: "Partition",
    data: PartitionProduceData,
    now_ms: int,
    answer: PartitionProduceResponse,
    pending: _Pending,
) -> None:
    if partition.leader_id != context.node.node_id:
        raise NotLeader(f"node {context.node.node_id} does not lead {partition.topic.name} {partition.index}")
    records = data.records
    if not isinstance(records, memoryview):
        records = memoryview(b"")
    batch = records if context.owns_memory else memoryview(bytearray(records))
    pending.left += 1
    try:
        appended = partition.append(batch, now_ms, partial(pending.done, answer))
    except BrokerError:
        pending.left -= 1
        raise
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.append_time_ms
    answer.log_start_offset = partition.log.log_start


def _refuse(answer: PartitionProduceResponse, error: Exception) -> None:
    answer.error_code = error_code(error)
    answer.error_message = str(error)
    if isinstance(error, InvalidRecord):
        answer.record_errors = [BatchIndexAndErrorMessage(index, str(error)) for index in error.batch_indexes]
    answer.base_offset = -1
    answer.log_append_time_ms = -1


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, code, base_offset=-1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )

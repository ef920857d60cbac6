"""Produce: append record batches to partitions.

Served: v3-13 (v9 flexible, v10 leader hints of KIP-951, v13 topic ids). acks 1 and -1 mean the same here: an
acknowledged batch is on disk.  With acks=0 the server sends no response; if the caller may not write, it closes the
connection instead.  `timeout_ms` has no effect: one synced write acknowledges a batch, or the batch fails with it.

The server looks at records of compacted topics before it appends them.  A thread does what takes long.  Until all
batches of the request have been appended or refused, the connection's next request does not begin, so a producer's
batches keep their order.

The server accepts a batch of a transaction only from a caller that may write with its transactional id.  The request
names that id, because a client can guess a producer id.  With v12+ the batch adds its partition to the transaction
(KIP-890); all partitions that a request adds take one synced write.  Before v12 the partition must be in the
transaction already.  Otherwise the batch gets TRANSACTION_ABORTABLE (v11+, KIP-1050) or INVALID_TXN_STATE.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from magnetar.base.errors import BrokerError, WireError, kept
from magnetar.broker.errors import InvalidRecord, InvalidTxnState, NotLeader, RecordTooLarge
from magnetar.broker.log.errors import NeedsOpening
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.usecases.handles import WritableTopic
from magnetar.broker.usecases.quotas import throttle_ms
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.leaders import NO_NODE, node_endpoints
from magnetar.protocols.kafka.registry import Api, Deferred, Silent
from magnetar.protocols.kafka.transactions import transaction_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import produce as codec
from magnetar.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from magnetar.wire.kafka.one_partition import decode_produce_request, encode_produce_response
from magnetar.wire.kafka.record_reader import TooLargeExpanded

VERSIONS = (3, 13)

_TOPIC_IDS_SINCE: Final = 13
_LEADER_HINTS_SINCE: Final = 10
_ABORTABLE_SINCE: Final = 11
_JOINS_SINCE: Final = 12
# Older clients do not try again after these errors; as in Kafka, they get NOT_ENOUGH_REPLICAS, after which they do.
_RETRIED: Final = frozenset(
    (TransactionError.CONCURRENT_TRANSACTIONS, TransactionError.COORDINATOR_NOT_AVAILABLE)
)
_NO_BATCH: Final = memoryview(b"")


class _Pending(Deferred):
    """A produce request whose batches are being written; the last durable batch resolves it."""

    __slots__ = ("is_answered", "left", "response", "transactional_id")

    mutes = False  # batches of many requests share a synced write

    def __init__(self, response: ProduceResponse, transactional_id: str | None) -> None:
        Deferred.__init__(self)
        self.response = response
        self.transactional_id = transactional_id
        self.is_answered = True
        self.left = 1  # 1 for stage one, so that it is not resolved before all batches are queued

    def throttle(self, time_ms: int) -> None:
        """Set the throttle time to at least `time_ms`."""
        response = self.response
        if time_ms > response.throttle_time_ms:
            response.throttle_time_ms = time_ms

    def wait_first(self, work: Callable[[], Awaitable[None]]) -> None:
        """Let stage one end only when `work` has ended."""
        self.stage_one = work

    def finish_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.resolve(self.response if self.is_answered else Silent(self.response.throttle_time_ms))

    def done(self, answer: PartitionProduceResponse, error: Exception | None) -> None:
        """Note that the batch of `answer` is durable, or has failed."""
        if error is not None:
            _refuse(answer, error)
        self.finish_one()


class _Opening(NamedTuple):
    """A batch that must be opened or join its transaction, or that follows such a batch in its request."""

    topic: WritableTopic
    partition: int
    batch: memoryview
    answer: PartitionProduceResponse


def handle(context: RequestContext, request: ProduceRequest) -> Deferred | ProduceResponse | Silent | None:
    if request.acks not in (-1, 0, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        try:
            context.cases.publishing.check_transactional(context.caller, request.transactional_id)
        except NotAuthorized as refusal:
            return _deny(request, refusal)
    now_ms = context.cases.clock.now_ms()
    denied: NotAuthorized | None = None
    pending = _Pending(ProduceResponse(), request.transactional_id)
    size = 0
    answers = pending.response.responses
    to_open: list[_Opening] = []
    for topic_data in request.topic_data:
        partition_answers: list[PartitionProduceResponse] = []
        answers.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, partition_answers))
        try:
            topic = _topic_of(context, topic_data)
        except BrokerError as error:
            if isinstance(error, NotAuthorized):
                denied = kept(error)
            for data in topic_data.partition_data:
                partition_answers.append(answer := PartitionProduceResponse(data.index))
                _refuse(answer, error)
            continue
        for data in topic_data.partition_data:
            partition_answers.append(answer := PartitionProduceResponse(data.index))
            records = data.records
            if not isinstance(records, memoryview):
                records = _NO_BATCH
            size += len(records)
            # The entry cache keeps the batch; copy it if it is a small part of its frame, so that the frame can be
            # freed.
            batch = (
                context.service.arena.unpinned(records)
                if context.owns_memory
                else memoryview(bytearray(records))
            )
            if to_open:
                to_open.append(_Opening(topic, data.index, batch, answer))
                continue
            try:
                _append(context, topic, data.index, batch, now_ms, answer, pending)
            except (NeedsOpening, InvalidTxnState):
                to_open.append(_Opening(topic, data.index, batch, answer))
    wait_ms = context.meter.produced(size)
    if wait_ms:
        pending.throttle(wait_ms)
    if to_open:
        if denied is not None and request.acks == 0:
            raise _unanswerable(denied)
        pending.is_answered = request.acks != 0
        pending.wait_first(partial(_open_all, context, to_open, pending))
        return pending
    pending.finish_one()
    if request.acks != 0:
        return pending
    if denied is not None:
        raise _unanswerable(denied)
    told_ms = pending.response.throttle_time_ms
    return Silent(told_ms) if told_ms else None


def _deny(request: ProduceRequest, error: NotAuthorized) -> ProduceResponse:
    if request.acks == 0:
        raise _unanswerable(error)
    return _refuse_all(request, error_code(error))


def _unanswerable(error: NotAuthorized) -> WireError:
    """The error that closes the connection of a producer with acks=0, which learns of a refusal only in that way, as
    in Kafka.
    """
    return WireError(f"Produce with acks=0: {error}")


async def _open_all(context: RequestContext, to_open: list[_Opening], pending: _Pending) -> None:
    """Open the batches, one after the other, and append them; those of a transaction first join it."""
    clock = context.cases.clock
    joined: Sequence[TransactionError | BrokerError] = [TransactionError.NONE] * len(to_open)
    if pending.transactional_id is not None and context.api_version >= _JOINS_SINCE:
        joining = [(one.topic, one.partition, one.batch) for one in to_open]
        joined = await context.cases.transactions.join(pending.transactional_id, joining)
    for one, outcome in zip(to_open, joined, strict=True):
        if isinstance(outcome, BrokerError):
            _refuse(one.answer, outcome)
            continue
        try:
            try:
                _append(
                    context, one.topic, one.partition, one.batch, clock.now_ms(), one.answer, pending,
                    joined=outcome,
                )  # fmt: skip
            except NeedsOpening:
                await context.cases.publishing.look_into(context.connection_id, one.batch)
                _append(
                    context, one.topic, one.partition, one.batch, clock.now_ms(), one.answer, pending,
                    joined=outcome, keys_known=True,
                )  # fmt: skip
        except TooLargeExpanded as error:
            _refuse(one.answer, RecordTooLarge(str(error)))
        except BrokerError as error:
            _refuse(one.answer, error)
    pending.finish_one()


def _topic_of(context: RequestContext, data: TopicProduceData) -> WritableTopic:
    publishing = context.cases.publishing
    if context.api_version < _TOPIC_IDS_SINCE:
        return publishing.to_write(context.caller, data.name)
    return publishing.to_write_by_id(context.caller, data.topic_id)


def _append(
    context: RequestContext,
    topic: WritableTopic,
    index: int,
    batch: memoryview,
    now_ms: int,
    answer: PartitionProduceResponse,
    pending: _Pending,
    *,
    joined: TransactionError | None = None,
    keys_known: bool = False,
) -> None:
    """Append one batch, or refuse it in `answer`; `joined` is the result of joining its transaction, if it had to.

    Raises:
        NeedsOpening: its records must be opened first.
        InvalidTxnState: it must join its transaction first.
    """
    try:
        partition = topic.partition(index)
        if partition.leader_id != context.node.node_id:
            raise NotLeader(
                f"node {context.node.node_id} does not lead {topic.name} {index}",
                partition.leader_id,
                partition.log.leader_epoch,
            )
        pending.left += 1
        try:
            appended = partition.append(
                batch,
                now_ms,
                partial(pending.done, answer),
                transactional_id=pending.transactional_id,
                keys_known=keys_known,
            )
        except (BrokerError, NeedsOpening):
            pending.left -= 1
            raise
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.append_time_ms
        answer.log_start_offset = partition.log.log_start
        owed_s = partition.owed_s()
        if owed_s:
            pending.throttle(throttle_ms(owed_s))
    except NotLeader as error:
        _refuse(answer, error)
        if error.leader_id != NO_NODE and context.api_version >= _LEADER_HINTS_SINCE:
            answer.current_leader = LeaderIdAndEpoch(error.leader_id, error.leader_epoch)
            pending.response.node_endpoints = node_endpoints(context, NodeEndpoint)
    except InvalidTxnState as error:
        transactional_id = pending.transactional_id
        if transactional_id is not None and joined is None and context.api_version >= _JOINS_SINCE:
            raise
        _refuse(answer, error)
        if transactional_id is None:  # as in Kafka
            answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return
        if joined is None or joined is TransactionError.NONE:
            joined = context.cases.transactions.verify_batch(transactional_id, topic, index, batch)
        answer.error_code = _transaction_refusal(joined, context.api_version)
    except BrokerError as error:
        _refuse(answer, error)


def _transaction_refusal(error: TransactionError, version: int) -> ErrorCode:
    """The error code, by version, for a batch that does not belong to an open transaction."""
    if error in _RETRIED and not (
        error is TransactionError.CONCURRENT_TRANSACTIONS and version >= _JOINS_SINCE
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return transaction_code(error, knows_fenced=False, knows_abortable=version >= _ABORTABLE_SINCE)


def _refuse(answer: PartitionProduceResponse, error: Exception) -> None:
    answer.error_code = error_code(error)
    answer.error_message = str(error)
    if isinstance(error, InvalidRecord):
        answer.record_errors = [
            BatchIndexAndErrorMessage(index, "the record has no key") for index in error.batch_indexes
        ]
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


API = Api.of(codec, VERSIONS, handle, decode=decode_produce_request, encode=encode_produce_response)

"""ShareFetch: records for a share consumer, and its acknowledgements of earlier ones (KIP-932).

Served: v1-2 (v2 acquire modes, KIP-1206, and renewed times, KIP-1222).  The consumer has its records for a time.  The
Shared subscription with the group's name, whose consumers may also be Pulsar's, decides which records it gets.
Records come as whole batches, with the ranges that are the consumer's.  If there is nothing to send, the request
waits for `max_wait_ms`, and is answered as soon as there is something: `min_bytes` does not count.

Limits: `max_records` over all partitions, which the last batch may exceed unless the mode is that of a limit, and
`max_bytes`, which the first batch may exceed.  Acknowledgements are answered when they are durable.  A request that
renews does not fetch.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.memory_budget import REFUSED_MS
from magnetar.broker.usecases.sharing import OpenedShare, SharedPartition, SharedRecords
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.fetch_waiting import WAIT_MS_MAX
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN, Large
from magnetar.protocols.kafka.leaders import leader_error, node_endpoints
from magnetar.protocols.kafka.registry import Api, Deferred
from magnetar.protocols.kafka.share_acknowledging import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Key,
    Outcome,
    acknowledge,
    batches_by_partition,
    problem_of,
)
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_fetch as codec
from magnetar.wire.kafka.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

log: Final = logging.getLogger(__name__)

VERSIONS = (1, 2)

RECORDS_MAX: Final = 20_000  # in one response, whatever the client requests
_BY_BATCHES: Final = 0
_BY_RECORDS: Final = 1


def handle(context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse | Deferred:
    topics = [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]
    batches = batches_by_partition(request.topics)
    problem = problem_of(request.group_id, request.member_id) or _problem_of(request, bool(batches))
    if problem is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    forgotten = [
        (gone.topic_id, index) for gone in request.forgotten_topics_data for index in gone.partitions
    ]
    try:
        share = context.cases.sharing.fetching(
            context.caller,
            request.group_id or "",
            request.member_id or "",
            request.share_session_epoch,
            context.connection_id,
            () if request.share_session_epoch == FINAL_EPOCH else topics,
            forgotten,
        )
    except BrokerError as refusal:
        return ShareFetchResponse(error_code=error_code(refusal), error_message=str(refusal))
    fetch = _ShareFetch(context, request, share)
    deferred = Deferred(abandon=fetch.hurry, hurry=fetch.hurry)
    context.service.tasks.spawn("ShareFetch", fetch.answer(deferred))
    return deferred


def _problem_of(request: ShareFetchRequest, acknowledges: bool) -> str | None:
    if request.share_session_epoch == INITIAL_EPOCH and acknowledges:
        return "A session does not begin with acknowledgements."
    if request.share_acquire_mode not in (_BY_BATCHES, _BY_RECORDS):
        return "There is no such acquire mode."
    if request.is_renew_ack and any(
        (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    ):
        return "A request that renews does not fetch: its limits are 0."
    return None


class _ShareFetch:
    """One request, from its acknowledgements to its response."""

    def __init__(self, context: RequestContext, request: ShareFetchRequest, share: OpenedShare) -> None:
        self._context = context
        self._request = request
        self._share = share
        self._is_hurried = False
        self._rows: dict[Key, PartitionData] = {}
        self._leader_elsewhere = False

    def hurry(self) -> None:
        """Answer with what there is, because the server stops, the client is gone, memory is short, or rights have
        changed.
        """
        self._is_hurried = True
        self._share.wake()

    async def answer(self, deferred: Deferred) -> None:
        work = self._answered(deferred)
        try:
            response = await (work if deferred.time is None else deferred.time.of(work))
        except Exception:
            log.exception("a share fetch failed inside the broker")
            self._share.end()
            response = ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        deferred.resolve(Large(response) if len(self._rows) > ELEMENTS_AT_ONCE else response)

    async def _answered(self, deferred: Deferred) -> ShareFetchResponse:
        request = self._request
        answers = await acknowledge(
            self._context,
            self._share,
            batches_by_partition(request.topics),
            is_renewing=request.is_renew_ack,
        )
        throttle_ms = 0
        if request.share_session_epoch == FINAL_EPOCH:
            self._share.end()
        elif request.max_bytes > 0 and request.max_records > 0:
            throttle_ms = await self._fetch(deferred)
        return self._response(answers, throttle_ms)

    # --- records -----------------------------------------------------------------------------------------------------

    async def _fetch(self, deferred: Deferred) -> int:
        records_max = min(self._request.max_records, RECORDS_MAX)
        partitions: list[SharedPartition] = []
        try:
            await self._ask(partitions, records_max)
            await self._wait(deferred, partitions)
        finally:
            await self._in_turns(partitions, SharedPartition.rest)
        return await self._read(partitions, records_max)

    async def _in_turns(
        self, partitions: list[SharedPartition], work: Callable[[SharedPartition], object]
    ) -> None:
        """Call `work` for each; if they are many, other clients get turns in between."""
        if len(partitions) > ELEMENTS_AT_ONCE:
            await self._context.service.large.each(partitions, work)
            return
        for one in partitions:
            work(one)

    async def _ask(self, partitions: list[SharedPartition], records_max: int) -> None:
        """Ask all partitions, up to the first one that is asked for the first time and has records.  The records of
        the others are then for the next fetch, or for consumers that have come at the same time.
        """
        wanted = self._share.wanted
        for number, key in enumerate(wanted):
            if number and number % ELEMENTS_PER_TURN == 0:
                # A session may have very many.  The work on these comes after the turn has begun, and may wait.
                async with self._context.service.large.turn(ELEMENTS_PER_TURN):
                    pass
            is_new = not self._share.is_connected(key)
            one = await self._connected(key)
            if one is None:
                continue
            partitions.append(one)
            one.ask(-(-records_max // len(wanted)))
            if is_new:
                await asyncio.sleep(0)  # what is cached comes in the next turn of the loop
                if one.has_some:
                    return

    async def _connected(self, key: Key) -> SharedPartition | None:
        """The consumer at a partition; None if there is none, and the answer says why, or the session has ended."""
        context, share = self._context, self._share
        try:
            partition = share.partition(key)
            code = leader_error(context, partition)
            if code == ErrorCode.NONE:
                return await share.connect(key, context.client_host)
        except BrokerError as refusal:
            self._refuse(key, refusal)
            return None
        row = self._row(key)
        row.error_code = code
        row.current_leader = LeaderIdAndEpoch(partition.leader_id, partition.log.leader_epoch)
        self._leader_elsewhere = True
        return None

    async def _wait(self, deferred: Deferred, partitions: list[SharedPartition]) -> None:
        """Wait until records have come, or the time is over."""
        share = self._share
        something = asyncio.ensure_future(share.something())
        if self._rows or share.is_closed or self._is_hurried or any(one.has_some for one in partitions):
            something.cancel()
            return
        if self._request.max_wait_ms <= 0:
            something.cancel()
            await asyncio.sleep(0)  # what is cached comes in the next turn of the loop
            return
        wait_s = min(self._request.max_wait_ms, WAIT_MS_MAX) / 1000
        timer = self._context.cases.clock.call_later(wait_s, share.wake)
        waiting = self._context.service.fetches_waiting
        waiting[deferred] = self.hurry
        try:
            await something
        finally:
            del waiting[deferred]
            timer.cancel()

    async def _read(self, partitions: list[SharedPartition], records_max: int) -> int:
        """Read what has come; returns how long, in milliseconds, the client has to wait instead."""
        context, request = self._context, self._request
        service, memory = context.service, context.service.memory
        some = [one for one in partitions if one.has_some]
        if not some:
            return 0
        left = min(
            context.meter.fetch_bytes_max(min(request.max_bytes, service.settings.fetch_bytes_max)),
            memory.response_bytes_max(),
        )
        batch_max = max(one.batch_bytes_max for one in some)
        if batch_max > left and memory.refuses(batch_max):
            for one in some:
                one.give_back()
            return REFUSED_MS
        reserved = max(left, memory.first_batch_bytes(batch_max))
        memory.take(reserved)
        total = 0
        try:
            for one in some:
                if records_max <= 0 or (total and left <= 0):
                    one.give_back()
                    continue
                records = await self._read_one(one, left, records_max, may_exceed=not total)
                total += records.size
                left -= records.size
                records_max -= records.record_count
        finally:
            memory.give(reserved)
        # Records that the consumer has acquired are sent; only its next request waits.
        return context.meter.fetched(total) if total else 0

    async def _read_one(
        self, one: SharedPartition, bytes_max: int, records_max: int, *, may_exceed: bool
    ) -> SharedRecords:
        request = self._request
        try:
            self._share.partition(one.key)  # raises if the right was revoked while it waited
            records = await one.read(
                bytes_max,
                records_max,
                request.batch_size if request.batch_size > 0 else RECORDS_MAX,
                is_strict=request.share_acquire_mode == _BY_RECORDS,
                may_exceed=may_exceed,
            )
        except BrokerError as refusal:
            one.give_back()
            self._refuse(one.key, refusal)
            return SharedRecords([], 0, [])
        if records.acquired:
            row = self._row(one.key)
            row.records = list(records.batches)
            row.acquired_records = [
                AcquiredRecords(start, stop - 1, count) for start, stop, count in records.acquired
            ]
            self._share.served(one.key)
        return records

    # --- answering ---------------------------------------------------------------------------------------------------

    def _row(self, key: Key) -> PartitionData:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = PartitionData(key[1], records=b"")
        return row

    def _refuse(self, key: Key, refusal: BrokerError) -> None:
        row = self._row(key)
        row.error_code, row.error_message = error_code(refusal), str(refusal)

    def _response(self, answers: dict[Key, Outcome], throttle_ms: int) -> ShareFetchResponse:
        for key, (code, message) in answers.items():
            row = self._row(key)
            row.acknowledge_error_code, row.acknowledge_error_message = code, message
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for (topic_id, _), row in self._rows.items():
            topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id)).partitions.append(row)
        response = ShareFetchResponse(
            throttle_time_ms=throttle_ms,
            acquisition_lock_timeout_ms=self._share.rules.lock_ms,
            responses=list(topics.values()),
        )
        if self._leader_elsewhere:
            response.node_endpoints = node_endpoints(self._context, NodeEndpoint)
        return response


API = Api.of(codec, VERSIONS, handle)

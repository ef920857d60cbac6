"""Fetch: read record batches from partitions.

Served: v4-18 (v7 sessions, v12 divergence of epochs, v13 topic ids, v16 leader hints).  The server answers in stage
one with what the entry cache holds, in the memory that received it.  It reads the rest from the store, and first
makes batches of what Pulsar clients published (`broker/interop/interop.py`).  If there is too little to send, the
request waits for `min_bytes` or `max_wait_ms`; an append wakes it (`fetch_waiting.py`).

Limits: `max_bytes` of the request and `fetch.max.bytes` of the broker over all partitions, and `partition_max_bytes`
for each; they count everything that is sent.  The first partition with data sends at least one batch, however large
(KIP-74).  The server sends at most `ENTRIES_MAX` very small batches at once, even if `min_bytes` asks for more.
Readers of committed records get what is below the last stable offset, and the list of aborted transactions in it
(KIP-98).  If the server does not know that offset, it refuses them (CORRUPT_MESSAGE, or KAFKA_STORAGE_ERROR while it
finds out).
"""

import logging
from collections.abc import Coroutine
from typing import Any, Final

from magnetar.base.errors import BrokerError
from magnetar.base.tasks import outcomes
from magnetar.broker.usecases.handles import ReadablePartition, ReadableTopic
from magnetar.ledger.entry import Entry
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.fetch_answer import aborted_in, answer_of
from magnetar.protocols.kafka.fetch_pace import UNPACED, FetchPace
from magnetar.protocols.kafka.fetch_place import INSIDE, Place, is_at_end, place_of, refuse
from magnetar.protocols.kafka.fetch_sessions import FetchPlan, FetchTarget, TopicKey
from magnetar.protocols.kafka.fetch_waiting import WAIT_MS_MAX, FetchWaiting
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.registry import Api, Deferred
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import fetch as codec
from magnetar.wire.kafka.messages.fetch import (
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from magnetar.wire.kafka.one_partition import decode_fetch_request, encode_fetch_response

log: Final = logging.getLogger(__name__)

VERSIONS = (4, 18)

_TOPIC_IDS_SINCE: Final = 13
_LEADER_HINTS_SINCE: Final = 16
_READ_COMMITTED: Final = 1
ENTRIES_MAX: Final = 2_000  # in one response: 5 ms on the event loop
COLD_READS_AT_ONCE: Final = 32  # partitions of one fetch
# Each of them gives at least one entry, so a fetch may read this many entries that it does not send.
COLD_BYTES_AT_ONCE: Final = 16 << 20
_FOLLOWERS_BEGIN: Final = 0  # replica ids from here on are brokers
_Row = tuple[FetchTarget, ReadablePartition, PartitionData]


def handle(context: RequestContext, request: FetchRequest) -> Any:
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica_id >= _FOLLOWERS_BEGIN:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    plan = context.service.fetch_sessions.plan(request, by_id, context.caller.principal)
    if plan.error:
        return FetchResponse(error_code=plan.error, session_id=plan.session_id)
    fetch = _Fetch(context, request, plan)
    if len(plan.targets) > ELEMENTS_AT_ONCE:
        return fetch.answer_in_turns(request.max_wait_ms > 0)
    fetch.collect()
    if fetch.cold or fetch.foreign:
        return fetch.read_later()
    if request.max_wait_ms <= 0 or fetch.is_satisfied:
        return fetch.response()
    return fetch.wait()


class _Fetch:
    """One fetch, from its first look at the partitions to its response."""

    __slots__ = (
        "_at_end", "_bytes_left", "_bytes_total", "_bytes_wanted", "_context", "_deferred", "_entries_left",
        "_found", "_has_error", "_is_left", "_leader_elsewhere", "_node_id", "_pace", "_plan", "_reads_committed",
        "_refused", "_request", "_timer", "_topics", "_unfinished", "_waiting", "cold", "foreign",
    )  # fmt: skip

    def __init__(self, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self._context = context
        self._request = request
        self._plan = plan
        self._node_id = context.node.node_id
        self._reads_committed = request.isolation_level == _READ_COMMITTED
        # The caller's right is checked once in a request, also if it has many partitions, or looks twice.
        self._topics: dict[TopicKey, ReadableTopic] = {}
        self._refused: dict[TopicKey, BrokerError] = {}
        self._deferred: Deferred | None = None
        self._is_left = False  # the session no longer waits for its answer
        self._waiting: FetchWaiting | None = None
        self._unfinished: list[FetchTarget] = []  # while it waits: those that were not at their end
        self._timer: Any = None

    def _begin(self) -> None:
        """Reset the state before each look.  Conditions, not `min` and `max`: calls would cost a tenth of the look."""
        self._found: list[tuple[FetchTarget, PartitionData]] = []
        self._at_end: list[tuple[FetchTarget, ReadablePartition]] = []  # all others: nothing is there to read
        self.cold: list[_Row] = []  # not cached: the store must be read
        self.foreign: list[tuple[_Row, list[Entry]]] = []  # cached, and must be converted
        context, request = self._context, self._request
        service = context.service
        most = service.settings.fetch_bytes_max
        wanted = request.max_bytes
        wanted = context.meter.fetch_bytes_max(wanted if wanted < most else most)
        room = service.memory.response_bytes_max()
        left = self._bytes_left = wanted if wanted < room else room
        # As in Kafka: the fetch must not wait for more than it may send.
        self._bytes_wanted = request.min_bytes if request.min_bytes < left else max(left, 1)
        self._bytes_total = 0
        self._entries_left = ENTRIES_MAX
        self._has_error = False
        self._leader_elsewhere = False
        self._pace = UNPACED

    # --- looking -----------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Look at every partition once: take cached entries, and note partitions that must be read."""
        self._begin()
        for target in self._plan.targets:
            self._look_at(target)

    def _collect_again(self) -> None:
        """As `collect`, after a wait: what was at its end is looked at only if something has happened to it since."""
        assert self._waiting is not None
        if not self._topics:
            self.collect()  # a right was lost
            return
        touched = self._waiting.touched()
        again = {target for target, partition in self._at_end if partition in touched}.union(self._unfinished)
        rested = [one for one in self._at_end if one[1] not in touched]
        self._begin()
        self._at_end = rested
        for target in self._plan.targets if len(again) > 1 else again:
            if target in again:
                self._look_at(target)

    async def _collect_in_turns(self) -> None:
        """As `collect`, but other clients get turns of the event loop in between."""
        self._begin()
        await self._context.service.large.each(self._plan.targets, self._look_at)

    def _look_at(self, target: FetchTarget) -> None:
        try:
            partition = self._resolve(target)
        except BrokerError as error:
            self._fail(self._row_of(target), error_code(error))
            return
        if is_at_end(self._node_id, target.request, partition) and not (
            self._reads_committed and partition.uncertain is not None
        ):
            self._at_end.append((target, partition))
            return
        row = self._row_of(target)
        place = place_of(self._context, target.request, partition, row)
        if place is INSIDE:
            self._take(target, partition, row)
        else:
            self._has_error = True
            self._leader_elsewhere |= place is Place.ELSEWHERE

    def _row_of(self, target: FetchTarget) -> PartitionData:
        # Not null: librdkafka treats a null record set as a protocol error.
        row = PartitionData(
            target.partition, aborted_transactions=[] if self._reads_committed else None, records=b""
        )
        self._found.append((target, row))
        return row

    def _fail(self, row: PartitionData, code: ErrorCode) -> None:
        refuse(row, code)
        self._has_error = True

    def _resolve(self, target: FetchTarget) -> ReadablePartition:
        topic = self._topics.get(target.topic)
        if topic is None or topic.is_deleted:
            topic = self._topics[target.topic] = self._to_read(target.topic)
        return topic.partition(target.partition)

    def _to_read(self, key: TopicKey) -> ReadableTopic:
        if key in self._refused:
            raise self._refused[key].with_traceback(None)
        context = self._context
        reading = context.cases.reading
        try:
            if isinstance(key, bytes):
                return reading.to_read_by_id(context.caller, key)
            return reading.to_read(context.caller, key)
        except BrokerError as refusal:
            self._refused[key] = refusal
            raise

    def _take(self, target: FetchTarget, partition: ReadablePartition, row: PartitionData) -> None:
        wanted = target.request
        offset = wanted.fetch_offset
        end_offset = row.last_stable_offset if self._reads_committed else row.high_watermark
        if offset >= end_offset:
            if self._reads_committed and partition.uncertain is not None:
                self._refuse_uncertain(partition, row, offset)
            return
        turns = partition.dispatch_limit
        if self._is_full() or (turns is not None and self._paced().holds(partition)):
            return
        bytes_max, bytes_left = wanted.partition_max_bytes, self._bytes_left
        entries = partition.log.read_cached(
            offset, bytes_max if bytes_max < bytes_left else bytes_left, end_offset
        )
        if entries is None:
            self.cold.append((target, partition, row))
            return
        entries_max = self._entries_left if turns is None else min(self._entries_left, turns.fitting(entries))
        del entries[entries_max:]
        self._entries_left -= len(entries)
        formed = self._context.cases.reading.kafka_form(partition, entries)
        if formed is None:
            self.foreign.append(((target, partition, row), entries))
        else:
            self._add(target, partition, row, formed)

    def _paced(self) -> FetchPace:
        if self._pace is UNPACED:
            self._pace = FetchPace(self._context.connection_id)
        return self._pace

    def _refuse_uncertain(self, partition: ReadablePartition, row: PartitionData, offset: int) -> None:
        try:
            partition.check_committed(offset)
        except BrokerError as error:
            self._fail(row, error_code(error))

    def _end_offset(self, row: PartitionData) -> int:
        """The offset at which the data for this reader ends; readers of committed records do not see undecided
        transactions.
        """
        return row.last_stable_offset if self._reads_committed else row.high_watermark

    def _add(
        self, target: FetchTarget, partition: ReadablePartition, row: PartitionData, entries: list[Entry]
    ) -> None:
        payloads: list[Any] = [entry.payload for entry in entries]
        size = sum(map(len, payloads))
        limit, bytes_max = self._bytes_left, target.request.partition_max_bytes
        if bytes_max < limit:
            limit = bytes_max
        while size > limit and len(payloads) > 1:
            size -= len(payloads.pop())  # larger in this form than in its stored form
        if not size or (size > limit and self._bytes_total):
            return  # nothing fits: the partition comes first in a later fetch
        row.records = payloads
        if self._reads_committed:
            end_offset = entries[len(payloads) - 1].last_offset + 1
            row.aborted_transactions = aborted_in(
                partition, target.request.fetch_offset, end_offset, payloads
            )
        self._bytes_total += size
        self._bytes_left -= size
        if partition.dispatch_limit is not None:
            self._paced().gives(partition, entries[: len(payloads)], size)

    def read_later(self) -> Coroutine[Any, Any, FetchResponse]:
        """Read what is not cached, convert entries of the other protocol, several partitions at a time, and answer."""
        # Now, not when the coroutine begins, so that a fetch planned meanwhile finds less room.  A first batch is
        # sent however little is left: with many clients these alone would exceed the limit.
        memory = self._context.service.memory
        batch_max = max(
            partition.batch_bytes_max for _, partition, _ in (*self.cold, *(row for row, _ in self.foreign))
        )
        reserved = max(self._bytes_left, memory.first_batch_bytes(batch_max))
        memory.take(reserved)
        return self._read_later(reserved)

    async def _read_later(self, reserved: int) -> FetchResponse:
        memory = self._context.service.memory
        try:
            await self._convert_found()
            start = 0
            while start < len(self.cold) and not self._is_full():
                rows = self._cold_at_once(start)
                await self._read_cold(rows)
                start += len(rows)
        finally:
            memory.give(reserved)
        return self.response()

    def _cold_at_once(self, start: int) -> list[_Row]:
        """The next partitions to read at the same time: as many as fit what may be sent, at least one."""
        room = max(self._bytes_left, COLD_BYTES_AT_ONCE)
        rows = self.cold[start : start + COLD_READS_AT_ONCE]
        for count, (_, partition, _) in enumerate(rows):
            room -= partition.batch_bytes_max
            if room < 0:
                return rows[: max(count, 1)]
        return rows

    async def _convert_found(self) -> None:
        if not self.foreign:
            return
        results = await outcomes(
            [
                self._context.cases.reading.kafka_form_later(partition, entries)
                for (_, partition, _), entries in self.foreign
            ]
        )
        for (row, _), result in zip(self.foreign, results, strict=True):
            self._take_result(row, result)

    async def _read_cold(self, rows: list[_Row]) -> None:
        share = max(self._bytes_left // len(rows), 1)
        entries_share = max(self._entries_left // len(rows), 1)
        results = await outcomes(
            [
                self._read(
                    partition,
                    target,
                    min(target.request.partition_max_bytes, share),
                    entries_share,
                    self._end_offset(row),
                )
                for target, partition, row in rows
            ]
        )
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, list):
                self._entries_left -= len(result)
            self._take_result(row, result)

    def _take_result(self, found: _Row, result: list[Entry] | BaseException) -> None:
        target, partition, row = found
        if isinstance(result, BrokerError):
            # Retention may have deleted the data before the read.
            gone = target.request.fetch_offset < partition.log.log_start
            self._fail(row, ErrorCode.OFFSET_OUT_OF_RANGE if gone else error_code(result))
        elif isinstance(result, BaseException):
            raise result
        else:
            self._add(target, partition, row, result)

    async def _read(
        self,
        partition: ReadablePartition,
        target: FetchTarget,
        bytes_max: int,
        entries_max: int,
        end_offset: int,
    ) -> list[Entry]:
        entries = await partition.log.read(target.request.fetch_offset, bytes_max)
        visible = [entry for entry in entries[:entries_max] if entry.last_offset < end_offset]
        if partition.dispatch_limit is not None:
            del visible[partition.dispatch_limit.fitting(visible) :]
        reading = self._context.cases.reading
        formed = reading.kafka_form(partition, visible)
        return await reading.kafka_form_later(partition, visible) if formed is None else formed

    # --- waiting -----------------------------------------------------------------------------------------------------

    @property
    def is_satisfied(self) -> bool:
        return self._has_error or self._bytes_total >= self._bytes_wanted or self._is_full()

    def _is_full(self) -> bool:
        """Whether no more may be sent.  A first batch is sent however large it is."""
        return self._entries_left <= 0 or (self._bytes_total > 0 and self._bytes_left <= 0)

    def answer_in_turns(self, may_wait: bool) -> Deferred:
        """As `handle`, for so many partitions that other clients must get turns in between."""
        deferred = Deferred(abandon=self._leave, hurry=self._look_again)
        self._answer_later(deferred, self._look_in_turns(deferred, may_wait))
        return deferred

    async def _look_in_turns(self, deferred: Deferred, may_wait: bool) -> FetchResponse | None:
        await self._collect_in_turns()
        if self.cold or self.foreign:
            return await self.read_later()
        # The memory that it would hold while it waits could block other requests.
        is_over = self._context.service.memory.is_over
        is_gone = any(topic.is_deleted for topic in self._topics.values())  # since the fetch looked at it
        if is_gone:
            await self._collect_in_turns()
        if self.is_satisfied or not may_wait or self._is_left or is_over or is_gone:
            return self.response()
        self._wait_with(deferred)
        return None

    def _leave(self) -> None:
        self._is_left = True
        self._stop_waiting()

    def wait(self) -> Deferred:
        """Answer when there are `min_bytes` bytes, or after `max_wait_ms`."""
        deferred = Deferred(abandon=self._leave, hurry=self._look_again)
        self._wait_with(deferred)
        return deferred

    def _wait_with(self, deferred: Deferred) -> None:
        begun = [(target, self._resolve(target)) for target, _ in self._found]
        self._deferred = deferred
        self._context.service.fetches_waiting[deferred] = self._ask_again
        pace = self._pace
        waiting = self._waiting = FetchWaiting(
            self._bytes_wanted, ENTRIES_MAX, self._reads_committed, self._look_again
        )
        watch = waiting.watch
        for target, partition in self._at_end:
            watch(partition, target.request)
        for target, partition in begun:
            if not pace.is_held(partition):
                watch(partition, target.request)
        self._unfinished = [target for target, _ in begun]
        self._found = []  # a fetch that waits holds no entries: it looks them up again
        pace.wait(self._look_again)
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._timer = self._context.cases.clock.call_later(wait_ms / 1000, self._look_again)

    def _ask_again(self) -> None:
        """Check rights again after a change; a fetch that has lost one is answered now with that error."""
        topics, self._topics = self._topics, {}
        try:
            for key in topics:
                self._topics[key] = self._to_read(key)
        except BrokerError:
            self._topics = {}
            self._look_again()

    def _look_again(self) -> None:
        """Answer with what there is, because new data has come or the time is over."""
        deferred = self._deferred
        if deferred is None:
            return
        self._stop_waiting()
        if len(self._plan.targets) > ELEMENTS_AT_ONCE:
            self._answer_later(deferred, self._look_in_turns(deferred, may_wait=False))
            return
        if deferred.time is not None:
            deferred.time.go_on()
        self._collect_again()
        if self.cold or self.foreign:
            # Now, and not by the next fetch, because the turn at a dispatch rate would be over by then.
            self._answer_later(deferred, self.read_later())
        else:
            deferred.resolve(self.response())

    def _answer_later(self, deferred: Deferred, work: Coroutine[Any, Any, FetchResponse | None]) -> None:
        if deferred.time is not None:
            deferred.time.pause()
        self._context.service.tasks.spawn("Fetch", self._finish_later(deferred, work))

    async def _finish_later(
        self, deferred: Deferred, work: Coroutine[Any, Any, FetchResponse | None]
    ) -> None:
        try:
            response = await (work if deferred.time is None else deferred.time.of(work))
        except Exception:
            log.exception("a fetch failed inside the broker")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if response is not None:  # otherwise it waits
            is_large = len(self._plan.targets) > ELEMENTS_AT_ONCE
            deferred.resolve(Large(response) if is_large else response)

    def _stop_waiting(self) -> None:
        if self._deferred is not None:
            del self._context.service.fetches_waiting[self._deferred]
            self._deferred = None
            assert self._waiting is not None
            self._waiting.stop()
            self._pace.stop()
            self._timer.cancel()

    # --- answering ---------------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        """The response with what was found; in a session only news.

        It has no records if the client has exceeded its quota: the client asks again after the throttle time
        (KIP-219).
        """
        throttle_ms = self._context.meter.fetched(self._bytes_total) if self._bytes_total else 0
        if throttle_ms:
            session_id = self._context.service.fetch_sessions.unserved(self._plan)
            return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)
        if self._pace is not UNPACED:
            self._pace.sent()
            self._pace.keep()
        response = answer_of(self._plan, self._found, self._at_end, self._reads_committed)
        if self._plan.session_id:
            served = [target for target, row in self._found if row.records]
            self._context.service.fetch_sessions.rotate(self._plan.session_id, served)
        if self._leader_elsewhere and self._context.api_version >= _LEADER_HINTS_SINCE:
            response.node_endpoints = node_endpoints(self._context, NodeEndpoint)
        return response


API = Api.of(codec, VERSIONS, handle, decode=decode_fetch_request, encode=encode_fetch_response)

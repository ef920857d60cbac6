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

from magnetar.base.errors import BrokerError, kept
from magnetar.base.memory_budget import REFUSED_MS
from magnetar.protocols.kafka import fetch_look
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.fetch_answer import answer_of
from magnetar.protocols.kafka.fetch_pace import UNPACED
from magnetar.protocols.kafka.fetch_waiting import WAIT_MS_MAX, FetchWaiting
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.registry import Api, Deferred
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import fetch as codec
from magnetar.wire.kafka.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint
from magnetar.wire.kafka.one_partition import decode_fetch_request, encode_fetch_response

log: Final = logging.getLogger(__name__)

VERSIONS = (4, 18)

_TOPIC_IDS_SINCE: Final = 13
_LEADER_HINTS_SINCE: Final = 16
_FOLLOWERS_BEGIN: Final = 0  # replica ids from here on are brokers


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


class _Fetch(fetch_look.FetchLook):
    """One fetch, from its first look at the partitions to its response."""

    # Set where it begins to wait, or to take turns: most fetches do neither.
    __slots__ = ("_deferred", "_is_left", "_timer", "_unfinished", "_waiting")

    # --- reading -----------------------------------------------------------------------------------------------------

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

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _collect_again(self) -> None:
        """As `collect`, after a wait: what was at its end is looked at only if something has happened to it since."""
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

    def answer_in_turns(self, may_wait: bool) -> Deferred:
        """As `handle`, for so many partitions that other clients must get turns in between."""
        self._deferred: Deferred | None = None
        self._is_left = False  # the session no longer waits for its answer
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
        self._is_left = False
        deferred = Deferred(abandon=self._leave, hurry=self._look_again)
        self._wait_with(deferred)
        return deferred

    def _wait_with(self, deferred: Deferred) -> None:
        begun = [(target, self._resolve(target)) for target, _ in self._found]
        self._deferred = deferred
        self._context.service.fetches_waiting[deferred] = self._ask_again
        pace = self._pace
        waiting = self._waiting = FetchWaiting(
            self._bytes_wanted, fetch_look.ENTRIES_MAX, self._reads_committed, self._look_again
        )
        watch = waiting.watch
        for target, partition in self._at_end:
            watch(partition, target.request)
        for target, partition in begun:
            if not pace.is_held(partition):
                watch(partition, target.request)
        self._unfinished = [target for target, _ in begun]  # not at their end
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
        except BrokerError as refusal:
            kept(refusal)  # by `_refused`
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
            self._waiting.stop()
            self._pace.stop()
            self._timer.cancel()

    # --- answering ---------------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        """The response with what was found; in a session only news.

        It has no records if the client has exceeded its quota, or memory is short: the client asks again after the
        throttle time (KIP-219).
        """
        if self._bytes_total:
            throttle_ms = self._context.meter.fetched(self._bytes_total)
        else:
            throttle_ms = REFUSED_MS if self._is_refused and not self._has_error else 0
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

"""What a fetch finds in its partitions: cached entries at once, all else by reading the store or converting.

The fetch itself, which waits and answers, is in `handlers/fetch.py`.  It derives from `FetchLook` and does not hold
one: every request would pay for the second object.
"""

from typing import Any, Final

from magnetar.base.errors import BrokerError, kept
from magnetar.base.tasks import outcomes
from magnetar.broker.errors import NotLeader
from magnetar.broker.usecases.handles import ReadablePartition, ReadableTopic
from magnetar.ledger.entry import Entry
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.fetch_answer import aborted_in
from magnetar.protocols.kafka.fetch_pace import UNPACED, FetchPace
from magnetar.protocols.kafka.fetch_place import INSIDE, Place, is_at_end, place_of, refuse
from magnetar.protocols.kafka.fetch_sessions import FetchPlan, FetchTarget, TopicKey
from magnetar.protocols.kafka.leaders import NO_NODE
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import FetchRequest, LeaderIdAndEpoch, PartitionData

ENTRIES_MAX: Final = 2_000  # in one response: 5 ms on the event loop
COLD_READS_AT_ONCE: Final = 32  # partitions of one fetch
# Each of them gives at least one entry, so a fetch may read this many entries that it does not send.
COLD_BYTES_AT_ONCE: Final = 16 << 20
_READ_COMMITTED: Final = 1
_Row = tuple[FetchTarget, ReadablePartition, PartitionData]


class FetchLook:
    """One look after the other at the partitions of a fetch; each begins anew."""

    __slots__ = (
        "_at_end", "_bytes_left", "_bytes_total", "_bytes_wanted", "_context", "_entries_left", "_found",
        "_has_error", "_is_refused", "_leader_elsewhere", "_node_id", "_pace", "_plan", "_reads_committed", "_refused",
        "_request", "_topics", "cold", "foreign",
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
        self._is_refused = False  # there is a batch that has no room in memory now
        self._leader_elsewhere = False
        self._pace = UNPACED

    def collect(self) -> None:
        """Look at every partition once: take cached entries, and note partitions that must be read."""
        self._begin()
        for target in self._plan.targets:
            self._look_at(target)

    async def _collect_in_turns(self) -> None:
        """As `collect`, but other clients get turns of the event loop in between."""
        self._begin()
        await self._context.service.large.each(self._plan.targets, self._look_at)

    def _look_at(self, target: FetchTarget) -> None:
        try:
            partition = self._resolve(target)
        except BrokerError as refusal:
            error = kept(refusal)  # `_refused` may have it
            row = self._row_of(target)
            self._fail(row, error_code(error))
            if isinstance(error, NotLeader) and error.leader_id != NO_NODE:
                row.current_leader = LeaderIdAndEpoch(error.leader_id, error.leader_epoch)
                self._leader_elsewhere = True
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
        if not size or (size > limit and (self._bytes_total or self._must_wait(size))):
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

    def _must_wait(self, size: int) -> bool:
        """Whether a first batch that is larger than it should be has no room in memory now."""
        if size <= self._bytes_left or not self._context.service.memory.refuses(size):
            return False
        self._is_refused = True
        return True

    @property
    def is_satisfied(self) -> bool:
        return (
            self._has_error or self._is_refused or self._bytes_total >= self._bytes_wanted or self._is_full()
        )

    def _is_full(self) -> bool:
        """Whether no more may be sent.  A first batch is sent however large it is."""
        return self._entries_left <= 0 or (self._bytes_total > 0 and self._bytes_left <= 0)

    # --- what is not cached ------------------------------------------------------------------------------------------

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

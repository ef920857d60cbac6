"""One partition as the broker serves it: the rules of an append, idempotence, and who waits for what.

The log itself is a `ManagedLedger`.  Here a Kafka batch is checked against its topic's settings and its producer's
sequence, given its offsets in place (no byte of it is copied), and queued.  Readers that wait for more data register a
callback in `waiters`; it is called once per durable entry and must only note that it was.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.base.errors import StorageError, WireError
from magnetar.broker.batch_check import check_batch
from magnetar.broker.errors import InvalidTxnState
from magnetar.broker.producer_state import ProducerStates
from magnetar.broker.transaction_index import TransactionIndex
from magnetar.ledger.entry import Entry
from magnetar.ledger.entry_format import EntryPrefix
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.storage.store import Done
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import (
    TRANSACTIONAL,
    assign_offset,
    end_transaction_marker,
    marker_commits,
    read_header,
    stamp_log_append_time,
)

if TYPE_CHECKING:
    from magnetar.broker.topics import Topic

_log = logging.getLogger(__name__)
_REPLAY_BYTES: Final = 4 << 20
_prefixes: Final = EntryPrefix()


class TimestampLookup(IntEnum):
    """Special timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class Appended(NamedTuple):
    """What a producer is told.  `append_time_ms` is -1 unless the topic stamps records itself."""

    base_offset: int
    append_time_ms: int


class Partition:
    """See the module's text."""

    __slots__ = (
        "_duplicates",
        "bytes_since_snapshot",
        "index",
        "log",
        "producers",
        "replicas",
        "topic",
        "transactions",
        "waiters",
    )

    def __init__(self, topic: "Topic", index: int, replicas: list[int], log: ManagedLedger) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas  # node ids, the leader first
        self.log = log
        self.producers = ProducerStates()
        self.transactions = TransactionIndex()
        self.waiters: set[Callable[[], None]] = set()
        self.bytes_since_snapshot = 0
        self._duplicates: list[tuple[int, Done]] = []
        log.on_advance = self._on_advance
        log.on_reset = self._on_reset

    @property
    def leader_id(self) -> int:
        return self.replicas[0]

    def append(self, batch: memoryview, now_ms: int, done: Done) -> Appended:
        """Append one Kafka record batch; `done` is called when it is durable or has failed.

        `batch` must be writable and stay unchanged afterwards: it becomes the log entry.

        Raises:
            CorruptMessage, InvalidRecord, UnsupportedMessageFormat, RecordTooLarge, InvalidTimestamp: the batch is bad.
            OutOfOrderSequence, InvalidProducerEpoch: its producer is out of step.
            StorageError: nothing can be written now.
        """
        config = self.topic.config
        header = check_batch(batch, config, now_ms)
        # Unpacked once: this runs for every batch, and a field of a named tuple costs a call.
        _, _, _, _, _, attributes, _, _, max_timestamp_ms, producer_id, epoch, sequence, count = header
        log = self.log
        if producer_id >= 0:
            earlier = self.producers.check(producer_id, epoch, sequence, count)
            if earlier is not None:
                self._when_durable(earlier.last_offset, done)
                return Appended(earlier.base_offset, -1)
            if attributes & TRANSACTIONAL and not self.topic.is_in_transaction(
                producer_id, epoch, self.index
            ):
                raise InvalidTxnState(f"producer {producer_id} has no transaction with this partition in it")
        base = log.next_offset
        append_time_ms = -1
        if config.log_append_time:
            append_time_ms = max_timestamp_ms = now_ms
            stamp_log_append_time(batch, header, now_ms)
        assign_offset(batch, base, log.leader_epoch)
        last = base + count - 1
        prefix = _prefixes.kafka(now_ms, last, count)
        size = len(prefix) + len(batch)
        try:
            log.append(Entry(base, last, max_timestamp_ms, batch), (prefix, batch), size, done)
        except StorageError:
            if producer_id >= 0:
                self.producers.refused(producer_id, epoch, sequence)
            raise
        self.bytes_since_snapshot += size
        if producer_id >= 0:
            self.producers.add(producer_id, epoch, sequence, base, count, now_ms)
            if attributes & TRANSACTIONAL:
                self.transactions.began(producer_id, base)
        return Appended(base, append_time_ms)

    # --- transactions ------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided: what a reader of committed records may see."""
        return self.transactions.last_stable_offset(self.log.high_watermark)

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, done: Done
    ) -> None:
        """Write the marker that ends the producer's transaction; `done(None)` when it is durable.

        Batches of older epochs than `epoch` are refused from now on.  Without an open transaction there is nothing to
        write, and `done` is called when all that was appended is durable: an earlier marker may be on its way.

        Raises:
            StorageError: nothing can be written now.
        """
        log = self.log
        if not self.transactions.is_open(producer_id):
            self.producers.raise_epoch(producer_id, epoch)
            self._when_durable(log.next_offset - 1, done)
            return
        now_ms = log.now_ms()
        batch = memoryview(
            end_transaction_marker(producer_id, epoch, coordinator_epoch, now_ms, commit=commit)
        )
        offset = log.next_offset
        assign_offset(batch, offset, log.leader_epoch)
        prefix = _prefixes.kafka(now_ms, offset, 1)
        size = len(prefix) + len(batch)
        log.append(Entry(offset, offset, now_ms, batch), (prefix, batch), size, done)
        self.bytes_since_snapshot += size
        self.producers.raise_epoch(producer_id, epoch)
        self.transactions.ended(producer_id, offset, committed=commit)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _when_durable(self, last_offset: int, done: Done) -> None:
        if last_offset < self.log.high_watermark:
            done(None)
        else:
            self._duplicates.append((last_offset, done))

    def _on_advance(self) -> None:
        if self._duplicates:
            self._resolve_duplicates(None)
        if self.waiters:
            for wake in self.waiters:
                wake()

    def _resolve_duplicates(self, error: Exception | None) -> None:
        waiting, self._duplicates = self._duplicates, []
        for last_offset, done in waiting:
            if error is not None or last_offset < self.log.high_watermark:
                done(error)
            else:
                self._duplicates.append((last_offset, done))

    # --- producer state over restarts --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The producers' state, in-flight batches included: to be stored once `next_offset` of now is durable."""
        self.bytes_since_snapshot = 0
        self.transactions.forget_below(self.log.log_start)
        return self.producers.encode(self.log.next_offset) + self.transactions.encode()

    def wait_durable(self, end_offset: int) -> asyncio.Future[bool]:
        """Done when the log of now is durable up to `end_offset` (True), or an append before it has failed (False)."""
        durable: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if not durable.done():
                durable.set_result(error is None)

        self._when_durable(end_offset - 1, done)
        return durable

    async def recover_producers(self, snapshot: bytes | None, now_ms: int) -> None:
        """Rebuild the producers' state: the snapshot, then the headers of the log after it.

        What cannot be read is left out, and said: a partition without that memory is better than none.
        """
        try:
            await self._recover_producers(snapshot, now_ms)
        except (StorageError, WireError) as error:
            _log.error(
                "%s: what idempotent producers have sent is not known in full: %s", self.log.name, error
            )

    async def _recover_producers(self, snapshot: bytes | None, now_ms: int) -> None:
        states, transactions = ProducerStates(), TransactionIndex()
        if snapshot is not None:
            states, position = ProducerStates.decode(snapshot)
            transactions = TransactionIndex.decode(snapshot, position)
        offset = max(states.next_offset, self.log.log_start)
        if offset > self.log.high_watermark:
            # The log was cut below the snapshot, by our bug or a lost file: start over from what is there.
            states, transactions, offset = ProducerStates(), TransactionIndex(), self.log.log_start
        self.producers, self.transactions = states, transactions
        while offset < self.log.high_watermark:
            for entry in await self.log.read(offset, _REPLAY_BYTES):
                self._replay(entry, now_ms)
                offset = entry.last_offset + 1
        states.next_offset = offset
        self.bytes_since_snapshot = 0

    def _replay(self, entry: Entry, now_ms: int) -> None:
        header = read_header(entry.payload)
        if header.producer_id < 0:
            return
        if header.is_control:
            self.producers.raise_epoch(header.producer_id, header.producer_epoch)
            committed = marker_commits(entry.payload)
            self.transactions.ended(header.producer_id, entry.base_offset, committed=committed)
        else:
            self.producers.add(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                entry.base_offset,
                header.record_count,
                now_ms,  # record times say nothing of when a producer was last seen
            )
            if header.is_transactional:
                self.transactions.began(header.producer_id, entry.base_offset)

    def _on_reset(self) -> None:
        """Appends failed.  What was recorded of them must go: read the producers' state back from what was stored."""
        self._resolve_duplicates(StorageError("the batch that this one repeats was not stored"))
        self.producers = self.producers.below(self.log.high_watermark)
        self.transactions.forget_from(self.log.high_watermark)

    def close(self) -> None:
        """Take no more appends; whoever waits is woken and finds the partition as it is."""
        self.log.close()
        self._on_advance()

    # --- lookups -----------------------------------------------------------------------------------------------------

    async def find_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first readable record at or after `timestamp_ms`; None when there is none."""
        offset = self.log.log_start
        while (entry := await self.log.entry_for_timestamp(timestamp_ms, offset)) is not None:
            header = read_header(entry.payload)
            for record in () if header.is_control else read_records(entry.payload, header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= offset:
                    return record.offset, record.timestamp_ms
            # The record lies below the log's start, or the producer's header claims what its records do not have.
            offset = entry.last_offset + 1
        return None

    async def find_max_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that has the log's greatest timestamp; None when the log is empty."""
        greatest = self.log.max_timestamp_ms
        return None if greatest < 0 else await self.find_timestamp(greatest)

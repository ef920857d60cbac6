"""One partition as the broker serves it: the rules of an append, idempotence, and the readers that wait for data.

The log itself is a `ManagedLedger`.  A partition checks a Kafka batch against its topic's settings and its producer's
sequence, writes the offsets into it without a copy, and queues it.  It compares an entry of a Pulsar client with what
its producer has sent before, and queues it unchanged.  Readers that wait for more data register a callback in
`waiters`.  It is called with the partition, once for each durable entry, and must only take note of that.

While the outcome of transactions is `uncertain` (`partition_recovery.py`), the partition refuses readers of committed
records, because records may be aborted, and producers that append under a sequence.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from magnetar.base.config import LONG_MAX
from magnetar.base.errors import BrokerError, EntryCorrupt, StorageError
from magnetar.broker.errors import InvalidRecord, InvalidTxnState, NotLeader
from magnetar.broker.log import partition_recovery, producer_snapshots
from magnetar.broker.log.batch_check import check_batch
from magnetar.broker.log.deduplication import NONE_PUBLISHED, Deduplication
from magnetar.broker.log.durable_waits import DurableWaits
from magnetar.broker.log.model import Appended, CompactionFigures, KnownProducer
from magnetar.broker.log.producer_recovery import ProducerMemory, Uncertain
from magnetar.broker.log.producer_state import ProducerStates
from magnetar.broker.log.pulsar_transactions import aborted_by
from magnetar.broker.log.refusals import refusal_of
from magnetar.broker.log.stored_snapshot import StoredSnapshot
from magnetar.broker.log.topic import PartitionTopic
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.broker.quotas.dispatch_limit import DispatchLimit, PartitionLimit
from magnetar.broker.quotas.rate_limit import RateLimit
from magnetar.broker.quotas.subscribe_limit import SubscribeLimit
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.entry_format import EntryPrefix
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.ledger.state import State
from magnetar.storage.store import Done
from magnetar.wire.kafka.records import (
    CRC_COVER,
    TRANSACTIONAL,
    BatchHeader,
    assign_offset,
    end_transaction_marker,
    stamp_log_append_time,
)
from magnetar.wire.pulsar.entry import SUMMED_FROM, EntryView, checksum_in
from magnetar.wire.stored import PULSAR_MAGIC

# To join the checksums of two parts costs as much as to sum so many bytes.
_SUMMED_ONCE_BYTES_MIN: Final = 64 << 10
_CLOCK_BEHIND_MS_MAX: Final = 24 * 3600 * 1000  # what a client may wait, or its clock be wrong
_prefixes: Final = EntryPrefix()
_appended: Final = tuple.__new__  # as a named tuple does, without a Python call


class OpenLog(Protocol):
    """Opens the log of a new partition, which calls these two (`ManagedLedger`)."""

    def __call__(self, *, on_advance: Callable[[], None], on_reset: Callable[[], None]) -> ManagedLedger: ...


class Partition:
    """See the module's text."""

    __slots__ = (
        "bytes_since_snapshot",
        "compaction",
        "deduplication",
        "dispatch_limit",
        "durable_waits",
        "index",
        "is_linked",
        "is_terminated",
        "log",
        "own_dispatch_limit",
        "producers",
        "publish_limit",
        "refused_with",
        "replicas",
        "shared_publish_limit",
        "stored_snapshot",
        "subscribe_limit",
        "topic",
        "transactions",
        "uncertain",
        "waiters",
    )

    def __init__(self, topic: PartitionTopic, index: int, replicas: list[int], open_log: OpenLog) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas  # node ids, the leader first
        self.log = open_log(on_advance=self._on_advance, on_reset=self._on_reset)
        self.producers = ProducerStates()
        self.transactions = TransactionIndex()
        self.deduplication: Deduplication | None = None
        self.is_linked = False  # only its link writes to it: `linked.py`
        self.is_terminated = False
        self.refused_with: type[BrokerError] | None = None  # why producers are turned away: a backlog quota
        self.publish_limit: RateLimit | None = None
        self.shared_publish_limit: RateLimit | None = None  # shared with all topics of a resource group
        self.dispatch_limit: PartitionLimit | None = None  # on all reads from it for consumers
        self.own_dispatch_limit: DispatchLimit | None = None  # the part of it that is only this partition's
        self.subscribe_limit: SubscribeLimit | None = None
        self.waiters: set[Callable[[Any], None]] = set()  # with this partition
        self.durable_waits = DurableWaits(self.log)
        self.bytes_since_snapshot = 0
        self.compaction = CompactionFigures()
        self.uncertain: Uncertain | None = None
        self.stored_snapshot = StoredSnapshot({})

    def __str__(self) -> str:
        return f"{self.topic.name} partition {self.index}"

    @property
    def messages_in(self) -> int:
        """How many messages have come in since the log was opened."""
        return self.log.next_offset - self.log.opened_at

    @property
    def leader_id(self) -> int:
        return self.replicas[0]

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that its topic takes, in bytes."""
        return self.topic.config.max_message_bytes

    @property
    def is_closed(self) -> bool:
        """Whether it was deleted, or another broker has it, or the server stops."""
        return self.log.state is State.CLOSED

    def check_served(self) -> None:
        """For a task that has waited since it found the partition: raises NotLeader if another broker has it, or is to
        have it.
        """
        if self.log.state in (State.LOST, State.CLOSED):
            raise NotLeader(f"{self} is not served by this broker any more: look it up again")

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        done: Done,
        *,
        transactional_id: str | None = None,
        keys_known: bool = False,
    ) -> Appended:
        """Append one Kafka record batch; `done` is called when it is durable or has failed.

        `batch` must be writable and stay unchanged afterwards: it becomes the log entry.  `transactional_id` is the
        one in whose transactions its client may write.  `keys_known` means that the caller has checked its records'
        keys after `NeedsOpening`.

        Raises:
            NeedsOpening: the topic is compacted, and the caller must check the records' keys; the header is good.
            CorruptMessage, InvalidRecord, UnsupportedMessageFormat, RecordTooLarge, InvalidTimestamp: the batch is bad.
            OutOfOrderSequence, InvalidProducerEpoch: it does not follow what its producer has sent.
            InvalidTxnState: its transaction is not open, lacks this partition, or belongs to another id.
            TopicTerminated: the topic has got its last message.
            TopicLinked: only its link writes to the topic.
            ProducersHeld, ProducersRefused: its backlog is over its quota.
            StorageError: nothing can be written now, or what its producer has sent is not known.
        """
        if self.is_terminated or self.is_linked or self.refused_with is not None:
            raise refusal_of(self)
        config = self.topic.config
        fields = check_batch(batch, config, now_ms, keys_known=keys_known)
        _, _, _, _, crc, attributes, _, _, max_timestamp_ms, producer_id, epoch, sequence, count = fields
        log = self.log
        if producer_id >= 0:
            if self.uncertain is not None:
                raise self._forgetful(self.uncertain)
            earlier = self.producers.check(producer_id, epoch, sequence, count)
            if earlier is not None:
                self.durable_waits.when_durable(earlier.last_offset, done)
                return Appended(earlier.base_offset, -1)
            if attributes & TRANSACTIONAL and not self.topic.is_in_transaction(
                producer_id, epoch, self.index, transactional_id
            ):
                raise InvalidTxnState(
                    f"producer {producer_id} has no transaction of {transactional_id!r} with this partition in it"
                )
        base = log.next_offset
        append_time_ms = -1
        if config.log_append_time:
            append_time_ms = max_timestamp_ms = now_ms
            stamp_log_append_time(batch, BatchHeader._make(fields), now_ms)
        assign_offset(batch, base, log.leader_epoch)
        last = base + count - 1
        prefix = _prefixes.kafka(now_ms, last, count)
        size = len(prefix) + len(batch)
        entry = Entry(base, last, max_timestamp_ms, batch)
        try:
            if size < _SUMMED_ONCE_BYTES_MIN or append_time_ms >= 0:
                log.append(entry, (prefix, batch), size, done)
            else:
                log.append(entry, (prefix, batch[:CRC_COVER], batch[CRC_COVER:]), size, done, crc)
        except StorageError:
            if producer_id >= 0:
                self.producers.refused(producer_id, epoch, sequence)
            raise
        self.bytes_since_snapshot += size
        if producer_id >= 0:
            self.producers.add(producer_id, epoch, sequence, base, count, now_ms)
            if attributes & TRANSACTIONAL:
                self.transactions.began(producer_id, base)
        if self.publish_limit is not None or self.shared_publish_limit is not None:
            self.count_published(count, len(batch))
        return _appended(Appended, (base, append_time_ms))

    # --- Pulsar ------------------------------------------------------------------------------------------------------

    def publish(
        self,
        payload: memoryview,
        view: EntryView,
        now_ms: int,
        done: Done,
        *,
        transaction: int | None = None,
    ) -> Entry:
        """Append what a Pulsar client has sent; `done` is called when it is durable or has failed, which may be at
        once.

        `payload` is all that followed SEND and begins with its checksum, which is verified; it must stay unchanged
        afterwards, because it becomes the log entry.  `view` is its decoded metadata.  `transaction` is the producer
        id of the open transaction that the entry names, and to which this partition belongs.

        The returned entry has its position when `done(None)` is called; that of a duplicate never gets one.  `done`
        is called in the order of the calls.

        Raises:
            InvalidRecord: the payload has no checksum.
            TopicTerminated: the topic has got its last message.
            TopicLinked: only its link writes to the topic.
            ProducersHeld, ProducersRefused: its backlog is over its quota.
            StorageError: nothing can be written now, or what its producer has sent is not known.
        """
        if self.is_terminated or self.is_linked or self.refused_with is not None:
            raise refusal_of(self)
        if bytes(payload[:2]) != PULSAR_MAGIC:
            raise InvalidRecord("an entry is stored with its checksum in front")
        log = self.log
        deduplication = self.deduplication
        if self.uncertain is not None and (transaction is not None or deduplication is not None):
            raise self._forgetful(self.uncertain)
        if deduplication is not None and deduplication.is_duplicate(view):
            self.durable_waits.when_durable(log.next_offset - 1, done)
            return Entry(-1, -1, -1, payload, EntryKind.PULSAR)
        count = view.num_messages
        base = log.next_offset
        last = base + count - 1
        # Retention uses this time.  A time in another unit must not keep the ledger for a thousand years.  And the
        # broker must not drop the messages of a client with a wrong clock as if they were old.
        newest_ms = max(view.publish_time_ms, view.event_time_ms)
        latest_ms = now_ms + self.topic.config.timestamp_after_max_ms
        if newest_ms > latest_ms:
            newest_ms = min(latest_ms, LONG_MAX)
        elif newest_ms < now_ms - _CLOCK_BEHIND_MS_MAX:
            newest_ms = now_ms
        prefix = _prefixes.pulsar(now_ms, last, count)
        size = len(prefix) + len(payload)
        entry = Entry(base, last, newest_ms, payload, EntryKind.PULSAR)
        if size < _SUMMED_ONCE_BYTES_MIN:
            log.append(entry, (prefix, payload), size, done)
        else:
            head, rest = payload[:SUMMED_FROM], payload[SUMMED_FROM:]
            log.append(entry, (prefix, head, rest), size, done, checksum_in(head))
        self.bytes_since_snapshot += size
        if transaction is not None:
            self.transactions.began(transaction, base)
        if deduplication is not None:
            deduplication.add(view, last, log.high_watermark, now_ms)
        if self.publish_limit is not None or self.shared_publish_limit is not None:
            self.count_published(count, len(payload))
        return entry

    def count_published(self, messages: int, size: int) -> None:
        """Count messages of `size` bytes for the publish rates of the topic and of its resource group."""
        for limit in (self.publish_limit, self.shared_publish_limit):
            if limit is not None:
                limit.used(messages, size)

    def owed_s(self) -> float:
        """How many seconds producers have to wait, because they have exceeded a rate."""
        owed_s = 0.0 if self.publish_limit is None else self.publish_limit.owed_s()
        shared = self.shared_publish_limit
        return owed_s if shared is None else max(owed_s, shared.owed_s())

    def deduplicate(self, on: bool) -> bool:
        """Turn the detection of Pulsar producers' duplicates on or off.  Returns whether the log has to be read for
        what they have sent before.
        """
        if not on:
            self.deduplication = None
        elif self.deduplication is None:
            self.deduplication = Deduplication(self.log.next_offset)
            return self.log.next_offset > 0
        return False

    def last_sequence_id(self, producer_name: str) -> int:
        """The producer's last durable sequence id; -1 if the partition keeps none.

        Raises:
            StorageError: the partition keeps it, but does not know it yet.
        """
        if self.deduplication is None:
            return NONE_PUBLISHED
        if self.uncertain is not None:
            raise self._forgetful(self.uncertain)
        return self.deduplication.last_sequence_id(producer_name, self.log.high_watermark)

    # --- transactions ------------------------------------------------------------------------------------------------

    def check_first(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Check that a batch may be the first one, in this partition, of a transaction with its own epoch (KIP-890).

        Raises:
            OutOfOrderSequence: it is not the first batch that its producer has sent here in this epoch.
            StorageError: what its producer has sent is not known.
        """
        if self.uncertain is not None:
            raise self._forgetful(self.uncertain)
        self.producers.check_first(producer_id, epoch, sequence)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: a reader of committed records may read up to it.

        While that is `uncertain` it does not move, and a reader that reaches it must call `check_committed`.
        """
        if self.uncertain is not None:
            return self.uncertain.stable_offset
        return self.transactions.last_stable_offset(self.log.high_watermark)

    def is_aborted(self, producer_id: int, entry: Entry) -> bool:
        """Whether this entry belongs to an aborted transaction of this producer."""
        return self.transactions.is_aborted(producer_id, entry.base_offset, entry.last_offset + 1)

    def aborted_by(self, entry: Entry) -> int | None:
        """See `pulsar_transactions.py`."""
        return aborted_by(self.transactions, entry)

    def check_committed(self, offset: int) -> None:
        """Check that the partition knows what a reader of committed records may see at `offset`.

        Raises:
            EntryCorrupt: an entry that would show it is damaged.
            StorageError: the partition still reads the log to find it out.
        """
        uncertain = self.uncertain
        if uncertain is not None and offset >= uncertain.stable_offset:
            kind = StorageError if uncertain.damaged_at is None else EntryCorrupt
            raise kind(f"{self.log.name}: {uncertain.reason}")

    @property
    def problem(self) -> str | None:
        """What is wrong, in a sentence for the operator; None if all is well."""
        return None if self.uncertain is None else f"{self.log.name}: {self.uncertain.reason}"

    @property
    def known_producers(self) -> list[KnownProducer]:
        """The idempotent producers whose batches the partition knows."""
        return self._memory.known_producers()

    @property
    def _memory(self) -> ProducerMemory:
        return ProducerMemory(self.producers, self.transactions, self.deduplication)

    def _forgetful(self, uncertain: Uncertain) -> StorageError:
        return StorageError(f"{self.log.name} does not know its producers: {uncertain.reason}")

    def check_marker(self, producer_id: int, epoch: int, *, renews: bool) -> None:
        """Check that a caller other than the coordinator may call `end_transaction` under `epoch`.

        `renews`: the epoch is the one after that of the transaction (KIP-890).

        Raises:
            InvalidProducerEpoch: the producer has already written under a later epoch.
            StorageError: what it has sent is not known.
        """
        if self.uncertain is not None:
            raise self._forgetful(self.uncertain)
        is_open = self.transactions.is_open(producer_id)
        self.producers.check_epoch(producer_id, epoch - 1 if renews and is_open else epoch)

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, done: Done
    ) -> None:
        """Write the marker that ends the producer's transaction; `done(None)` when it is durable.

        Batches of epochs older than `epoch` are refused from now on.  Without an open transaction it writes nothing,
        and `done` is called when all that was appended is durable, because an earlier marker may be under way.

        Raises:
            StorageError: nothing can be written now.
        """
        log = self.log
        uncertain = self.uncertain
        if uncertain is not None:
            if uncertain.damaged_at is None:
                raise self._forgetful(uncertain)
        elif not self.transactions.is_open(producer_id):
            self.producers.raise_epoch(producer_id, epoch)
            self.durable_waits.when_durable(log.next_offset - 1, done)
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
        if uncertain is None:
            self.producers.marked(producer_id, epoch)
            self.transactions.ended(producer_id, offset, committed=commit)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _on_advance(self) -> None:
        if self.durable_waits.waiting:
            self.durable_waits.resolve()
        if self.waiters:
            for wake in self.waiters:
                wake(self)

    # --- producer state over restarts --------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, bytes]:
        """The producers' state, with batches in flight, by suffix of the path.  The caller stores what is not stored
        yet (`stored_snapshot`), once everything below the present `next_offset` is durable.
        """
        assert self.uncertain is None, self.uncertain
        self.bytes_since_snapshot = 0
        self.transactions.forget_below(self.log.log_start)
        return producer_snapshots.encode(self._memory.encode(self.log.next_offset))

    @property
    def recovers_from(self) -> int:
        """The offset from which the next start reads the log for its producers; 0 while this is uncertain."""
        return 0 if self.uncertain is not None else self.stored_snapshot.covered

    def forget_deleted(self) -> None:
        """Forget the outcome of transactions whose records were deleted."""
        if self.uncertain is None and self.transactions.forget_below(self.log.log_start):
            self.bytes_since_snapshot += 1

    async def recover_producers(self, stored: Mapping[str, bytes], now_ms: int) -> None:
        """Rebuild the producers' state from the snapshot and the headers of the log after it."""
        self.stored_snapshot = StoredSnapshot(stored)
        await partition_recovery.recover(self, stored, now_ms)

    def recovered(self) -> None:
        """Note that the partition knows now what its producers have sent."""
        self.uncertain = None
        self._on_advance()

    def _on_reset(self) -> None:
        """Forget what was recorded about appends that failed."""
        self.durable_waits.fail(StorageError("the batch that this one repeats was not stored"))
        if self.uncertain is not None:
            return  # nothing was recorded
        self.producers = self.producers.below(self.log.high_watermark)
        self.transactions.forget_from(self.log.high_watermark)
        if self.deduplication is not None:
            self.deduplication.forget_from(self.log.high_watermark)

    def close(self) -> None:
        """Take no more appends; readers that wait are woken and find the partition as it is."""
        self.log.close()
        if self.own_dispatch_limit is not None:
            self.own_dispatch_limit.close()
        self._on_advance()

"""One partition as the broker serves it: the rules of an append, idempotence, and which reader waits for what.

The log itself is a `ManagedLedger`.  Here a Kafka batch is checked against its topic's settings and its producer's
sequence, given its offsets in place (no byte of it is copied), and queued; an entry of a Pulsar client is compared with
what its producer has sent before, and queued as it came.  Readers that wait for more data register a
callback in `waiters`; it is called once per durable entry and must only note that it was.

Where it is `uncertain` what the transactions have become (`partition_recovery.py`), a reader of committed records is
refused rather than given what may be aborted, and so is a producer that appends under a sequence.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from magnetar.base.config import LONG_MAX
from magnetar.base.errors import BrokerError, EntryCorrupt, StorageError
from magnetar.broker.errors import InvalidRecord, InvalidTxnState, TopicTerminated
from magnetar.broker.log import partition_recovery, producer_snapshots
from magnetar.broker.log.batch_check import check_batch
from magnetar.broker.log.deduplication import NONE_PUBLISHED, Deduplication
from magnetar.broker.log.model import Appended, CompactionFigures, KnownProducer
from magnetar.broker.log.producer_recovery import ProducerMemory, Uncertain
from magnetar.broker.log.producer_state import ProducerStates
from magnetar.broker.log.pulsar_transactions import aborted_by
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
    TRANSACTIONAL,
    BatchHeader,
    assign_offset,
    end_transaction_marker,
    stamp_log_append_time,
)
from magnetar.wire.pulsar.entry import EntryView
from magnetar.wire.stored import PULSAR_MAGIC

_CLOCK_BEHIND_MS_MAX: Final = 24 * 3600 * 1000  # what a client may have waited to send, or its clock be wrong
_prefixes: Final = EntryPrefix()
_appended: Final = tuple.__new__  # what a named tuple does, without a call of Python


class OpenLog(Protocol):
    """Opens the log of a new partition, which hears from it by these two (`ManagedLedger`)."""

    def __call__(self, *, on_advance: Callable[[], None], on_reset: Callable[[], None]) -> ManagedLedger: ...


class Partition:
    """See the module's text."""

    __slots__ = (
        "_duplicates",
        "_stored_snapshot",
        "bytes_since_snapshot",
        "compaction",
        "deduplication",
        "dispatch_limit",
        "index",
        "is_terminated",
        "log",
        "own_dispatch_limit",
        "producers",
        "publish_limit",
        "refused_with",
        "replicas",
        "shared_publish_limit",
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
        self.is_terminated = False
        self.refused_with: type[BrokerError] | None = None  # why producers are turned away: a backlog quota
        self.publish_limit: RateLimit | None = None
        self.shared_publish_limit: RateLimit | None = None  # with all topics of a resource group
        self.dispatch_limit: PartitionLimit | None = None  # of all that is read of it for consumers
        self.own_dispatch_limit: DispatchLimit | None = None  # what of it is this partition's alone
        self.subscribe_limit: SubscribeLimit | None = None
        self.waiters: set[Callable[[], None]] = set()
        self.bytes_since_snapshot = 0
        self.compaction = CompactionFigures()
        self.uncertain: Uncertain | None = None
        self._stored_snapshot: dict[str, bytes] = {}  # by suffix of the path
        self._duplicates: list[tuple[int, Done]] = []

    def __str__(self) -> str:
        return f"{self.topic.name} partition {self.index}"

    @property
    def messages_in(self) -> int:
        """How many have come in since the log was opened."""
        return self.log.next_offset - self.log.opened_at

    @property
    def leader_id(self) -> int:
        return self.replicas[0]

    @property
    def batch_bytes_max(self) -> int:
        """What its topic takes."""
        return self.topic.config.max_message_bytes

    @property
    def is_closed(self) -> bool:
        """It was deleted, or the server stops."""
        return self.log.state is State.CLOSED

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

        `batch` must be writable and stay unchanged afterwards: it becomes the log entry.  `transactional_id` is the one
        that its client may write in transactions of.  `keys_known` says that its records were found to have keys, after
        `NeedsOpening` had asked for that.

        Raises:
            NeedsOpening: of a compacted topic; the batch is otherwise good, as far as its header says.
            CorruptMessage, InvalidRecord, UnsupportedMessageFormat, RecordTooLarge, InvalidTimestamp: the batch is bad.
            OutOfOrderSequence, InvalidProducerEpoch: its producer is out of step.
            InvalidTxnState: it is of a transaction that is not open, has not this partition, or is another id's.
            TopicTerminated: the topic has got its last message.
            ProducersHeld, ProducersRefused: its backlog is over its quota.
            StorageError: nothing can be written now, or what its producer has sent is not known.
        """
        if self.is_terminated:
            raise self._terminated()
        if self.refused_with is not None:
            raise self.refused_with("The backlog of the topic is over its quota")
        config = self.topic.config
        fields = check_batch(batch, config, now_ms, keys_known=keys_known)
        _, _, _, _, _, attributes, _, _, max_timestamp_ms, producer_id, epoch, sequence, count = fields
        log = self.log
        if producer_id >= 0:
            if self.uncertain is not None:
                raise self._forgetful(self.uncertain)
            earlier = self.producers.check(producer_id, epoch, sequence, count)
            if earlier is not None:
                self._when_durable(earlier.last_offset, done)
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
        if self.publish_limit is not None:
            self.publish_limit.used(count, len(batch))
        if self.shared_publish_limit is not None:
            self.shared_publish_limit.used(count, len(batch))
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
        """Append what a Pulsar client has sent; `done` is called when it is durable or has failed, perhaps at once.

        `payload` is all that stood behind SEND, its checksum verified and in front; it must stay unchanged afterwards:
        it becomes the log entry.  `view` is what was read of it.  `transaction` is the producer id of the open
        transaction that the entry names, and this partition is part of.

        The entry that is returned has its position when `done(None)` is called; that of a duplicate never gets one.
        `done` is called in the order of the calls.

        Raises:
            InvalidRecord: the payload has no checksum.
            TopicTerminated: the topic has got its last message.
            ProducersHeld, ProducersRefused: its backlog is over its quota.
            StorageError: nothing can be written now, or what its producer has sent is not known.
        """
        if self.is_terminated:
            raise self._terminated()
        if self.refused_with is not None:
            raise self.refused_with("The backlog of the topic is over its quota")
        if bytes(payload[:2]) != PULSAR_MAGIC:
            raise InvalidRecord("an entry is stored with its checksum in front")
        log = self.log
        deduplication = self.deduplication
        if transaction is not None and self.uncertain is not None:
            raise self._forgetful(self.uncertain)
        if deduplication is not None:
            if self.uncertain is not None:
                raise self._forgetful(self.uncertain)
            if deduplication.is_duplicate(view):
                self._when_durable(log.next_offset - 1, done)
                return Entry(-1, -1, -1, payload, EntryKind.PULSAR)
        count = view.num_messages
        base = log.next_offset
        last = base + count - 1
        # Retention goes by this.  A time in some other unit must not keep the ledger for a thousand years, and a client
        # whose clock is wrong must not have its messages dropped as if they were old.
        newest_ms = max(view.publish_time_ms, view.event_time_ms)
        latest_ms = now_ms + self.topic.config.timestamp_after_max_ms
        if newest_ms > latest_ms:
            newest_ms = min(latest_ms, LONG_MAX)
        elif newest_ms < now_ms - _CLOCK_BEHIND_MS_MAX:
            newest_ms = now_ms
        prefix = _prefixes.pulsar(now_ms, last, count)
        size = len(prefix) + len(payload)
        entry = Entry(base, last, newest_ms, payload, EntryKind.PULSAR)
        log.append(entry, (prefix, payload), size, done)
        self.bytes_since_snapshot += size
        if transaction is not None:
            self.transactions.began(transaction, base)
        if deduplication is not None:
            deduplication.add(view, last, log.high_watermark, now_ms)
        if self.publish_limit is not None:
            self.publish_limit.used(count, len(payload))
        if self.shared_publish_limit is not None:
            self.shared_publish_limit.used(count, len(payload))
        return entry

    def owed_s(self) -> float:
        """The seconds that producers have to wait: more has come than may."""
        owed_s = 0.0 if self.publish_limit is None else self.publish_limit.owed_s()
        shared = self.shared_publish_limit
        return owed_s if shared is None else max(owed_s, shared.owed_s())

    def deduplicate(self, on: bool) -> None:
        """Whether duplicates of Pulsar producers are found from now on; what was sent before is not known."""
        if not on:
            self.deduplication = None
        elif self.deduplication is None:
            self.deduplication = Deduplication()

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest sequence id of the producer that is durable, -1 where the partition keeps none.

        Raises:
            StorageError: it is kept, and is not known yet.
        """
        if self.deduplication is None:
            return NONE_PUBLISHED
        if self.uncertain is not None:
            raise self._forgetful(self.uncertain)
        return self.deduplication.last_sequence_id(producer_name, self.log.high_watermark)

    def _terminated(self) -> TopicTerminated:
        return TopicTerminated(f"Topic {self.topic.name} was already terminated")

    # --- transactions ------------------------------------------------------------------------------------------------

    def check_first(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Whether a batch may be the first one of a transaction that has an epoch of its own (KIP-890) here.

        Raises:
            OutOfOrderSequence: it is not the first one of the epoch that its producer has sent here.
            StorageError: what its producer has sent is not known.
        """
        if self.uncertain is not None:
            raise self._forgetful(self.uncertain)
        self.producers.check_first(producer_id, epoch, sequence)

    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided: what a reader of committed records may see.

        While that is `uncertain` it stands still, and a reader that reaches it asks `check_committed`.
        """
        if self.uncertain is not None:
            return self.uncertain.stable_offset
        return self.transactions.last_stable_offset(self.log.high_watermark)

    def is_aborted(self, producer_id: int, entry: Entry) -> bool:
        """Whether this entry is of a transaction of this producer's that was aborted."""
        return self.transactions.is_aborted(producer_id, entry.base_offset, entry.last_offset + 1)

    def aborted_by(self, entry: Entry) -> int | None:
        """See `pulsar_transactions.py`."""
        return aborted_by(self.transactions, entry)

    def check_committed(self, offset: int) -> None:
        """Whether it is known what a reader of committed records may see at `offset`, once it is there.

        Raises:
            EntryCorrupt: what would tell is damaged.
            StorageError: it is being found out.
        """
        uncertain = self.uncertain
        if uncertain is not None and offset >= uncertain.stable_offset:
            kind = StorageError if uncertain.damaged_at is None else EntryCorrupt
            raise kind(f"{self.log.name}: {uncertain.reason}")

    @property
    def problem(self) -> str | None:
        """What is wrong, in a sentence for the operator; None for nothing."""
        return None if self.uncertain is None else f"{self.log.name}: {self.uncertain.reason}"

    @property
    def known_producers(self) -> list[KnownProducer]:
        """The idempotent producers of which batches are remembered."""
        return self._memory.known_producers()

    @property
    def _memory(self) -> ProducerMemory:
        return ProducerMemory(self.producers, self.transactions, self.deduplication)

    def _forgetful(self, uncertain: Uncertain) -> StorageError:
        return StorageError(f"{self.log.name} does not know its producers: {uncertain.reason}")

    def check_marker(self, producer_id: int, epoch: int, *, renews: bool) -> None:
        """Whether `end_transaction` may be asked for under `epoch` by who is not the coordinator.

        `renews`: the epoch is the one after that of the transaction (KIP-890).

        Raises:
            InvalidProducerEpoch: the producer has written under a later one since.
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

        Batches of older epochs than `epoch` are refused from now on.  Without an open transaction there is nothing to
        write, and `done` is called when all that was appended is durable: an earlier marker may be on its way.

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
        if uncertain is None:
            self.producers.marked(producer_id, epoch)
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

    def snapshot(self) -> dict[str, bytes]:
        """The producers' state, in-flight batches included, by suffix of the path: to be stored, as far as it is not
        stored already (`unstored`), once everything below the present `next_offset` is durable.
        """
        assert self.uncertain is None, self.uncertain
        self.bytes_since_snapshot = 0
        self.transactions.forget_below(self.log.log_start)
        return producer_snapshots.encode(self._memory.encode(self.log.next_offset))

    def unstored(self, snapshot: Mapping[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
        """What of the snapshot has to be written, and which suffixes have to go."""
        known = self._stored_snapshot
        puts = {suffix: value for suffix, value in snapshot.items() if known.get(suffix) != value}
        return puts, [suffix for suffix in known if suffix not in snapshot]

    def snapshot_stored(self, snapshot: dict[str, bytes]) -> None:
        """All of it is durable now."""
        self._stored_snapshot = snapshot

    @property
    def recovers_from(self) -> int:
        """Where the next start begins to read the log for its producers, as far as is stored; 0 while it is
        uncertain."""
        return 0 if self.uncertain is not None else producer_snapshots.covered(self._stored_snapshot)

    @property
    def snapshot_suffixes(self) -> list[str]:
        """Where something of this partition's snapshot is stored."""
        return [producer_snapshots.HEAD, *(suffix for suffix in self._stored_snapshot if suffix)]

    def forget_deleted(self) -> None:
        """What transactions in deleted records have become is not needed any more."""
        if self.uncertain is None and self.transactions.forget_below(self.log.log_start):
            self.bytes_since_snapshot += 1

    def wait_durable(self, end_offset: int) -> asyncio.Future[bool]:
        """Resolves when everything up to `end_offset` is durable (True), or an append before it has failed (False)."""
        durable: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if not durable.done():
                durable.set_result(error is None)

        self._when_durable(end_offset - 1, done)
        return durable

    async def recover_producers(self, stored: Mapping[str, bytes], now_ms: int) -> None:
        """Rebuild the producers' state: from the snapshot, and the headers of the log after it."""
        self._stored_snapshot = dict(stored)
        await partition_recovery.recover(self, stored, now_ms)

    def recovered(self) -> None:
        """What producers have sent is known."""
        self.uncertain = None
        self._on_advance()

    def _on_reset(self) -> None:
        """Appends failed.  What was recorded of them must go: read the producers' state back from what was stored."""
        self._resolve_duplicates(StorageError("the batch that this one repeats was not stored"))
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

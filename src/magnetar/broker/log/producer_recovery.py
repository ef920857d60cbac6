"""What a partition knows about its producers, also after a restart: a snapshot, and the entries of the log after it.

Three kinds of memory are kept together, because they belong to the same position in the log.  They are idempotent
producers of Kafka (`producer_state.py`), transactions of both protocols (`transaction_index.py`), and named producers
of Pulsar (`deduplication.py`).

The snapshot is the three snapshots, one after the other.  Its version is the first byte, that of the idempotent
producers: from version 2 on it has all three, version 1 has the first two.  Versions 2 and 3 have an empty third one
also if deduplication was off, so an empty one of theirs means that nothing is known.  `producer_snapshots.py` has its
form in the metadata store.

A snapshot that is missing or damaged costs only time: the log has everything, and is read from its start.  An entry
that cannot be read leaves the memory `Uncertain` from there on, because a transaction may have begun or ended in it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, WireError
from magnetar.broker.log import producer_snapshots
from magnetar.broker.log.deduplication import NOT_KNOWN, Deduplication
from magnetar.broker.log.model import KnownProducer
from magnetar.broker.log.producer_snapshots import Snapshot
from magnetar.broker.log.producer_state import (
    DEDUPLICATION_SINCE,
    SAYS_IF_KNOWN_SINCE,
    ProducerStates,
)
from magnetar.broker.log.pulsar_transactions import transaction_of
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.ledger.entry import EntryKind
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import VALUE_BYTES_MAX
from magnetar.storage.store import LedgerId, StoredEntry
from magnetar.wire.kafka.records import marker_commits, read_header
from magnetar.wire.pulsar.entry import EntryView, read_entry

REPLAY_BYTES: Final = 1 << 20  # of one piece
_DEDUPLICATION_BYTES_MIN: Final = 64 << 10
_REPLAY_AT_ONCE: Final = 64  # entries decoded on the loop; more are decoded on a thread


@dataclass(slots=True)
class Uncertain:
    """The memory is exact only below `offset`.  `damaged_at`: the entry that cannot be read; None during a replay."""

    offset: int
    stable_offset: int  # the last stable offset, as far as it is known
    reason: str
    damaged_at: int | None = None


class ProducerMemory(NamedTuple):
    """`deduplication` is None if it is off."""

    producers: ProducerStates
    transactions: TransactionIndex
    deduplication: Deduplication | None

    def encode(self, next_offset: int) -> Snapshot:
        """The snapshot that covers the log below `next_offset`."""
        transactions, blocks = self.transactions.encode()
        kafka = self.producers.encode(next_offset) + transactions
        room = max(VALUE_BYTES_MAX - len(kafka), _DEDUPLICATION_BYTES_MIN)
        pulsar = NOT_KNOWN if self.deduplication is None else self.deduplication.encode(room)
        return Snapshot(kafka + pulsar, blocks)

    def known_producers(self) -> list[KnownProducer]:
        """The idempotent producers whose batches the partition knows."""
        return [
            KnownProducer(
                producer_id,
                known.epoch,
                known.batches[-1].last_sequence,
                known.batches[-1].timestamp_ms,
                known.is_marked,
                self.transactions.first_offset(producer_id),
            )
            for producer_id, known in self.producers.items()
            if known.batches
        ]


def empty(*, deduplicates: bool) -> ProducerMemory:
    return ProducerMemory(ProducerStates(), TransactionIndex(), Deduplication() if deduplicates else None)


def restore(log: ManagedLedger, stored: Mapping[str, bytes], *, deduplicates: bool) -> ProducerMemory:
    """The memory in the snapshot of `log`; `stored` are its values by suffix.

    Raises:
        EntryCorrupt: the snapshot is damaged.
    """
    snapshot, blocks = producer_snapshots.decode(stored)
    producers, position = ProducerStates.decode(snapshot)
    transactions, position = TransactionIndex.decode(snapshot, position, blocks)
    deduplication = Deduplication(producers.next_offset)
    if snapshot[0] >= DEDUPLICATION_SINCE:
        found = Deduplication.decode(snapshot, position, producers.next_offset)
        if len(found) or snapshot[0] >= SAYS_IF_KNOWN_SINCE:
            deduplication = found
    if producers.next_offset > log.high_watermark:
        # The log ends before the snapshot, because of our bug or a lost file: start again from the log that exists.
        return empty(deduplicates=deduplicates)
    return ProducerMemory(producers, transactions, deduplication if deduplicates else None)


class _Produced(NamedTuple):
    """A batch of an idempotent producer, or a marker."""

    base_offset: int
    producer_id: int
    epoch: int
    sequence: int
    record_count: int  # as produced: compaction keeps the offsets of records that it removes
    is_transactional: bool
    commits: bool | None  # None: no marker


class Published(NamedTuple):
    """An entry of a Pulsar client."""

    base_offset: int
    last_offset: int
    view: EntryView


class Looked(NamedTuple):
    """What entries up to `end_offset` say; `error` is the reason why the entry there cannot be read."""

    found: list[_Produced | Published]
    end_offset: int
    error: Exception | None


async def replay_piece(memory: ProducerMemory, log: ManagedLedger, now_ms: int) -> None:
    """Add the next piece of the log to the memory; its `next_offset` moves, and everything below it was added.

    The log does not show when producers were last seen, so all producers of the piece count as seen at `now_ms`.

    Raises:
        EntryCorrupt, WireError: the entry at `next_offset` cannot be read; all entries before it were added.
        StorageError: the log cannot be read now.
        LedgerNotFound: retention has deleted the ledger, so what is known of the log's old start is no longer true.
    """
    offset = max(memory.producers.next_offset, log.log_start)
    ledger_id, stored = await log.read_stored(offset, REPLAY_BYTES)
    if log.log_start > offset:
        raise LedgerNotFound(f"{log.name}: offset {offset} was deleted while it was read")
    looked = await look(ledger_id, stored, offset)
    for one in looked.found:
        if isinstance(one, _Produced):
            _replay_kafka(memory, one, now_ms)
            continue
        transaction = transaction_of(one.view)
        if transaction is not None:
            memory.transactions.began(transaction, one.base_offset)
        if memory.deduplication is not None:
            memory.deduplication.add(one.view, one.last_offset, log.high_watermark, now_ms)
    memory.producers.next_offset = looked.end_offset
    if looked.error is not None:
        raise looked.error


async def look(ledger_id: LedgerId, stored: Sequence[StoredEntry], offset: int) -> Looked:
    """What entries from `offset` on say of producers; the loop decodes only a few of them itself."""
    if len(stored) <= _REPLAY_AT_ONCE:
        return _look(ledger_id, stored, offset)
    return await asyncio.to_thread(_look, ledger_id, stored, offset)


def _look(ledger_id: LedgerId, stored: Sequence[StoredEntry], offset: int) -> Looked:
    """Decode the producers' part of entries; runs on any thread."""
    found: list[_Produced | Published] = []
    for one in stored:
        try:
            entry = decode_entry(ledger_id, one)
            if entry.kind is not EntryKind.KAFKA:
                view = read_entry(entry.payload, verify=False)
                found.append(Published(entry.base_offset, entry.last_offset, view))
            elif (header := read_header(entry.payload)).producer_id >= 0:
                commits = marker_commits(entry.payload) if header.is_control else None
                found.append(
                    _Produced(
                        entry.base_offset, header.producer_id, header.producer_epoch, header.base_sequence,
                        entry.message_count, header.is_transactional, commits,
                    )
                )  # fmt: skip
        except (EntryCorrupt, WireError) as error:
            return Looked(found, offset, error)
        offset = one.last_offset + 1
    return Looked(found, offset, None)


def _replay_kafka(memory: ProducerMemory, one: _Produced, now_ms: int) -> None:
    if one.commits is not None:
        memory.producers.marked(one.producer_id, one.epoch)
        memory.transactions.ended(one.producer_id, one.base_offset, committed=one.commits)
        return
    memory.producers.add(
        one.producer_id, one.epoch, one.sequence, one.base_offset, one.record_count, now_ms
    )  # fmt: skip
    if one.is_transactional:
        memory.transactions.began(one.producer_id, one.base_offset)

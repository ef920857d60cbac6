"""What a partition knows of its producers, over restarts: a snapshot, and the entries of the log after it.

Three kinds of memory are kept together, because one position in the log is right for all of them: idempotent producers
and transactions of Kafka (`producer_state.py`, `transaction_index.py`), and named producers of Pulsar
(`deduplication.py`).

The snapshot is theirs, one behind the other; version 2 (the first byte, that of the idempotent producers) has all
three, version 1 the first two.
"""

from typing import Final, NamedTuple

from magnetar.broker.deduplication import Deduplication
from magnetar.broker.producer_state import DEDUPLICATION_SINCE, ProducerStates
from magnetar.broker.transaction_index import TransactionIndex
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import VALUE_BYTES_MAX
from magnetar.wire.kafka.records import marker_commits, read_header
from magnetar.wire.pulsar.entry import read_entry

_REPLAY_BYTES: Final = 4 << 20


class ProducerMemory(NamedTuple):
    """`deduplication` is None where it is off."""

    producers: ProducerStates
    transactions: TransactionIndex
    deduplication: Deduplication | None

    def encode(self, next_offset: int) -> bytes:
        """The snapshot that covers the log below `next_offset`."""
        kafka = self.producers.encode(next_offset) + self.transactions.encode()
        return kafka + (self.deduplication or Deduplication()).encode(VALUE_BYTES_MAX - len(kafka))


def restore(log: ManagedLedger, snapshot: bytes | None, *, deduplicates: bool) -> ProducerMemory:
    """What the snapshot says of `log`; EntryCorrupt when it is damaged."""
    producers, transactions, deduplication = ProducerStates(), TransactionIndex(), Deduplication()
    if snapshot is not None:
        producers, position = ProducerStates.decode(snapshot)
        transactions, position = TransactionIndex.decode(snapshot, position)
        if snapshot[0] >= DEDUPLICATION_SINCE:
            deduplication = Deduplication.decode(snapshot, position)
    if producers.next_offset > log.high_watermark:
        # The log was cut below the snapshot, by our bug or a lost file: start over from what is there.
        producers, transactions, deduplication = ProducerStates(), TransactionIndex(), Deduplication()
    return ProducerMemory(producers, transactions, deduplication if deduplicates else None)


async def replay(memory: ProducerMemory, log: ManagedLedger, now_ms: int) -> None:
    """Add what the log has behind the snapshot.  The times at which that was written say nothing of when its
    producers were last seen, so it is `now_ms` for all.

    Raises:
        StorageError, WireError: an entry cannot be read; what lies before it was added.
    """
    offset = max(memory.producers.next_offset, log.log_start)
    while offset < log.high_watermark:
        for entry in await log.read(offset, _REPLAY_BYTES):
            if entry.kind is EntryKind.KAFKA:
                _replay_kafka(memory, entry, now_ms)
            elif memory.deduplication is not None:
                view = read_entry(entry.payload, verify=False)
                memory.deduplication.add(view, entry.last_offset, log.high_watermark, now_ms)
            offset = entry.last_offset + 1
    memory.producers.next_offset = offset


def _replay_kafka(memory: ProducerMemory, entry: Entry, now_ms: int) -> None:
    header = read_header(entry.payload)
    if header.producer_id < 0:
        return
    if header.is_control:
        memory.producers.raise_epoch(header.producer_id, header.producer_epoch)
        committed = marker_commits(entry.payload)
        memory.transactions.ended(header.producer_id, entry.base_offset, committed=committed)
    else:
        memory.producers.add(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            entry.base_offset,
            header.record_count,
            now_ms,
        )
        if header.is_transactional:
            memory.transactions.began(header.producer_id, entry.base_offset)

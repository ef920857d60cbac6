"""How a partition learns about its producers and transactions: at the start, and again after a failed attempt.

While the memory is not complete, the partition is `Uncertain`.  Readers of committed records see what is surely
decided, and are refused after that.  Producers whose appends need the memory are refused, too.  Everything else
works.  No snapshot replaces the stored one meanwhile, so another attempt loses nothing.

* At the start the log after the snapshot is replayed before the first client is served.  If that is more than
  `REPLAY_AT_START_BYTES`, the replay runs while clients are served, as does every later attempt.
* An entry that cannot be read ends the replay.  The partition tries again once the entry was deleted (by retention, or
  by DeleteRecords), and at the next start, when the operator may have put its file back.  After any other failure it
  tries again soon.
* During a replay markers are refused, because their coordinator tries again.  Between replays they are appended,
  whether or not the transaction wrote anything here: the next replay finds them, and the transaction ends.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError, WireError
from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.log.deduplication import Deduplication
from magnetar.broker.log.durable_waits import DurableWaits
from magnetar.broker.log.producer_recovery import ProducerMemory, Uncertain, empty, replay_piece, restore
from magnetar.broker.log.producer_state import ProducerStates
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.ledger.managed_ledger import ManagedLedger

_log = logging.getLogger(__name__)

REPLAY_AT_START_BYTES: Final = 512 << 20  # half a second


class RecoveringPartition(Protocol):
    """A `Partition`, as this module uses it."""

    log: ManagedLedger
    producers: ProducerStates
    transactions: TransactionIndex
    deduplication: Deduplication | None
    bytes_since_snapshot: int
    uncertain: Uncertain | None
    durable_waits: DurableWaits

    def recovered(self) -> None: ...


async def recover(partition: RecoveringPartition, stored: Mapping[str, bytes], now_ms: int) -> None:
    """Load the snapshot, whose values by suffix are `stored`, and replay the log after it, unless that is long."""
    log = partition.log
    deduplicates = partition.deduplication is not None
    memory, is_damaged = empty(deduplicates=deduplicates), False
    if stored:
        try:
            memory = restore(log, stored, deduplicates=deduplicates)
        except EntryCorrupt as error:
            is_damaged = True
            _log.warning("%s: the server reads its log from the start, for %s", log.name, error)
    behind = backlog_bytes(log, max(memory.producers.next_offset, log.log_start))
    _adopt(partition, memory)
    partition.bytes_since_snapshot = max(behind, int(is_damaged))
    partition.uncertain = _replaying(memory)
    if behind <= REPLAY_AT_START_BYTES:
        await resume(partition, now_ms)
    else:
        _log.warning(
            "%s: the server has to read %d MiB of its log to know its transactions", log.name, behind >> 20
        )


async def resume(partition: RecoveringPartition, now_ms: int) -> None:
    """Try to complete the memory; does nothing if it is complete, or if nothing has changed since the last attempt."""
    log, uncertain = partition.log, partition.uncertain
    if uncertain is None or (uncertain.damaged_at is not None and log.log_start <= uncertain.damaged_at):
        return
    memory = ProducerMemory(partition.producers, partition.transactions, partition.deduplication)
    uncertain = partition.uncertain = _replaying(memory)
    await partition.durable_waits.until(log.next_offset)  # markers that were appended meanwhile
    end_offset = log.high_watermark
    while True:
        if 0 < memory.producers.next_offset < log.log_start:
            # Entries that were deleted unread may have ended known transactions, and continued the sequences.
            memory = ProducerMemory(ProducerStates(), TransactionIndex(), partition.deduplication)
            _adopt(partition, memory)
        if max(memory.producers.next_offset, log.log_start) >= end_offset:
            break
        try:
            await replay_piece(memory, log, now_ms)
        except LedgerNotFound as error:
            if log.log_start <= memory.producers.next_offset:
                _stop(uncertain, log.name, error, memory.producers.next_offset)
                return
        except (EntryCorrupt, WireError) as error:
            _advance(uncertain, memory)
            _stop(uncertain, log.name, error, max(uncertain.offset, log.log_start))
            return
        except StorageError as error:
            _stop(uncertain, log.name, error, None)
            return
        _advance(uncertain, memory)
        await asyncio.sleep(0)
    partition.transactions.count_anew()
    partition.recovered()


def _advance(uncertain: Uncertain, memory: ProducerMemory) -> None:
    uncertain.offset = memory.producers.next_offset
    uncertain.stable_offset = memory.transactions.last_stable_offset(uncertain.offset)


def _replaying(memory: ProducerMemory) -> Uncertain:
    offset = memory.producers.next_offset
    stable_offset = memory.transactions.last_stable_offset(offset)
    return Uncertain(offset, stable_offset, "what its transactions have become is being read from its log")


def _adopt(partition: RecoveringPartition, memory: ProducerMemory) -> None:
    partition.producers, partition.transactions, partition.deduplication = memory


def _stop(uncertain: Uncertain, name: str, error: Exception, damaged_at: int | None) -> None:
    uncertain.damaged_at = damaged_at
    if damaged_at is None:
        uncertain.reason = f"its log cannot be read for what its transactions have become: {error}"
        _log.warning("%s: %s", name, uncertain.reason)
        return
    uncertain.reason = (
        f"offset {damaged_at} cannot be read, so it is not known which records from offset"
        f" {uncertain.stable_offset} on were aborted ({error})"
    )
    _log.error(
        "%s: %s; the server refuses readers of committed records and idempotent producers until you put that file"
        " back and restart the server, or delete the records up to offset %d",
        name,
        uncertain.reason,
        damaged_at,
    )

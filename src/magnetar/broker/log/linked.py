"""Appends to a linked partition: record batches that keep the offsets which their records have in another log.

A linked topic is a copy of another cluster's topic (`usecases/links.py`).  Its partitions take batches only by this
module, and the offset of a batch decides what happens to it:

* It begins at the end of the log: it is appended.
* It ends below the end of the log: it is there already, so it is dropped.  For this reason a program that copies may
  send again whatever it does not know to be stored.  It needs no memory of its own: it continues at the log's end.
* It begins behind the end of the log: records of the other log are missing there (compaction, aborted transactions,
  markers).  Batches without records that count, as compaction leaves them (`covering_batch`), cover the gap, so the
  offsets of this log stay dense and no reader has to know of gaps.
* It begins below the end of the log, and ends behind it: it is refused.

The records of one batch have offsets without gaps, as those that producers send.  They have no producer id: what was
idempotent or transactional in the other log has been decided there, and the copy has only what readers of committed
records see.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from magnetar.base.errors import WireError
from magnetar.broker.errors import (
    CorruptMessage,
    InvalidRecord,
    OffsetsDiffer,
    RecordTooLarge,
    UnsupportedMessageFormat,
)
from magnetar.broker.log.batch_check import EXPANSION_MAX, RECORDS_MAX
from magnetar.broker.log.model import LINKED_OFFSET_MAX
from magnetar.ledger.entry import Entry
from magnetar.ledger.entry_format import EntryPrefix
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.storage.store import Done
from magnetar.wire.convert.batches import covering_batch
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    BatchHeader,
    assign_offset,
    is_intact,
    read_header,
)

_COVERED_MAX: Final = 1 << 30  # offsets of one batch: the number of an entry's messages has 32 bits
GAP_MAX: Final = 256 * _COVERED_MAX  # so that no request makes more than so many batches that cover a gap
_NO_TIME: Final = -1
_ZSTD: Final = 4
_prefixes: Final = EntryPrefix()


class LinkedPartition(Protocol):
    """A `Partition`, as this module uses it."""

    log: ManagedLedger
    bytes_since_snapshot: int


def split(data: memoryview) -> Iterator[memoryview]:
    """The record batches that stand one after the other in `data`, found one by one: there may be half a million.

    Raises:
        InvalidRecord: it does not end with the last of them; that is found behind those that are whole.
    """
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
        except WireError as error:
            raise InvalidRecord(str(error)) from error
        end = position + LENGTH_PREFIX + header.batch_length
        if not position < end <= len(data):
            raise InvalidRecord(f"a batch says that it has {header.batch_length} bytes, and fewer have come")
        yield data[position:end]
        position = end


def append(partition: LinkedPartition, batch: memoryview, now_ms: int, done: Done) -> None:
    """Append one batch where its offset says, as the module's text has it; `done` is called for each entry that this
    makes, when it is durable or has failed.

    `batch` is copied.

    Raises:
        CorruptMessage, InvalidRecord, RecordTooLarge, UnsupportedMessageFormat: it is no batch of a link.
        OffsetsDiffer: it begins below the end of the log, and ends behind it.
        StorageError: nothing can be written now.
    """
    header = _checked(batch)
    log = partition.log
    if header.last_offset < log.next_offset:
        return
    if header.base_offset < log.next_offset:
        raise OffsetsDiffer(
            f"offsets {header.base_offset} to {header.last_offset} begin below the end of the log, {log.next_offset}"
        )
    cover(partition, header.base_offset, now_ms, done)
    _append(
        partition,
        header.base_offset,
        header.last_offset,
        header.max_timestamp_ms,
        memoryview(bytearray(batch)),
        now_ms,
        done,
    )


def cover(partition: LinkedPartition, end_offset: int, now_ms: int, done: Done) -> None:
    """Have the log end at `end_offset`, if it ends before: no offset in between has a record.

    Raises:
        InvalidRecord: it ends more than `GAP_MAX` offsets before.
        StorageError: nothing can be written now.
    """
    log = partition.log
    if end_offset - log.next_offset > GAP_MAX:
        raise InvalidRecord(
            f"offsets {log.next_offset} to {end_offset - 1} are a gap that is too large to be covered"
        )
    while log.next_offset < end_offset:
        base = log.next_offset
        last = min(end_offset, base + _COVERED_MAX) - 1
        batch = memoryview(bytearray(covering_batch(base, last, log.leader_epoch, _NO_TIME)))
        _append(partition, base, last, _NO_TIME, batch, now_ms, done)


def _append(
    partition: LinkedPartition,
    base: int,
    last: int,
    newest_ms: int,
    batch: memoryview,
    now_ms: int,
    done: Done,
) -> None:
    log = partition.log
    assign_offset(batch, base, log.leader_epoch)
    prefix = _prefixes.kafka(now_ms, last, last - base + 1)
    size = len(prefix) + len(batch)
    log.append(Entry(base, last, newest_ms, batch), (prefix, batch), size, done)
    partition.bytes_since_snapshot += size


def _checked(batch: memoryview) -> BatchHeader:
    header = read_header(batch)
    if header.magic != MAGIC:
        raise UnsupportedMessageFormat(f"a link copies batches of the format v{MAGIC}, not v{header.magic}")
    if not is_intact(batch, header):
        raise CorruptMessage("a batch fails its checksum")
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidRecord(
            f"{count} records cannot have the last offset delta {header.last_offset_delta}: a link sends batches"
            " without gaps"
        )
    if count > RECORDS_MAX:
        raise RecordTooLarge(f"a batch has {count} records, one may have {RECORDS_MAX}")
    if not 0 <= header.base_offset <= LINKED_OFFSET_MAX:
        raise InvalidRecord(f"no batch begins at the offset {header.base_offset}")
    codec, size = header.attributes & COMPRESSION_MASK, len(batch) - HEADER_SIZE
    if codec > _ZSTD:
        raise InvalidRecord(f"unknown compression {codec}")
    if count * RECORD_BYTES_MIN > size * EXPANSION_MAX[codec]:
        raise InvalidRecord(f"{size} bytes cannot hold {count} records")
    if header.attributes & (CONTROL | TRANSACTIONAL) or header.producer_id >= 0:
        raise InvalidRecord(
            "a link sends no control batches, and none of transactions or idempotent producers"
        )
    return header

"""Offsets by time, as Kafka's clients see the records of both protocols.

The log's index knows of each entry the greatest time that it claims: of a Pulsar entry the later one of publish and
event time, where Kafka's clients see the event time if there is one.  So what the index finds is looked into.
"""

from magnetar.broker.interop import Interop
from magnetar.broker.partition import Partition
from magnetar.ledger.entry import Entry
from magnetar.wire.kafka.record_reader import Record, read_records
from magnetar.wire.kafka.records import read_header


async def find_timestamp(interop: Interop, partition: Partition, timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first readable record at or after `timestamp_ms`; None when there is none.

    Raises:
        WireError, StorageError: a batch on the way cannot be read.
    """
    log = partition.log
    offset = log.log_start
    while (entry := await log.entry_for_timestamp(timestamp_ms, offset)) is not None:
        for record in await _records(interop, partition, entry):
            if record.timestamp_ms >= timestamp_ms and record.offset >= offset:
                return record.offset, record.timestamp_ms
        # The record lies below the log's start, or the entry claims a time that none of its records has.
        offset = entry.last_offset + 1
    return None


async def find_max_timestamp(interop: Interop, partition: Partition) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that has the log's greatest timestamp; None when the log is empty.

    Where the entry that claims the greatest time has no record of that time (event times that lie behind publish
    times), it is that entry's greatest: looking further would mean to read the whole log.

    Raises as `find_timestamp`.
    """
    greatest = partition.log.max_timestamp_ms
    if greatest < 0:
        return None
    found = await find_timestamp(interop, partition, greatest)
    if found is not None:
        return found
    entry = await partition.log.entry_for_timestamp(greatest, partition.log.log_start)
    records = [] if entry is None else await _records(interop, partition, entry)
    if not records:
        return None
    newest = max(records, key=lambda record: record.timestamp_ms)
    return newest.offset, newest.timestamp_ms


async def _records(interop: Interop, partition: Partition, entry: Entry) -> list[Record]:
    formed = interop.kafka_form(partition, [entry]) or await interop.kafka_form_later(partition, [entry])
    batch = formed[0].payload
    header = read_header(batch)
    return [] if header.is_control else list(read_records(batch, header))

"""From what a broker sends to records of a target, as Kafka's clients would see them (docs/reference/interop.md).

An entry is one message, or a batch of messages as its producer made it: a broker replicates entries, not messages.
Markers are notes of brokers to each other, and no records.  A chunk of a message is no record either.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from magnetar.base.errors import WireError
from magnetar.replicators.provider import ReplicatedRecord
from magnetar.wire.convert import engine, plain
from magnetar.wire.convert.batches import publish_time_ms, sealed_record
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.convert.plain import Records
from magnetar.wire.kafka.record_reader import read_raw_records
from magnetar.wire.pulsar.entry import EntryView

EXPANDED_BYTES_MAX: Final = 64 << 20  # of one entry, behind its compression


def records_in(view: EntryView, partition: int, first: int) -> Sequence[ReplicatedRecord]:
    """The records in an entry, in order; they are numbered from `first` on.

    Raises:
        WireError: the entry is a chunk, or cannot be read.
    """
    if view.is_marker:
        return ()
    if view.is_chunk and not view.is_encrypted:
        raise WireError("it is a chunk of a message that its producer has cut")
    return list(_numbered(_records(view), partition, first))


def _records(view: EntryView) -> Records:
    if view.is_encrypted:
        return sealed_record(view)
    metadata = view.metadata
    sent_ms = publish_time_ms(metadata)
    payload = expand_pulsar(
        view.payload, metadata.compression, metadata.uncompressed_size, EXPANDED_BYTES_MAX
    )
    if view.is_batch:
        return engine.records_of(payload, view.num_messages, sent_ms, 0)
    return plain.record_of(metadata, payload, sent_ms)


def _numbered(records: Records, partition: int, first: int) -> Iterator[ReplicatedRecord]:
    data = memoryview(records.data)
    for number, raw in enumerate(read_raw_records(data, records.record_count), first):
        yield ReplicatedRecord(
            partition,
            number,
            records.base_timestamp_ms + raw.timestamp_delta_ms,
            raw.key,
            raw.value,
            [(name.decode("utf-8", "replace"), value) for name, value in raw.headers],
        )

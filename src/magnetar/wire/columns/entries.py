"""Stored entries one by one: what each holds, before its records are looked at.

Python's half of decoding.  `plain.py` has every entry from here; the compiled code gets from here the entries that are
no plain batch or message: chunks, markers, encrypted or damaged entries.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt, WireError
from magnetar.wire.columns.model import Window
from magnetar.wire.convert import plain as convert
from magnetar.wire.convert.batches import assembled_record, publish_time_ms, sealed_record
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX, expand
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    read_header,
)
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.stored import ENTRY_BYTES_MAX, RECORD, RECORD_BYTES, origin_of, split_entry

_CRC_COVER: Final = 8
_NOT_STAMPED: Final = -1


class StoredRecord(NamedTuple):
    """A record of the store, whose checksum holds, and the entry in it."""

    end: int  # where the next one begins
    ledger_id: int
    entry_id: int
    base_offset: int
    last_offset: int
    is_pulsar: bool
    payload: memoryview


class Entry(NamedTuple):
    """The records of an entry, uncompressed, as Kafka has them; `size` is that of what the entry itself holds."""

    records: Buffer
    size: int
    record_count: int
    base_timestamp_ms: int
    stamped_ms: int  # the time of all records when the broker stamped them, else below 0
    is_stamped: bool


def stored_records(data: memoryview) -> Iterator[StoredRecord]:
    """The whole records that `data` begins with.

    Raises:
        EntryCorrupt: bytes that are not what was stored.
    """
    position = 0
    while len(data) - position >= RECORD_BYTES:
        length, checksum, ledger_id, entry_id, last_offset, _ = RECORD.unpack_from(data, position)
        body_at = position + RECORD_BYTES
        if length > ENTRY_BYTES_MAX:
            raise corrupt(ledger_id, entry_id, last_offset)
        end = body_at + length
        if end > len(data):
            return
        if crc32c(data[position + _CRC_COVER : end]) != checksum:
            raise corrupt(ledger_id, entry_id, last_offset)
        body = data[body_at:end]
        try:
            is_pulsar, payload_at, base_offset = split_entry(body, last_offset)
        except WireError as error:
            raise corrupt(ledger_id, entry_id, last_offset) from error
        origin = origin_of(body)
        if origin is not None:
            ledger_id, entry_id, _ = origin
        yield StoredRecord(end, ledger_id, entry_id, base_offset, last_offset, is_pulsar, body[payload_at:])
        position = end


def stored_record(
    data: memoryview, position: int, end: int, payload_at: int, base_offset: int, *, is_pulsar: bool
) -> StoredRecord:
    """The record from `position` to `end`, of which the rest is known."""
    _, _, ledger_id, entry_id, last_offset, _ = RECORD.unpack_from(data, position)
    origin = origin_of(data[position + RECORD_BYTES : end])
    if origin is not None:
        ledger_id, entry_id, _ = origin
    return StoredRecord(end, ledger_id, entry_id, base_offset, last_offset, is_pulsar, data[payload_at:end])


def corrupt(ledger_id: int, entry_id: int, last_offset: int) -> EntryCorrupt:
    return EntryCorrupt(
        f"entry {entry_id} of ledger {ledger_id}, at offset {last_offset}, is not what was stored"
    )


def batch_header(stored: StoredRecord) -> BatchHeader:
    """The header of a Kafka entry; WireError when it is not the header of this entry."""
    header = read_header(stored.payload)
    if header.magic != MAGIC:
        raise WireError(f"a record batch of version {header.magic}")
    if header.batch_length + LENGTH_PREFIX != len(stored.payload):
        raise WireError("a record batch of another length than its entry")
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset != stored.last_offset:
        raise WireError("a record batch of other offsets than its entry")
    return header


def kafka_entry(header: BatchHeader, payload: memoryview) -> Entry:
    """What a record batch holds; WireError when it cannot be decompressed."""
    records = expand(payload[HEADER_SIZE:], header.attributes & COMPRESSION_MASK)
    is_stamped = bool(header.attributes & LOG_APPEND_TIME)
    stamped_ms = header.max_timestamp_ms if is_stamped else _NOT_STAMPED
    return Entry(
        records, len(records), max(header.record_count, 0), header.base_timestamp_ms, stamped_ms, is_stamped
    )


def pulsar_view(stored: StoredRecord) -> EntryView:
    """The metadata of a Pulsar entry; WireError when it is not the metadata of this entry."""
    view = read_entry(stored.payload, verify=False)
    if view.num_messages != stored.last_offset - stored.base_offset + 1:
        raise WireError(f"an entry of {view.num_messages} messages at the offsets of others")
    return view


def pulsar_entry(view: EntryView) -> Entry:
    """What a Pulsar entry holds that is no chunk and no marker; WireError when it cannot be read."""
    metadata = view.metadata
    if view.is_encrypted:
        return _as_entry(sealed_record(view), len(view.payload))
    payload = expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size)
    sent_ms = publish_time_ms(metadata)
    if view.is_batch:
        return _as_entry(convert.records_of(payload, view.num_messages, sent_ms), len(payload))
    return _as_entry(convert.record_of(metadata, payload, sent_ms), len(payload))


def _as_entry(records: convert.Records, size: int) -> Entry:
    return Entry(
        records.data, size, records.record_count, records.base_timestamp_ms, _NOT_STAMPED, is_stamped=False
    )


class Chunks:
    """Chunked messages: a message of which all chunks have come by is given with its last."""

    def __init__(self) -> None:
        self._found: dict[str | bytes, dict[int, memoryview]] = {}

    def add(self, view: EntryView) -> None:
        """A chunk that is not the last of its message."""
        metadata = view.metadata
        if metadata.chunk_id == 0:
            self._found.pop(metadata.uuid, None)  # a uuid can come again: the last time counts
        self._found.setdefault(metadata.uuid, {})[metadata.chunk_id] = view.payload

    def complete(self, last: EntryView) -> Entry | None:
        """The message whose last chunk this is; None when others are missing, WireError when it cannot be read."""
        count = last.metadata.num_chunks_from_msg - 1
        found = self._found.pop(last.metadata.uuid, {})
        if len(found) != count or any(number not in found for number in range(count)):
            return None
        pieces = [*(found[number] for number in range(count)), last.payload]
        return _as_entry(assembled_record(last, pieces), sum(map(len, pieces)))


def is_last_chunk(view: EntryView) -> bool:
    return bool(view.metadata.chunk_id == view.metadata.num_chunks_from_msg - 1)


def touches(window: Window, stored: StoredRecord) -> bool:
    """Whether any of its offsets lies in the window."""
    return stored.last_offset >= window.from_offset and (
        window.to_offset is None or stored.base_offset < window.to_offset
    )


class Opener:
    """Opens entries in the order of the log, and notes what has no rows and why."""

    def __init__(self, window: Window) -> None:
        self.needs_assembly: list[int] = []
        self.undecodable: list[tuple[int, str]] = []
        self._window = window
        self._chunks = Chunks()

    def open(self, stored: StoredRecord) -> tuple[Entry, BatchHeader | EntryView] | None:
        """What an entry holds, and where that is written; None when it has no rows for this window."""
        try:
            return self._pulsar(stored) if stored.is_pulsar else self._kafka(stored)
        except WireError as error:
            self.cannot(stored, str(error))
            return None

    def cannot(self, stored: StoredRecord, reason: str) -> None:
        """Note that nothing of an entry can be read."""
        if touches(self._window, stored):
            self.undecodable.append((stored.base_offset, reason))

    def _kafka(self, stored: StoredRecord) -> tuple[Entry, BatchHeader] | None:
        if not touches(self._window, stored):
            return None
        header = batch_header(stored)
        if header.is_control or (
            header.is_transactional and self._is_aborted(header.producer_id, header.base_offset)
        ):
            return None
        return _bounded(kafka_entry(header, stored.payload)), header

    def _is_aborted(self, producer_id: int, base_offset: int) -> bool:
        return self._window.committed and any(
            producer_id == of_producer and first <= base_offset <= last
            for of_producer, first, last in self._window.aborted
        )

    def _pulsar(self, stored: StoredRecord) -> tuple[Entry, EntryView] | None:
        view = pulsar_view(stored)
        if view.is_marker:
            return None
        if view.transaction is not None and self._is_aborted(view.transaction[1], stored.base_offset):
            return None
        is_wanted = touches(self._window, stored)
        if not view.is_chunk or view.is_encrypted:
            return (_bounded(pulsar_entry(view)), view) if is_wanted else None
        if not is_last_chunk(view):
            self._chunks.add(view)
        elif is_wanted:
            entry = self._chunks.complete(view)
            if entry is not None:
                return _bounded(entry), view
            self.needs_assembly.append(stored.last_offset)
        return None


def _bounded(entry: Entry) -> Entry:
    if entry.size > RECORDS_BYTES_MAX:
        raise WireError(f"an entry of {entry.size} bytes")
    return entry

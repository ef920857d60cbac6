"""Decoding in Python, record by record.  Tests compare the compiled code with it, and it does the work where there is
no compiled code.

The code that serves Kafka consumers turns a Pulsar message into the Kafka record that such a consumer would see.  Then
the record is read as any other.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from magnetar.base.errors import WireError
from magnetar.wire.columns.entries import Entry, Opener, StoredRecord, stored_records
from magnetar.wire.columns.model import (
    APPEND_TIME,
    CREATE_TIME,
    DECODED_BYTES_MAX,
    NOT_BATCHED,
    TIMESTAMP_MS_MAX,
    BinaryColumn,
    Columns,
    Decoded,
    PulsarColumns,
    Wanted,
    Window,
    binary_column,
    pairs_column,
)
from magnetar.wire.convert.batches import PRODUCER_NAME, publish_time_ms
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.convert.naming import ORDERING_KEY, RawHeader, as_text, properties_of
from magnetar.wire.convert.plain import INT64_MAX, to_int64
from magnetar.wire.kafka.record_reader import RawRecord, read_raw_records
from magnetar.wire.kafka.records import BatchHeader
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import EntryView, read_batch


class Origin(NamedTuple):
    """What a row's message is to Pulsar's clients."""

    ledger_id: int
    entry_id: int
    batch_index: int
    publish_time_ms: int
    event_time_ms: int
    sequence_id: int
    producer_name: bytes
    properties: list[tuple[bytes, bytes | None]]


class Row(NamedTuple):
    offset: int
    timestamp_ms: int
    timestamp_type: int
    record: RawRecord
    origin: Origin | None


def decode(data: Buffer, wanted: Wanted, window: Window, bytes_max: int = DECODED_BYTES_MAX) -> Decoded:
    """As `columns.decode`."""
    walk = _Walk(wanted, window, bytes_max)
    walk.run(memoryview(data).cast("B"))
    return Decoded(
        _columns(walk.rows, wanted),
        walk.consumed,
        walk.last_offset,
        walk.opener.needs_assembly,
        walk.opener.undecodable,
    )


def fault_of(stored: StoredRecord, window: Window) -> str:
    """Why nothing of an entry can be read."""
    opener = Opener(window)
    opened = opener.open(stored)
    try:
        if opened is not None:
            _Walk(Wanted(), window, DECODED_BYTES_MAX).rows_of(stored, *opened)
    except WireError as error:
        return str(error)
    return opener.undecodable[0][1] if opener.undecodable else "its records do not add up"


class _Walk:
    def __init__(self, wanted: Wanted, window: Window, bytes_max: int) -> None:
        self.wanted = wanted
        self.window = window
        self.left = bytes_max
        self.rows: list[Row] = []
        self.consumed = 0
        self.last_offset = -1
        self.opener = Opener(window)

    def run(self, data: memoryview) -> None:
        for stored in stored_records(data):
            opened = self.opener.open(stored)
            if opened is not None:
                self.left -= opened[0].size
                try:
                    self.rows += self.rows_of(stored, *opened)
                except WireError as error:
                    self.opener.cannot(stored, str(error))
            self.consumed = stored.end
            self.last_offset = stored.last_offset
            if self.left <= 0:
                return

    def rows_of(self, stored: StoredRecord, entry: Entry, source: BatchHeader | EntryView) -> list[Row]:
        window = self.window
        origins = None
        if self.wanted.pulsar:
            origins = _pulsar_origins(stored, source) if isinstance(source, EntryView) else None
        rows = []
        next_delta = 0
        for record in read_raw_records(memoryview(entry.records), entry.record_count):
            delta = record.offset_delta
            if not next_delta <= delta <= stored.last_offset - stored.base_offset:
                raise WireError("the offsets of a batch's records do not ascend")
            next_delta = delta + 1
            timestamp_ms = (
                entry.stamped_ms
                if entry.is_stamped
                else to_int64(entry.base_timestamp_ms + record.timestamp_delta_ms)
            )
            offset = stored.base_offset + delta
            if (
                offset < window.from_offset
                or (window.to_offset is not None and offset >= window.to_offset)
                or (window.from_timestamp_ms is not None and timestamp_ms < window.from_timestamp_ms)
                or (window.to_timestamp_ms is not None and timestamp_ms >= window.to_timestamp_ms)
            ):
                continue
            origin = None
            if origins is not None:
                origin = origins[delta]
            elif self.wanted.pulsar:
                assert isinstance(source, BatchHeader)
                origin = _kafka_origin(stored, source, record, timestamp_ms)
            kind = APPEND_TIME if entry.is_stamped else CREATE_TIME
            rows.append(Row(offset, timestamp_ms, kind, record, origin))
        return rows


def _kafka_origin(stored: StoredRecord, header: BatchHeader, record: RawRecord, timestamp_ms: int) -> Origin:
    headers: list[RawHeader] = record.headers
    if headers and headers[-1][0] == ORDERING_KEY and headers[-1][1] is not None:
        headers = headers[:-1]
    return Origin(
        stored.ledger_id,
        stored.entry_id,
        record.offset_delta,
        max(header.max_timestamp_ms, 0),
        max(timestamp_ms, 0),
        header.base_offset,
        PRODUCER_NAME.encode(),
        list(properties_of(headers)),
    )


def _pulsar_origins(stored: StoredRecord, view: EntryView) -> dict[int, Origin]:
    """By offset delta."""
    metadata = view.metadata
    last_delta = stored.last_offset - stored.base_offset
    if not view.is_batch or view.is_encrypted or view.is_chunk:
        return {last_delta: _origin(stored, view, NOT_BATCHED, metadata)}
    payload = expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size)
    return {
        index: _origin(stored, view, index, one)
        for index, (one, _) in enumerate(read_batch(payload, view.num_messages))
    }


def _origin(stored: StoredRecord, view: EntryView, batch_index: int, message: Any) -> Origin:
    metadata = view.metadata
    sequence_id = message.sequence_id if message.HasField("sequence_id") else metadata.sequence_id
    return Origin(
        stored.ledger_id,
        stored.entry_id,
        batch_index,
        publish_time_ms(metadata),
        message.event_time if message.event_time <= INT64_MAX else 0,
        to_int64(sequence_id),
        metadata.producer_name.encode(),
        [(_text(one.key), _text(one.value)) for one in message.properties],
    )


def _text(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else as_text(value)


def microseconds(timestamp_ms: int) -> int:
    return max(-TIMESTAMP_MS_MAX, min(timestamp_ms, TIMESTAMP_MS_MAX)) * 1000


def _columns(rows: list[Row], wanted: Wanted) -> Columns:
    columns = Columns(len(rows))
    if wanted.key:
        columns.key = binary_column([row.record.key for row in rows])
    if wanted.value:
        columns.value = binary_column([row.record.value for row in rows])
    if wanted.offset:
        columns.offset = np.array([row.offset for row in rows], np.int64)
    if wanted.timestamp:
        columns.timestamp_us = np.array([microseconds(row.timestamp_ms) for row in rows], np.int64)
    if wanted.timestamp_type:
        columns.timestamp_type = np.array([row.timestamp_type for row in rows], np.int32)
    if wanted.headers:
        columns.headers = pairs_column(
            [[(as_text(name), value) for name, value in row.record.headers] for row in rows]
        )
    if wanted.pulsar:
        columns.pulsar = _pulsar_columns([row.origin for row in rows if row.origin is not None])
    return columns


def _pulsar_columns(origins: list[Origin]) -> PulsarColumns:
    def longs(values: Iterator[int]) -> Any:
        return np.fromiter(values, np.int64, len(origins))

    names: BinaryColumn = binary_column([one.producer_name for one in origins])
    return PulsarColumns(
        ledger_id=longs(one.ledger_id for one in origins),
        entry_id=longs(one.entry_id for one in origins),
        batch_index=np.array([one.batch_index for one in origins], np.int32),
        publish_time_us=longs(microseconds(one.publish_time_ms) for one in origins),
        event_time_us=longs(microseconds(one.event_time_ms) for one in origins),
        sequence_id=longs(one.sequence_id for one in origins),
        producer_name=names,
        properties=pairs_column([one.properties for one in origins]),
    )

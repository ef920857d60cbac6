"""Decoding by compiled code: scan the records, decompress what is compressed, fill the columns.

`plain.py` defines the result.  Each thread keeps the memory that these steps need besides the columns for the next
call: fresh memory would cost more than the work.
"""

import mmap
import threading
from types import ModuleType
from typing import Any, Final

import numpy as np

from magnetar.base.arena import map_memory
from magnetar.base.errors import WireError
from magnetar.wire.columns import plain
from magnetar.wire.columns.buffers import Buffers, Usual, fresh
from magnetar.wire.columns.entries import Opener, StoredRecord, corrupt, stored_record
from magnetar.wire.columns.layout import (
    BASE_OFFSET,
    BODY_AT,
    BODY_SIZE,
    CODEC,
    CONSUMED,
    CORRUPT_AT,
    COUNT,
    DAMAGED,
    ENDS_WIDTH,
    ENTRY_ID,
    FACTS_WIDTH,
    HEADERS_AS_PROPERTIES,
    IN_EXPANDED,
    IS_STAMPED,
    KAFKA,
    KIND,
    LAST_OFFSET,
    LAST_SEEN,
    LEDGER_ID,
    METADATA_AT,
    METADATA_END,
    OTHER,
    PAYLOAD_AT,
    PLAIN_SIZE,
    PRODUCER_AT,
    PRODUCER_SIZE,
    PULSAR_MESSAGE,
    ROWS,
    SCRATCH_WIDTH,
    SOURCE,
    STAMPED_MS,
    STORED_AT,
    STORED_BYTES_MIN,
    STORED_END,
    TABLE_WIDTH,
    TIME_MS,
)
from magnetar.wire.columns.model import (
    TIMESTAMP_MS_MAX,
    BinaryColumn,
    Columns,
    Decoded,
    PulsarColumns,
    Wanted,
    Window,
)
from magnetar.wire.convert.batches import PRODUCER_NAME
from magnetar.wire.convert.codecs import expand_pulsar_into
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX, expand_into
from magnetar.wire.kafka.records import RECORD_BYTES_MIN
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import MESSAGE_BYTES_MIN
from magnetar.wire.stored import RECORD, split_entry

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_ENTRIES_MAX: Final = 1 << 20  # of one call
_KEPT_BYTES: Final = 32 << 20  # of decompressed bytes; what more a call needs is given back
_KAFKA: Final = PRODUCER_NAME.encode()


class _Expanded:
    """Room for what was compressed in the entries of one call; only what is written to costs anything."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._mapping = map_memory(size)
        self.view = memoryview(self._mapping)
        self.array: Any = np.frombuffer(self._mapping, np.uint8)
        self.array.flags.writeable = False  # the signature that was compiled
        self.end = 0

    def put(self, data: Buffer) -> int:
        """Where `data` is put."""
        at = self.end
        self.view[at : at + len(data)] = data
        self.end += len(data)
        return at

    def give_back(self) -> None:
        if self.end > _KEPT_BYTES:
            self._mapping.madvise(mmap.MADV_DONTNEED)
            self.end = 0


class _Kept(threading.local):
    """What a thread uses again in its next call."""

    def __init__(self) -> None:
        self.table: Any = np.empty((0, TABLE_WIDTH), np.int64)
        self.expanded: _Expanded | None = None
        self.headers = Usual()
        self.properties = Usual()


_kept: Final = _Kept()
_NOTHING: Final = np.zeros(1, np.uint8)
_NOTHING.flags.writeable = False


def decode(
    compiled: dict[str, ModuleType], data: Buffer, wanted: Wanted, window: Window, bytes_max: int
) -> Decoded:
    """As `columns.decode`."""
    view = memoryview(data).cast("B")
    work = _Work(compiled, view, wanted, window, bytes_max)
    work.scan()
    if wanted.pulsar and work.has_others:
        return plain.decode(data, wanted, window, bytes_max)
    work.expand()
    columns = work.fill()
    if columns is None:
        return plain.decode(data, wanted, window, bytes_max)
    work.note_damage()
    return Decoded(
        columns,
        work.consumed,
        work.last_offset,
        work.opener.needs_assembly,
        sorted(work.opener.undecodable),
    )


class _Work:
    def __init__(
        self,
        compiled: dict[str, ModuleType],
        view: memoryview,
        wanted: Wanted,
        window: Window,
        bytes_max: int,
    ) -> None:
        self._scan: Any = compiled["compiled_scan"]
        self._fill: Any = compiled["compiled_fill"]
        self._view = view
        self._data = readable(view)
        self._wanted = wanted
        self._bounds = _bounds(window)
        self._window = window
        self._bytes_max = bytes_max
        self._expanded = _NOTHING
        self.opener = Opener(window)
        self.consumed = 0
        self.last_offset = -1
        self._entries: Any = None

    def scan(self) -> None:
        window = self._window
        capacity = min(len(self._view) // STORED_BYTES_MIN + 1, _ENTRIES_MAX)
        if len(_kept.table) < capacity:
            _kept.table = fresh(capacity * TABLE_WIDTH, np.int64).reshape(capacity, TABLE_WIDTH)
        aborted = np.zeros((0, 3), np.int64)
        if window.committed and window.aborted:
            aborted = np.array(window.aborted, np.int64).reshape(-1, 3)
        facts = np.empty(FACTS_WIDTH, np.int64)
        scratch = fresh(SCRATCH_WIDTH, np.int64)
        count = self._scan.scan(
            self._data, self._bounds, aborted, self._bytes_max, _kept.table, scratch, facts
        )
        if facts[CORRUPT_AT] >= 0:
            _, _, ledger_id, entry_id, last_offset, _ = RECORD.unpack_from(self._view, int(facts[CORRUPT_AT]))
            raise corrupt(ledger_id, entry_id, last_offset)
        self._entries = _kept.table[:count]
        self.consumed = int(facts[CONSUMED])
        self.last_offset = int(facts[LAST_SEEN])

    @property
    def has_others(self) -> bool:
        """Whether there are entries that are Python's work."""
        return bool((self._entries[:, KIND] == OTHER).any())

    def expand(self) -> None:
        """Make all bodies plain, and leave out the entries behind the one with which it is enough."""
        entries = self._entries
        sizes = entries[:, BODY_SIZE].copy()
        special = np.flatnonzero((entries[:, CODEC] != 0) | (entries[:, KIND] == OTHER))
        if len(special):
            sizes[special] = 0
            plain_until = np.cumsum(sizes)
            room = _room(self._bytes_max)
            self._expanded = room.array
            spent = 0
            for index in special.tolist():
                if plain_until[index] + spent >= self._bytes_max:
                    break
                entry = entries[index]
                size = self._open(entry, room) if entry[KIND] == OTHER else self._decompress(entry, room)
                sizes[index] = size
                spent += size
        enough = int(np.searchsorted(np.cumsum(sizes), self._bytes_max))
        if enough < len(entries):
            self._entries = entries[: enough + 1]
            self.consumed = int(entries[enough, STORED_END])
            self.last_offset = int(entries[enough, LAST_OFFSET])

    def _decompress(self, entry: Any, room: _Expanded) -> int:
        """The size of what is in an entry."""
        begin = int(entry[BODY_AT])
        body = self._view[begin : begin + int(entry[BODY_SIZE])]
        out = room.view[room.end :]
        try:
            if entry[KIND] == KAFKA:
                size = expand_into(body, int(entry[CODEC]), out[:RECORDS_BYTES_MAX])
            else:
                size = int(entry[PLAIN_SIZE])
                if size > RECORDS_BYTES_MAX:
                    raise WireError(f"{size} bytes behind compression are more than {RECORDS_BYTES_MAX}")
                expand_pulsar_into(body, int(entry[CODEC]), size, out)
        except WireError as error:
            entry[KIND] = OTHER  # nothing more to do with it
            entry[BODY_SIZE] = 0
            self.opener.cannot(self._stored(entry), str(error))
            return 0
        entry[SOURCE] = IN_EXPANDED
        entry[BODY_AT] = room.end
        entry[BODY_SIZE] = size
        room.end += size
        return size

    def _open(self, entry: Any, room: _Expanded) -> int:
        stored = self._stored(entry)
        opened = self.opener.open(stored)
        if opened is None:
            return 0
        content = opened[0]
        if len(content.records) > room.size - room.end:
            self.opener.cannot(stored, f"an entry of {len(content.records)} bytes in its other form")
            return 0
        entry[KIND] = KAFKA
        entry[SOURCE] = IN_EXPANDED
        entry[BODY_AT] = room.put(content.records)
        entry[BODY_SIZE] = len(content.records)
        entry[COUNT] = content.record_count
        entry[TIME_MS] = content.base_timestamp_ms
        entry[STAMPED_MS] = content.stamped_ms
        entry[IS_STAMPED] = content.is_stamped
        return content.size

    def _stored(self, entry: Any) -> StoredRecord:
        begin, end = int(entry[STORED_AT]), int(entry[STORED_END])
        at, base_offset = int(entry[PAYLOAD_AT]), int(entry[BASE_OFFSET])
        body_at = begin + RECORD.size
        is_pulsar, _, _ = split_entry(self._view[body_at:end], int(entry[LAST_OFFSET]))
        return stored_record(self._view, begin, end, at, base_offset, is_pulsar=is_pulsar)

    def fill(self) -> Columns | None:
        """The columns; None when Kafka's headers have to become properties, which Python does."""
        entries = self._entries
        kinds = entries[:, KIND]
        counts = entries[:, COUNT]
        too_many = (
            counts * np.where(kinds == KAFKA, RECORD_BYTES_MIN, MESSAGE_BYTES_MIN) > entries[:, BODY_SIZE]
        )
        entries[too_many & (kinds < PULSAR_MESSAGE), KIND] = DAMAGED
        kinds = entries[:, KIND]
        rows_max = int(counts[kinds < OTHER].sum())
        is_message = kinds == PULSAR_MESSAGE
        bytes_max = int(entries[kinds < OTHER, BODY_SIZE].sum())
        bytes_max += int((entries[is_message, METADATA_END] - entries[is_message, METADATA_AT]).sum())
        buffers = Buffers(self._wanted, rows_max, bytes_max, _kept.headers, _kept.properties)
        scratch = fresh(SCRATCH_WIDTH, np.int64)
        while True:
            ends = np.zeros(ENDS_WIDTH, np.int64)
            self._fill.fill(
                self._data, self._expanded, entries, len(entries), self._bounds, buffers.wants, buffers.key,
                buffers.value, buffers.numbers, buffers.headers.arrays, buffers.origins, buffers.properties.arrays,
                scratch, ends,
            )  # fmt: skip
            if buffers.have_room(ends):
                break
        if _kept.expanded is not None:
            _kept.expanded.give_back()
        if ends[HEADERS_AS_PROPERTIES]:
            return None
        columns = buffers.columns(ends)
        if self._wanted.pulsar:
            columns.pulsar = self._pulsar_columns(buffers, ends)
        return columns

    def _pulsar_columns(self, buffers: "Buffers", ends: Any) -> PulsarColumns:
        """What is the same for all rows of an entry is written down once, in the table."""
        count = int(ends[ROWS])
        entries = self._entries
        numbers, batch_index, event_time_us, sequence_id = (array[:count] for array in buffers.origins)
        is_kafka = entries[:, KIND] == KAFKA
        published = np.where(is_kafka, np.maximum(entries[:, STAMPED_MS], 0), entries[:, TIME_MS])
        published = np.minimum(published, TIMESTAMP_MS_MAX) * 1000
        rows = np.bincount(numbers, minlength=len(entries)).tolist()
        names = [
            _KAFKA if kafka else bytes(self._view[at : at + size])
            for kafka, at, size in zip(
                is_kafka.tolist(),
                entries[:, PRODUCER_AT].tolist(),
                entries[:, PRODUCER_SIZE].tolist(),
                strict=True,
            )
        ]
        name_offsets = np.zeros(count + 1, np.int32)
        np.cumsum(np.repeat([len(name) for name in names], rows), out=name_offsets[1:])
        name_bytes = b"".join([name * times for name, times in zip(names, rows, strict=True)])
        return PulsarColumns(
            ledger_id=entries[numbers, LEDGER_ID],
            entry_id=entries[numbers, ENTRY_ID],
            batch_index=batch_index,
            publish_time_us=published[numbers],
            event_time_us=event_time_us,
            sequence_id=sequence_id,
            producer_name=BinaryColumn(name_offsets, np.frombuffer(name_bytes, np.uint8)),
            properties=buffers.properties.column(ends),
        )

    def note_damage(self) -> None:
        for entry in self._entries[self._entries[:, KIND] == DAMAGED]:
            stored = self._stored(entry)
            self.opener.cannot(stored, plain.fault_of(stored, self._window))


def readable(data: memoryview) -> Any:
    """Memory for compiled code to read."""
    if not data:
        return _NOTHING[:0]
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False  # the signature that was compiled
    return array


def _bounds(window: Window) -> Any:
    last_offset = _INT64_MAX if window.to_offset is None else window.to_offset - 1
    from_ms = _INT64_MIN if window.from_timestamp_ms is None else window.from_timestamp_ms
    last_ms = _INT64_MAX if window.to_timestamp_ms is None else window.to_timestamp_ms - 1
    bounds = [max(window.from_offset, 0), last_offset, from_ms, last_ms]
    return np.array([max(_INT64_MIN, min(bound, _INT64_MAX)) for bound in bounds], np.int64)


def _room(bytes_max: int) -> _Expanded:
    size = bytes_max + 2 * RECORDS_BYTES_MAX
    if _kept.expanded is None or _kept.expanded.size < size:
        _kept.expanded = _Expanded(size)
    _kept.expanded.end = 0
    return _kept.expanded

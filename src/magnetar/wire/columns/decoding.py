"""Decoding by compiled code: scan the records, decompress what is compressed, fill the columns.

`plain.py` says what is to come out.  What these steps need besides the columns themselves is kept for the next call, in
each thread: fresh memory would cost more than the work.
"""

import mmap
import threading
from types import ModuleType
from typing import Any, Final

import numpy as np

from magnetar.base.arena import map_memory
from magnetar.base.errors import WireError
from magnetar.wire.columns.entries import Opener, StoredRecord, corrupt, stored_record
from magnetar.wire.columns.layout import (
    BASE_OFFSET,
    BODY_AT,
    BODY_SIZE,
    CODEC,
    CONSUMED,
    CONTENTS_END,
    CORRUPT_AT,
    COUNT,
    DAMAGED,
    ENDS_WIDTH,
    FACTS_WIDTH,
    IN_EXPANDED,
    IS_STAMPED,
    KAFKA,
    KEY_END,
    KIND,
    LAST_OFFSET,
    LAST_SEEN,
    METADATA_AT,
    METADATA_END,
    NAMES_END,
    OTHER,
    PAIRS,
    PAYLOAD_AT,
    PLAIN_SIZE,
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
    VALUE_END,
)
from magnetar.wire.columns.model import BinaryColumn, Columns, Decoded, PairsColumn, Wanted, Window
from magnetar.wire.columns.plain import fault_of
from magnetar.wire.convert.codecs import expand_pulsar_into
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX, expand_into
from magnetar.wire.kafka.records import RECORD_BYTES_MIN
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import MESSAGE_BYTES_MIN
from magnetar.wire.stored import RECORD, split_entry

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_KEPT_BYTES: Final = 32 << 20  # of decompressed bytes; what more a call needs is given back
_COPY_SLACK: Final = 16  # compiled code copies short strings with what is behind them


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
        # Of the last call, for a guess at the next.
        self.pairs_per_row = 1.0
        self.name_bytes_per_pair = 16.0
        self.content_bytes_per_pair = 32.0


_kept: Final = _Kept()
_NOTHING: Final = np.zeros(1, np.uint8)
_NOTHING.flags.writeable = False
_NO_NUMBERS: Final = np.zeros(1, np.int64)
_NO_TYPES: Final = np.zeros(1, np.int32)


def decode(
    compiled: dict[str, ModuleType], data: Buffer, wanted: Wanted, window: Window, bytes_max: int
) -> Decoded:
    """As `columns.decode`, but for Pulsar's columns."""
    view = memoryview(data).cast("B")
    work = _Work(compiled, view, wanted, window, bytes_max)
    work.scan()
    work.expand()
    columns = work.fill()
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
        capacity = len(self._view) // STORED_BYTES_MIN + 1
        if len(_kept.table) < capacity:
            _kept.table = fresh(capacity * TABLE_WIDTH, np.int64).reshape(capacity, TABLE_WIDTH)
        aborted = np.zeros((0, 3), np.int64)
        if window.committed and window.aborted:
            aborted = np.array(window.aborted, np.int64).reshape(-1, 3)
        facts = np.empty(FACTS_WIDTH, np.int64)
        scratch = fresh(SCRATCH_WIDTH, np.int64)
        count = self._scan.scan(self._data, self._bounds, aborted, _kept.table, scratch, facts)
        if facts[CORRUPT_AT] >= 0:
            _, _, ledger_id, entry_id, last_offset, _ = RECORD.unpack_from(self._view, int(facts[CORRUPT_AT]))
            raise corrupt(ledger_id, entry_id, last_offset)
        self._entries = _kept.table[:count]
        self.consumed = int(facts[CONSUMED])
        self.last_offset = int(facts[LAST_SEEN])

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

    def fill(self) -> Columns:
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
        buffers = _Buffers(self._wanted, rows_max, bytes_max)
        scratch = fresh(SCRATCH_WIDTH, np.int64)
        while True:
            ends = np.zeros(ENDS_WIDTH, np.int64)
            self._fill.fill(
                self._data, self._expanded, entries, len(entries), self._bounds, buffers.wants, buffers.key,
                buffers.value, buffers.numbers, buffers.headers, scratch, ends,
            )  # fmt: skip
            if buffers.have_room(ends):
                break
        if _kept.expanded is not None:
            _kept.expanded.give_back()
        return buffers.columns(ends)

    def note_damage(self) -> None:
        for entry in self._entries[self._entries[:, KIND] == DAMAGED]:
            stored = self._stored(entry)
            self.opener.cannot(stored, fault_of(stored, self._window))


class _Buffers:
    """Columns of `rows_max` rows before it is known how many there are; `bytes_max` for keys, and again for values."""

    def __init__(self, wanted: Wanted, rows_max: int, bytes_max: int) -> None:
        self._wanted = wanted
        self._rows_max = rows_max
        self.wants = np.array(
            [
                wanted.key,
                wanted.value,
                wanted.offset,
                wanted.timestamp,
                wanted.timestamp_type,
                wanted.headers,
            ],
            np.int64,
        )
        self.key = _binary(rows_max, bytes_max) if wanted.key else _NO_BINARY
        self.value = _binary(rows_max, bytes_max) if wanted.value else _NO_BINARY
        self.numbers = (
            fresh(rows_max, np.int64) if wanted.offset else _NO_NUMBERS,
            fresh(rows_max, np.int64) if wanted.timestamp else _NO_NUMBERS,
            fresh(rows_max, np.int32) if wanted.timestamp_type else _NO_TYPES,
        )
        self.headers: Any = (_NO_TYPES, _NO_BINARY, _NO_BINARY)
        if wanted.headers:
            pairs = int(rows_max * _kept.pairs_per_row * 1.2) + 64
            self._make_headers(
                pairs,
                int(pairs * _kept.name_bytes_per_pair * 1.2) + 64,
                int(pairs * _kept.content_bytes_per_pair * 1.2) + 64,
            )

    def _make_headers(self, pairs: int, name_bytes: int, content_bytes: int) -> None:
        self._room = (pairs, name_bytes, content_bytes)
        self.headers = (_offsets(self._rows_max), _binary(pairs, name_bytes), _binary(pairs, content_bytes))

    def have_room(self, ends: Any) -> bool:
        """Whether all headers were written; if not, there is room for them now."""
        if not self._wanted.headers:
            return True
        rows, pairs = max(int(ends[ROWS]), 1), int(ends[PAIRS])
        needed = (pairs, int(ends[NAMES_END]), int(ends[CONTENTS_END]))
        _kept.pairs_per_row = pairs / rows
        _kept.name_bytes_per_pair = needed[1] / max(pairs, 1)
        _kept.content_bytes_per_pair = needed[2] / max(pairs, 1)
        if all(need <= room for need, room in zip(needed, self._room, strict=True)):
            return True
        self._make_headers(*needed)
        return False

    def columns(self, ends: Any) -> Columns:
        wanted = self._wanted
        count = int(ends[ROWS])
        columns = Columns(count)
        if wanted.key:
            columns.key = _cut(self.key, count, int(ends[KEY_END]))
        if wanted.value:
            columns.value = _cut(self.value, count, int(ends[VALUE_END]))
        offsets, times, types = self.numbers
        if wanted.offset:
            columns.offset = offsets[:count]
        if wanted.timestamp:
            columns.timestamp_us = times[:count]
        if wanted.timestamp_type:
            columns.timestamp_type = types[:count]
        if wanted.headers:
            pair_offsets, names, contents = self.headers
            pairs = int(ends[PAIRS])
            columns.headers = PairsColumn(
                pair_offsets[: count + 1],
                _cut(names, pairs, int(ends[NAMES_END])),
                _cut(contents, pairs, int(ends[CONTENTS_END])),
            )
        return columns


def _offsets(rows: int) -> Any:
    offsets = fresh(rows + 1, np.int32)
    offsets[0] = 0
    return offsets


def _binary(rows: int, size: int) -> Any:
    return _offsets(rows), fresh(size + _COPY_SLACK, np.uint8), fresh(rows, np.uint8)


def fresh(count: int, kind: Any) -> Any:
    """Memory for compiled code to write to."""
    return np.empty(count, kind)


def readable(data: memoryview) -> Any:
    """Memory for compiled code to read."""
    if not data:
        return _NOTHING[:0]
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False  # the signature that was compiled
    return array


_NO_BINARY: Final = _binary(0, 0)


def _cut(column: Any, count: int, end: int) -> BinaryColumn:
    """A column to its length; what is much smaller than its buffer does not keep that alive."""
    offsets, data, valid = column
    data = data[:end].copy() if 2 * end < len(data) else data[:end]
    valid = valid[:count]
    return BinaryColumn(offsets[: count + 1], data, None if valid.all() else valid.view(np.bool_))


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

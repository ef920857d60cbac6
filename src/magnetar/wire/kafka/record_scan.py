"""Questions about the records of one batch, answered in one walk over them that makes no objects of any.

A batch can hold a million records in a few hundred bytes, so this is for worker threads; the event loop asks it about
a hundred records at most.  Compiled code does the walk, without holding the interpreter, once it is loaded: the first
batch of many records asks for that (`wire/compiling.py`), and very many wait for it.  `plain_scan` does the same in
Python, and is what the compiled code is compared with.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.wire.compiling import CompiledModules
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX, TooLargeExpanded, expand
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
    BatchHeader,
)

_ALWAYS: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_WORTH_COMPILING: Final = 1000  # records: a millisecond of Python
_WORTH_WAITING: Final = 200_000  # records: half a second of Python
_PLAIN_RECORDS_MAX: Final = 1 << 20  # where nothing can be compiled
_UINT64_MAX: Final = (1 << 64) - 1
MALFORMED: Final = "the records of a batch do not add up"

_compiled: Final = CompiledModules(
    __file__,
    ["magnetar.wire.kafka.compiled_record_scan"],
    ["compiled_record_scan.py", "../compiled_bytes.py"],
    "look-ups in large batches are not compiled and stay slow",
)


class Budget(NamedTuple):
    """What one look into a batch may take on."""

    bytes_max: int
    records_max: int


WHOLE: Final = Budget(RECORDS_BYTES_MAX, RECORDS_BYTES_MAX // RECORD_BYTES_MIN)
"""Any batch that may be opened at all."""


class Facts(NamedTuple):
    """What a walk has found.  Offsets and times are the deltas that records have to their batch's header."""

    has_first: int
    first_offset: int
    first_ms: int
    newest_offset: int
    newest_ms: int
    keyless: int


class Stamped(NamedTuple):
    """A record's place and time."""

    offset: int
    timestamp_ms: int


def first_at(
    batch: memoryview, header: BatchHeader, timestamp_ms: int, from_offset: int, budget: Budget
) -> Stamped | None:
    """The first record at or behind `from_offset` whose time is `timestamp_ms` or later.

    Raises:
        TooLargeExpanded: there is more to look at than the budget has.
        WireError: the records cannot be decompressed, or those up to the one that is looked for do not add up.
    """
    delta_ms = timestamp_ms - header.base_timestamp_ms
    if header.attributes & LOG_APPEND_TIME:
        if header.max_timestamp_ms < timestamp_ms:
            return None
        delta_ms = _ALWAYS
    delta_ms = min(max(delta_ms, _ALWAYS), _LONG_MAX)
    delta_offset = max(from_offset - header.base_offset, _ALWAYS)
    facts, _ = _scan(batch, header, budget, delta_ms, delta_offset, to_first=True)
    return _stamped(header, facts.first_offset, facts.first_ms) if facts.has_first else None


def newest(batch: memoryview, header: BatchHeader, budget: Budget) -> Stamped | None:
    """The first of the records that have the greatest time; raises as `first_at`."""
    if header.record_count <= 0:
        return None
    facts, _ = _scan(batch, header, budget, _ALWAYS, _ALWAYS)
    if header.attributes & LOG_APPEND_TIME:
        return _stamped(header, facts.first_offset, 0)
    return _stamped(header, facts.newest_offset, facts.newest_ms)


def keyless(batch: memoryview, header: BatchHeader, budget: Budget, most: int) -> tuple[int, list[int]]:
    """(number of records without a key, indexes of the first `most` of them); raises as `first_at`, for all records."""
    facts, indexes = _scan(batch, header, budget, _LONG_MAX, _LONG_MAX, most=most)
    return facts.keyless, list(indexes[: facts.keyless])


def _stamped(header: BatchHeader, offset_delta: int, delta_ms: int) -> Stamped:
    stamped = header.attributes & LOG_APPEND_TIME
    time_ms = header.max_timestamp_ms if stamped else header.base_timestamp_ms + delta_ms
    return Stamped(header.base_offset + offset_delta, time_ms)


def _scan(
    batch: memoryview,
    header: BatchHeader,
    budget: Budget,
    from_ms: int,
    from_offset: int,
    *,
    to_first: bool = False,
    most: int = 0,
) -> tuple[Facts, Sequence[int]]:
    count = header.record_count
    if count > budget.records_max:
        raise TooLargeExpanded(f"a batch has {count} records, {budget.records_max} can be looked at")
    data = expand(batch[HEADER_SIZE:], header.attributes & COMPRESSION_MASK, budget.bytes_max)
    if not _use_compiled(count):
        return plain_scan(data, count, from_ms, from_offset, to_first=to_first, most=most)
    return compiled_scan(data, count, from_ms, from_offset, to_first=to_first, most=most)


def _use_compiled(count: int) -> bool:
    if count < _WORTH_COMPILING:
        return False
    if not _compiled.finished.is_set():
        _compiled.start()
        if count < _WORTH_WAITING:
            return False
        _compiled.finished.wait()
    if not _compiled.is_loaded and count > _PLAIN_RECORDS_MAX:
        raise TooLargeExpanded(f"a batch has {count} records, {_PLAIN_RECORDS_MAX} can be looked at")
    return _compiled.is_loaded


def load() -> bool:
    """Load the compiled code and wait for that; whether it is there.  Not for the event loop."""
    return _compiled.load()


def compiled_scan(
    data: memoryview, count: int, from_ms: int, from_offset: int, *, to_first: bool, most: int
) -> tuple[Facts, Sequence[int]]:
    """As `plain_scan`, by the compiled code, which must be loaded."""
    import numpy

    compiled: Any = _compiled.modules["compiled_record_scan"]
    array = numpy.frombuffer(data, numpy.uint8)
    array.flags.writeable = False  # the signature that was compiled
    facts = numpy.zeros(len(Facts._fields), numpy.int64)
    indexes = numpy.zeros(most, numpy.int64)
    if compiled.scan(array, count, from_ms, from_offset, to_first, indexes, facts) < 0:
        raise WireError(MALFORMED)
    return Facts(*facts.tolist()), indexes.tolist()


def plain_scan(
    data: memoryview, count: int, from_ms: int, from_offset: int, *, to_first: bool, most: int
) -> tuple[Facts, Sequence[int]]:
    """Walk over `count` records; with `to_first` only to the first one from that time and offset on.

    The second half are the indexes of records without a key, the first `most` of them.

    Raises:
        WireError: the records do not add up.
    """
    has_first = first_offset = first_ms = newest_offset = newest_ms = keyless_count = 0
    indexes: list[int] = []
    position, size = 0, len(data)
    for index in range(count):
        length, position = varlong(data, position, size)
        end = position + length
        if length <= 0 or end > size:
            raise WireError(MALFORMED)
        delta_ms, position = varlong(data, position + 1, end)
        offset, position = varlong(data, position, end)
        key_size, position = varlong(data, position, end)
        if key_size < 0:
            keyless_count += 1
            if len(indexes) < most:
                indexes.append(index)
        elif key_size > end - position:
            raise WireError(MALFORMED)
        position = _skip_field(data, position + max(key_size, 0), end)
        header_count, position = varlong(data, position, end)
        if not 0 <= header_count <= end - position:
            raise WireError(MALFORMED)
        for _ in range(header_count):
            name_size, position = varlong(data, position, end)
            if not 0 <= name_size <= end - position:
                raise WireError(MALFORMED)
            position = _skip_field(data, position + name_size, end)
        if position != end:
            raise WireError(MALFORMED)
        if index == 0 or delta_ms > newest_ms:
            newest_offset, newest_ms = offset, delta_ms
        if not has_first and delta_ms >= from_ms and offset >= from_offset:
            has_first, first_offset, first_ms = 1, offset, delta_ms
            if to_first:
                break
    else:
        if position != size:
            raise WireError(MALFORMED)
    return Facts(has_first, first_offset, first_ms, newest_offset, newest_ms, keyless_count), indexes


def _skip_field(data: memoryview, position: int, end: int) -> int:
    size, position = varlong(data, position, end)
    if size > end - position:
        raise WireError(MALFORMED)
    return position + max(size, 0)


def varlong(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The number at `position`, and where it ends.

    Raises:
        WireError: it does not end before `end`, or has more than ten bytes.
    """
    shift = raw = 0
    while position < end and shift <= 63:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _UINT64_MAX  # the tenth byte has room for more bits than a long has
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise WireError(MALFORMED)

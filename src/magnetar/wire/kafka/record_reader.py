"""The records inside a batch, one by one: for lookups, checks and tools.

Not for the hot path: a broker that only stores and forwards never opens a batch.  The library cramjam expands
compressed batches straight into memory of a given size, `RECORDS_BYTES_MAX` at most.  So a small hostile batch cannot
claim all of it.  If a batch does not fit, the reader gives up at the first byte too many.

Spec: Kafka documentation, "Message format", section "Record"; snappy in Kafka comes raw (librdkafka) or in the block
framing of the xerial library (Java), KIP-110 for zstd.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from magnetar.base.arena import map_memory
from magnetar.base.errors import WireError
from magnetar.wire.compression import cramjam
from magnetar.wire.kafka.records import COMPRESSION_MASK, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader

RECORDS_BYTES_MAX: Final = 256 << 20
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_BLOCK_SIZE: Final = Struct(">I")
_UINT64_MAX: Final = (1 << 64) - 1
_ON_HEAP_BYTES_MAX: Final = 1 << 20
# How cramjam says that the memory is full: gzip, lz4 and zstd in the first way, snappy in the second.
_FULL: Final = ("failed to write whole buffer", "output buffer")


class TooLargeExpanded(WireError):
    """Behind its compression a batch has more than may be taken on."""


class RawRecord(NamedTuple):
    """One record as it is in its batch; `headers` keeps order and duplicates, names are bytes that should be UTF-8."""

    timestamp_delta_ms: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class Record(NamedTuple):
    """One record; `headers` keeps order and duplicates, values may be None."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_records(
    batch: memoryview, header: BatchHeader, bytes_max: int = RECORDS_BYTES_MAX
) -> Iterator[Record]:
    """The records of one batch, in order.

    Raises:
        TooLargeExpanded: they are more than `bytes_max`.
        WireError: the records cannot be decompressed or do not add up.
    """
    data = expand(batch[HEADER_SIZE:], header.attributes & COMPRESSION_MASK, bytes_max)
    stamped = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    for record in read_raw_records(data, header.record_count):
        headers = [(name.decode("utf-8", "replace"), content) for name, content in record.headers]
        timestamp_ms = (
            stamped if stamped is not None else header.base_timestamp_ms + record.timestamp_delta_ms
        )
        yield Record(
            header.base_offset + record.offset_delta, timestamp_ms, record.key, record.value, headers
        )


def read_raw_records(data: memoryview, record_count: int) -> Iterator[RawRecord]:
    """The records in the uncompressed bytes behind a batch's header, in order; WireError when they do not add up."""
    position = 0
    for _ in range(record_count):
        length, position = _varint(data, position)
        end = position + length
        if length <= 0 or end > len(data):
            raise WireError("a record is longer than its batch")
        position += 1  # attributes: none is defined
        timestamp_delta, position = _varint(data, position)
        offset_delta, position = _varint(data, position)
        key, position = _nullable(data, position, end)
        value, position = _nullable(data, position, end)
        header_count, position = _varint(data, position)
        if not 0 <= header_count <= end - position:
            raise WireError("a record claims more headers than it has bytes")
        headers = []
        for _ in range(header_count):
            name, position = _nullable(data, position, end)
            if name is None:
                raise WireError("a record header has no name")
            content, position = _nullable(data, position, end)
            headers.append((name, content))
        if position != end:
            raise WireError("a record does not end where it says")
        yield RawRecord(timestamp_delta, offset_delta, key, value, headers)
    if position != len(data):
        raise WireError("a batch has bytes behind its last record")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 10 bytes and the position behind it."""
    shift = raw = 0
    while True:
        if position >= len(data) or shift > 63:
            raise WireError("a varint in a record is cut short or too long")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _UINT64_MAX  # the tenth byte has room for more bits than a long has
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _nullable(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise WireError("a field is longer than its record")
    return bytes(data[position : position + length]), position + length


def expand(data: memoryview, codec: int, bytes_max: int = RECORDS_BYTES_MAX) -> memoryview:
    """What the codec's number in a batch's attributes says is compressed.

    Raises:
        TooLargeExpanded: it is more than `bytes_max`.
        WireError: it cannot be decompressed.
    """
    if codec == 0:
        if len(data) > bytes_max:
            raise TooLargeExpanded(f"a batch has more than {bytes_max} bytes of records")
        return data
    # Of a mapping only the pages that are written cost anything.
    memory = bytearray(bytes_max) if bytes_max <= _ON_HEAP_BYTES_MAX else map_memory(bytes_max)
    out = memoryview(memory)
    return out[: expand_into(data, codec, out)]


def expand_into(data: memoryview, codec: int, out: memoryview) -> int:
    """How many bytes it is, written to the beginning of `out`.

    Raises:
        TooLargeExpanded: they do not fit.
        WireError: they are no such thing.
    """
    library = cramjam()
    try:
        match codec:
            case 1:
                return int(library.gzip.decompress_into(data, out))
            case 2:
                return _expand_snappy(data, out)
            case 3:
                return int(library.lz4.decompress_into(data, out))
            case 4:
                return int(library.zstd.decompress_into(data, out))
    except library.DecompressionError as error:
        text = str(error)
        if any(sign in text for sign in _FULL):
            raise TooLargeExpanded(
                f"a batch has more than {len(out)} bytes of records behind its compression"
            ) from None
        raise WireError(f"a batch cannot be decompressed: {error}") from error
    raise WireError(f"unknown compression {codec}")


def _expand_snappy(data: memoryview, out: memoryview) -> int:
    decompress_into = cramjam().snappy.decompress_raw_into
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return int(decompress_into(data, out))
    size = 0
    position = _XERIAL_HEADER_SIZE
    while position < len(data):
        if position + 4 > len(data):
            raise WireError("a snappy block is cut short")
        (length,) = _BLOCK_SIZE.unpack_from(data, position)
        position += 4
        if length > len(data) - position:
            raise WireError("a snappy block is longer than its batch")
        size += decompress_into(data[position : position + length], out[size:])
        position += length
    return size

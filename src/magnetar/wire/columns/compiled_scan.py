"""Stored records to a table of their entries, compiled; `compiled_bytes.py` has the rules.

It verifies checksums, and leaves out entries outside the window or of aborted transactions.  An entry that is not
clearly a batch or a message is `OTHER`, and Python looks at it.
"""

from typing import Any, Final

import numpy as np
from numba import types

from magnetar.wire.columns.compiled_memory import (
    crc32c,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_word,
    pointer,
)
from magnetar.wire.columns.layout import (
    BASE_OFFSET,
    BODY_AT,
    BODY_SIZE,
    CODEC,
    CONSUMED,
    CORRUPT_AT,
    COUNT,
    ENTRY_ID,
    FROM_OFFSET,
    IN_DATA,
    IS_STAMPED,
    KAFKA,
    KIND,
    LAST_OFFSET,
    LAST_SEEN,
    LAST_WANTED,
    LEDGER_ID,
    METADATA_AT,
    METADATA_END,
    OTHER,
    PAYLOAD_AT,
    PLAIN_SIZE,
    PRODUCER_AT,
    PRODUCER_SIZE,
    PULSAR_BATCH,
    PULSAR_MESSAGE,
    SCRATCH_WIDTH,
    SEQUENCE_ID,
    SOURCE,
    STAMPED_MS,
    STORED_AT,
    STORED_END,
    TABLE_WIDTH,
    TIME_MS,
)
from magnetar.wire.compiled_bytes import INPUT, compiled, is_utf8, varint
from magnetar.wire.convert.compiled_protobuf import read_tag, skip
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
)
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX, MESSAGE_BYTES_MIN
from magnetar.wire.stored import (
    BATCH_BYTES_MIN,
    COUNT_TAG,
    ENTRY_BYTES_MAX,
    ENTRY_MAGIC,
    FORMAT,
    FORMAT_AT,
    MOVED,
    MOVED_METADATA_BYTES_MIN,
    MOVED_TAGS,
    PULSAR_BYTES_MIN,
    PULSAR_MAGIC,
    RECORD_BYTES,
)

_FORMAT: Final = np.frombuffer(FORMAT, np.uint8)
_ENTRY_MAGIC: Final = int.from_bytes(ENTRY_MAGIC)
_PULSAR_MAGIC: Final = int.from_bytes(PULSAR_MAGIC)
_MOVED_BYTES: Final = MOVED.size
_MOVED_FIRST, _MOVED_SECOND, _MOVED_THIRD, _ = MOVED_TAGS
_CRC_COVER: Final = 8
_CODECS: Final = 5
_WRAPPING_BYTES: Final = 128  # compressed bytes that are not even half of what is in them, at most

# What is read of a MessageMetadata.
(
    _M_BATCH,
    _M_COUNT,
    _M_CODEC,
    _M_SIZE,
    _M_PUBLISHED,
    _M_IS_CHUNK,
    _M_SEQUENCE,
    _M_NAME_AT,
    _M_NAME_SIZE,
    _M_HAS_TRANSACTION,
    _M_TRANSACTION,
    _M_WIDTH,
) = range(12)
assert _M_WIDTH <= SCRATCH_WIDTH


@compiled()
def _is_whole_pair(data: Any, position: int, end: int) -> bool:
    has_key = False
    has_value = False
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return False
        has_key = has_key or tag == 0x0A
        has_value = has_value or tag == 0x12
        position = skip(data, position, end, tag & 7)
        if position < 0:
            return False
    return has_key and has_value


@compiled()
def _read_metadata(data: Any, position: int, end: int, found: Any) -> bool:
    """Whether it is the metadata of a plain batch or message, or of a chunk; `found` gets what they need."""
    for index in range(_M_WIDTH):
        found[index] = 0
    required = 0
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return False
        wire_type = tag & 7
        if wire_type == 0:
            number, position = varint(data, position, end)
            if position < 0:
                return False
            if tag == 0x10:  # sequence_id
                required |= 2
                found[_M_SEQUENCE] = number
            elif tag == 0x18:  # publish_time
                required |= 4
                found[_M_PUBLISHED] = max(number, 0)
            elif tag == 0x40:  # compression
                if number < 0 or number >= _CODECS:
                    return False
                found[_M_CODEC] = number
            elif tag == 0x48:  # uncompressed_size
                found[_M_SIZE] = number & 0xFFFF_FFFF
            elif tag == 0x58:  # num_messages_in_batch
                found[_M_BATCH] = 1
                found[_M_COUNT] = number & 0xFFFF_FFFF
            elif tag == 0xA0:  # marker_type
                return False
            elif tag == 0xB0:  # txnid_least_bits
                found[_M_HAS_TRANSACTION] = 1
                found[_M_TRANSACTION] = number
            continue
        at = position
        if wire_type == 2:
            _, at = varint(data, position, end)
        position = skip(data, position, end, wire_type)
        if position < 0:
            return False
        if tag == 0x0A:  # producer_name
            if not is_utf8(data, at, position):
                return False
            required |= 1
            found[_M_NAME_AT] = at
            found[_M_NAME_SIZE] = position - at
        elif tag == 0x22:  # properties
            if not _is_whole_pair(data, at, position):
                return False
        elif tag == 0x6A:  # encryption_keys
            return False
        elif tag == 0xD2:  # uuid
            found[_M_IS_CHUNK] = 1
    return required == 7


@compiled()
def _is_aborted(aborted: Any, producer_id: int, base_offset: int) -> bool:
    for index in range(len(aborted)):
        if aborted[index, 0] == producer_id and aborted[index, 1] <= base_offset <= aborted[index, 2]:
            return True
    return False


@compiled()
def _scan_pulsar(
    data: Any, at: int, end: int, touches: bool, aborted: Any, table: Any, row: int, found: Any
) -> bool:
    """Whether the entry at `at` is to be in the table."""
    metadata_at = at + 10
    metadata_end = metadata_at + load_u32(data, at + 6)
    is_plain = metadata_end <= end and _read_metadata(data, metadata_at, metadata_end, found)
    if (
        is_plain
        and found[_M_HAS_TRANSACTION] != 0
        and _is_aborted(aborted, found[_M_TRANSACTION], table[row + BASE_OFFSET])
    ):
        return False
    if not touches:
        # All that counts here are the chunks of a message whose last one may be wanted.
        table[row + KIND] = OTHER
        return is_plain and found[_M_IS_CHUNK] != 0
    table[row + KIND] = OTHER
    if not is_plain or found[_M_IS_CHUNK] != 0:
        return True
    size = end - metadata_end
    count = found[_M_COUNT] if found[_M_BATCH] else 1
    codec = found[_M_CODEC]
    if count != table[row + LAST_OFFSET] - table[row + BASE_OFFSET] + 1:
        return True
    if found[_M_BATCH]:
        room = size if codec == 0 or found[_M_SIZE] == 0 else found[_M_SIZE]
        if count < 1 or count > BATCH_MESSAGES_MAX or count * MESSAGE_BYTES_MIN > room:
            return True
    if codec == 0 and size > RECORDS_BYTES_MAX:
        return True
    table[row + KIND] = PULSAR_BATCH if found[_M_BATCH] else PULSAR_MESSAGE
    table[row + CODEC] = codec
    table[row + BODY_AT] = metadata_end
    table[row + BODY_SIZE] = size
    table[row + PLAIN_SIZE] = found[_M_SIZE]
    table[row + COUNT] = count
    table[row + TIME_MS] = found[_M_PUBLISHED]
    table[row + SEQUENCE_ID] = found[_M_SEQUENCE]
    table[row + PRODUCER_AT] = found[_M_NAME_AT]
    table[row + PRODUCER_SIZE] = found[_M_NAME_SIZE]
    table[row + METADATA_AT] = metadata_at
    table[row + METADATA_END] = metadata_end
    return True


@compiled()
def _scan_kafka(data: Any, at: int, end: int, aborted: Any, table: Any, row: int) -> bool:
    """Whether the entry at `at` is to be in the table."""
    table[row + KIND] = OTHER
    base_offset = table[row + BASE_OFFSET]
    last_delta = load_i32(data, at + 23)
    if (
        load_u8(data, at + 16) != MAGIC
        or load_i32(data, at + 8) + LENGTH_PREFIX != end - at
        or base_offset < 0
        or last_delta < 0
        or base_offset > table[row + LAST_OFFSET]
        or table[row + LAST_OFFSET] - base_offset != last_delta
    ):
        return True
    attributes = load_i16(data, at + 21)
    if attributes & CONTROL:
        return False
    if attributes & TRANSACTIONAL and _is_aborted(aborted, load_i64(data, at + 43), base_offset):
        return False
    codec = attributes & COMPRESSION_MASK
    size = end - at - HEADER_SIZE
    count = max(load_i32(data, at + 57), 0)
    if codec >= _CODECS or size > RECORDS_BYTES_MAX or (codec == 0 and count * RECORD_BYTES_MIN > size):
        return True
    table[row + KIND] = KAFKA
    table[row + CODEC] = codec
    table[row + BODY_AT] = at + HEADER_SIZE
    table[row + BODY_SIZE] = size
    table[row + COUNT] = count
    table[row + TIME_MS] = load_i64(data, at + 27)
    table[row + STAMPED_MS] = load_i64(data, at + 35)
    table[row + IS_STAMPED] = 1 if attributes & LOG_APPEND_TIME else 0
    return True


@compiled()
def _split(data: Any, body_at: int, end: int, last_offset: int) -> Any:
    """(whether a Pulsar client sent it, where its own bytes begin or -1, first offset), as `stored.split_entry`."""
    size = end - body_at
    if size < 6 or load_u16(data, body_at) != _ENTRY_MAGIC:
        return False, -1, 0
    behind = 6 + load_u32(data, body_at + 2)
    if behind + 4 > size:
        return False, -1, 0
    at = body_at + behind
    word = load_u32(data, at)
    if word >> 16 == _PULSAR_MAGIC:
        count = (
            load_u8(data, at - 4)
            | (load_u8(data, at - 3) << 8)
            | (load_u8(data, at - 2) << 16)
            | (load_u8(data, at - 1) << 24)
        )
        base_offset = last_offset + 1 - count
        if (
            load_u8(data, at - 5) != COUNT_TAG
            or count == 0
            or last_offset < 0
            or base_offset < 0
            or size - behind < PULSAR_BYTES_MIN
        ):
            return True, -1, 0
        return True, at, base_offset
    payload = behind + 4 + word
    if size - payload < BATCH_BYTES_MIN or behind + FORMAT_AT + len(_FORMAT) > size:
        return False, -1, 0
    for index in range(len(_FORMAT)):
        if load_u8(data, at + FORMAT_AT + index) != _FORMAT[index]:
            return False, -1, 0
    return False, body_at + payload, load_i64(data, body_at + payload)


@compiled()
def _origin_at(data: Any, body_at: int) -> int:
    """Where the ledger id of an entry stands that compaction has moved, as `stored.origin_of`; -1 for any other."""
    size = load_u32(data, body_at + 2)
    if size < MOVED_METADATA_BYTES_MIN:
        return -1
    at = body_at + 6 + size - _MOVED_BYTES
    if (
        load_u8(data, at) != _MOVED_FIRST
        or load_u8(data, at + 9) != _MOVED_SECOND
        or load_u8(data, at + 18) != _MOVED_THIRD
        or load_u8(data, at + 27) != COUNT_TAG
    ):
        return -1
    return at + 10  # type: ignore[no-any-return]


@compiled(
    types.int64(
        INPUT,
        types.int64[::1],
        types.int64[:, ::1],
        types.int64,
        types.int64[:, ::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def scan(
    data_array: Any, window: Any, aborted: Any, bytes_max: int, table_array: Any, scratch: Any, facts: Any
) -> int:
    """Fill the table with the entries in the data that have rows in the window; their number.

    It goes no further than there are `bytes_max` bytes in entries for sure.  `aborted`: producer id, first and last
    offset of each transaction whose records are to be left out.  `scratch` has `SCRATCH_WIDTH` numbers that mean
    nothing.
    """
    data = pointer(data_array)
    table = pointer(table_array)
    found = pointer(scratch)
    size = len(data_array)
    position = 0
    count = 0
    plain = 0
    facts[CONSUMED] = 0
    facts[LAST_SEEN] = -1
    facts[CORRUPT_AT] = -1
    while size - position >= RECORD_BYTES and count < len(table_array) and plain < bytes_max:
        length = load_u32(data, position)
        body_at = position + RECORD_BYTES
        if length > ENTRY_BYTES_MAX:
            facts[CORRUPT_AT] = position
            break
        end = body_at + length
        if end > size:
            break
        last_offset = load_i64(data, position + 24)
        is_pulsar, payload_at, base_offset = False, -1, 0
        if crc32c(data, position + _CRC_COVER, end) == load_u32(data, position + 4):
            is_pulsar, payload_at, base_offset = _split(data, body_at, end, last_offset)
        if payload_at < 0:
            facts[CORRUPT_AT] = position
            break
        begins_inside = base_offset <= window[LAST_WANTED]
        touches = begins_inside and last_offset >= window[FROM_OFFSET]
        row = count * TABLE_WIDTH
        table[row + STORED_AT] = position
        table[row + STORED_END] = end
        table[row + PAYLOAD_AT] = payload_at
        table[row + SOURCE] = IN_DATA
        table[row + BODY_AT] = payload_at
        table[row + BODY_SIZE] = 0
        table[row + COUNT] = 0
        table[row + CODEC] = 0
        origin_at = _origin_at(data, body_at)
        if origin_at < 0:
            table[row + LEDGER_ID] = load_i64(data, position + 8)
            table[row + ENTRY_ID] = load_i64(data, position + 16)
        else:
            table[row + LEDGER_ID] = load_word(data, origin_at)
            table[row + ENTRY_ID] = load_word(data, origin_at + 9)
        table[row + SEQUENCE_ID] = base_offset
        table[row + BASE_OFFSET] = base_offset
        table[row + LAST_OFFSET] = last_offset
        table[row + STAMPED_MS] = 0
        table[row + IS_STAMPED] = 0
        if is_pulsar:
            is_listed = begins_inside and _scan_pulsar(
                data, payload_at, end, touches, aborted, table, row, found
            )
        else:
            is_listed = touches and _scan_kafka(data, payload_at, end, aborted, table, row)
        if is_listed:
            count += 1
            body = table[row + BODY_SIZE]
            plain += body if table[row + CODEC] == 0 else max(body - _WRAPPING_BYTES, 0) // 2
        facts[CONSUMED] = end
        facts[LAST_SEEN] = last_offset
        position = end
    return count

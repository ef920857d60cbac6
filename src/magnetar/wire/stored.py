"""What the log keeps, as bytes: a record of the ledger store, and the entry in it.

The store writes records; `storage/segment_format.py` and `storage/local/format.py` have the whole of its files.  A
reader of a segment, or of the broker's answer from one, meets them side by side.  All integers big-endian:

     0  u32  length            bytes of the body
     4  u32  crc32c            of everything after this field, body included
     8  u64  ledger_id
    16  i64  entry_id          dense from 0 within its ledger
    24  i64  last_offset       offset of the entry's last message; grows
    32  i64  max_timestamp_ms  greatest record timestamp in the entry; need not grow
    40  ...  body              an entry: `ledger/entry_format.py` tells what its prefix says, and writes it

Reading both is here, below everything that does: the broker's log and the columns that pipelines read.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.errors import WireError

RECORD: Final = Struct(">IIQqqq")
RECORD_START: Final = Struct(">II")
RECORD_REST: Final = Struct(">Qqqq")
RECORD_BYTES: Final = 40
assert RECORD.size == RECORD_BYTES == RECORD_START.size + RECORD_REST.size
ENTRY_BYTES_MAX: Final = 1 << 30

ENTRY_MAGIC: Final = b"\x0e\x02"
PULSAR_MAGIC: Final = b"\x0e\x01"
ENTRY_HEAD: Final = Struct(">HI")  # the magic and the size of broker entry metadata
COUNT: Final = Struct("<I")
COUNT_TAG: Final = 0x7D
COUNT_BYTES: Final = 1 + COUNT.size
PRODUCER: Final = b"\x0a\x00\x10\x00\x18"  # producer_name "", sequence_id 0, tag of publish_time
FORMAT: Final = b"\x22\x15\x0a\x0centry.format\x12\x05kafka"
assert FORMAT[1] == len(FORMAT) - 2
FORMAT_AT: Final = 4 + len(PRODUCER) + 6  # publish_time is a varint of 6 bytes until the year 2109
BATCH_BYTES_MIN: Final = 61  # the head of a record batch v2: a shorter payload is none
PULSAR_BYTES_MIN: Final = len(PULSAR_MAGIC) + 4 + 4

# At the end of the broker's metadata of an entry that compaction has moved (`ledger/moved_entry.py`).
MOVED: Final = Struct("<BqBqBqBI")
MOVED_TAGS: Final = (0x61, 0x69, 0x71, COUNT_TAG)  # fields 12 to 15, which Pulsar's readers skip
MOVED_METADATA_BYTES_MIN: Final = MOVED.size + 4  # behind a time and an index, of a byte each

# Before that, or before the count of any other entry, if a link has copied it (`ledger/entry_format.py`).
COPIED: Final = Struct("<BqBq")
COPIED_TAGS: Final = (0x51, 0x59)  # fields 10 and 11, which Pulsar's readers skip

_U32: Final = Struct(">I")
_BASE_OFFSET: Final = Struct(">q")
_ENTRY: Final = int.from_bytes(ENTRY_MAGIC)
_PULSAR: Final = int.from_bytes(PULSAR_MAGIC)


def record_header(
    ledger_id: int,
    entry_id: int,
    last_offset: int,
    max_timestamp_ms: int,
    body: bytes | bytearray | memoryview,
) -> bytes:
    """What stands before an entry's body in its segment."""
    rest = RECORD_REST.pack(ledger_id, entry_id, last_offset, max_timestamp_ms)
    return RECORD_START.pack(len(body), crc32c(body, crc32c(rest))) + rest


def split_entry(body: memoryview, last_offset: int) -> tuple[bool, int, int]:
    """(whether a Pulsar client sent it, where in `body` its own bytes begin, its first offset) of an entry.

    Raises:
        WireError: this is no entry.
    """
    try:
        magic, size = ENTRY_HEAD.unpack_from(body)
        behind = ENTRY_HEAD.size + size
        (word,) = _U32.unpack_from(body, behind)
        is_pulsar = word >> 16 == _PULSAR
        if is_pulsar:
            payload_at = behind
            (count,) = COUNT.unpack_from(body, behind - COUNT.size)
            base_offset = last_offset + 1 - count
            is_whole = (
                body[behind - COUNT_BYTES] == COUNT_TAG
                and 0 <= base_offset <= last_offset
                and len(body) - payload_at >= PULSAR_BYTES_MIN
            )
        else:  # `word` is the size of the metadata
            payload_at = behind + _U32.size + word
            (base_offset,) = _BASE_OFFSET.unpack_from(body, payload_at)
            format_at = behind + FORMAT_AT
            is_whole = (
                bytes(body[format_at : format_at + len(FORMAT)]) == FORMAT
                and len(body) - payload_at >= BATCH_BYTES_MIN
            )
    except (StructError, IndexError) as error:
        raise WireError("bytes that are no entry") from error
    if not is_whole or magic != _ENTRY:
        raise WireError("bytes that are no entry")
    return is_pulsar, payload_at, base_offset


class Origin(NamedTuple):
    """Where an entry was before compaction moved it, and until when (ms) it keeps what is to go; 0: not known yet."""

    ledger_id: int
    entry_id: int
    keep_until_ms: int


def origin_of(body: memoryview) -> Origin | None:
    """Of an entry that was moved; None of any other.  `body` begins with the broker's metadata: see `split_entry`."""
    _, size = ENTRY_HEAD.unpack_from(body)
    if size < MOVED_METADATA_BYTES_MIN:
        return None
    first, keep_until_ms, second, ledger_id, third, entry_id, last, _ = MOVED.unpack_from(
        body, ENTRY_HEAD.size + size - MOVED.size
    )
    if (first, second, third, last) != MOVED_TAGS:
        return None
    return Origin(ledger_id, entry_id, keep_until_ms)


def copied_from(body: memoryview) -> tuple[int, int] | None:
    """(ledger id, entry id) that an entry has in the cluster from which a link has copied it; None of any other.

    `body` begins with the broker's metadata: see `split_entry`.
    """
    _, size = ENTRY_HEAD.unpack_from(body)
    behind = MOVED.size if origin_of(body) is not None else COUNT_BYTES
    if size < COPIED.size + behind:
        return None
    first, ledger_id, second, entry_id = COPIED.unpack_from(
        body, ENTRY_HEAD.size + size - behind - COPIED.size
    )
    return (ledger_id, entry_id) if (first, second) == COPIED_TAGS else None

"""The bytes of segment files, which the store writes and other processes read; all integers big-endian.

docs/internals/disk-format.md explains them; golden files in tests/unit/storage/golden have examples.  `wire/stored.py`
has the bytes of a record.

Segment: records side by side from position 0.  While its ledger is open, the bytes after the position noted in the
catalogue have no meaning.  Sealing adds a footer at the next multiple of `BLOCK_BYTES`, which ends the file:

     0  ...  points            point_count index points of 32 bytes
        ...  zero              up to the trailer
    -64 4s   magic             b"MGSF"
    -60 u16  version           1
    -58 u16  zero
    -56 u64  ledger_id
    -48 u64  entry_count
    -40 u64  data_bytes        where the records end
    -32 i64  last_offset
    -24 i64  max_timestamp_ms
    -16 u32  point_count
    -12 u32  points_crc32c     of the points
     -8 u32  zero
     -4 u32  crc32c            of the trailer up to here

Index point: where a stretch of at least `INDEX_STEP_BYTES` begins (or of one entry, if that is longer).

     0  i64  entry_id          the first entry of the stretch
     8  i64  position          where it begins in the segment
    16  i64  offset_before     last_offset of the entry before it; NOTHING_BEFORE when there is none
    24  i64  timestamp_before  greatest max_timestamp_ms of all entries before it; NOTHING_BEFORE when there
    is none

The folder two levels above a segment has a file `ID_FILE` with the store's id, a UUID in its usual form.
"""

import re
import sys
from array import array
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.storage.blocks import align_up

INDEX_STEP_BYTES: Final = 32 * 1024
NOTHING_BEFORE: Final = -(1 << 63)

TRAILER: Final = Struct(">4sHHQQQqqIIII")
TRAILER_BYTES: Final = 64
TRAILER_MAGIC: Final = b"MGSF"
assert TRAILER.size == TRAILER_BYTES

POINT_BYTES: Final = 32
VERSION: Final = 1  # of footers

_SEGMENT_NAME: Final = re.compile(r"([0-9a-f]{16})\.segment")

ID_FILE: Final = "store-id"
ID_BYTES: Final = 36


def points_bytes(columns: "tuple[array[int], array[int], array[int], array[int]]") -> bytes:
    """Index points in their form on disk, from four columns of equal length."""
    count = len(columns[0])
    woven = array("q", bytes(POINT_BYTES * count))
    for number, column in enumerate(columns):
        woven[number::4] = column
    if sys.byteorder == "little":
        woven.byteswap()
    return woven.tobytes()


def points_columns(data: bytes) -> "tuple[array[int], array[int], array[int], array[int]]":
    """The four columns of `points_bytes`."""
    woven = array("q", data)
    if sys.byteorder == "little":
        woven.byteswap()
    return woven[0::4], woven[1::4], woven[2::4], woven[3::4]


def footer(
    ledger_id: int, entry_count: int, data_bytes: int, last_offset: int, max_timestamp_ms: int, points: bytes
) -> bytes:
    """Everything after the records of a sealed segment; the file's size is then a multiple of `BLOCK_BYTES`."""
    trailer = TRAILER.pack(
        TRAILER_MAGIC,
        VERSION,
        0,
        ledger_id,
        entry_count,
        data_bytes,
        last_offset,
        max_timestamp_ms,
        len(points) // POINT_BYTES,
        crc32c(points),
        0,
        0,
    )
    trailer = trailer[:-4] + crc32c(trailer[:-4]).to_bytes(4, "big")
    return points + bytes(align_up(len(points) + TRAILER_BYTES) - TRAILER_BYTES - len(points)) + trailer


def segment_name(ledger_id: int) -> str:
    return f"{ledger_id:016x}.segment"


def segment_ledger(name: str) -> int | None:
    """The id of the ledger whose segment has this file name; None for any other file."""
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match[1], 16) if match else None

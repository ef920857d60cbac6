"""The journal's rounds as bytes: a header, followed by records."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.arena import map_memory
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.format import (
    ROUND,
    ROUND_BYTES,
    ROUND_MAGIC,
    ROUND_VERSIONS,
    UNSYNCED,
    round_header,
)
from magnetar.storage.local.kernel_writes import address_of
from magnetar.storage.local.ledger import Queued
from magnetar.storage.local.one_bit import CHECKSUM_BITS, wrong_bit
from magnetar.wire.stored import RECORD, RECORD_BYTES, RECORD_START

_PADDING: Final = bytes(BLOCK_BYTES)


class Round:
    """An aligned buffer that fills with records and is written as a whole."""

    __slots__ = ("address", "buffer", "checksums", "end", "entries", "sequence")

    def __init__(self, capacity: int) -> None:
        self.buffer = memoryview(map_memory(capacity))
        self.address = address_of(self.buffer)
        self.end = ROUND_BYTES
        self.checksums = bytearray()
        self.entries: list[Queued] = []
        self.sequence = 0

    def put(self, entry: Queued) -> bool:
        """Copy a record into the round; false if it does not fit."""
        position = self.end
        end = position + RECORD_BYTES + entry.size
        buffer = self.buffer
        if end > len(buffer):
            return False
        header, parts = entry.header, entry.parts
        buffer[position : position + RECORD_BYTES] = header
        position += RECORD_BYTES
        for part in parts:
            stop = position + len(part)
            buffer[position:stop] = part
            position = stop
        assert position == end
        self.end = end
        self.checksums += header[4:8]
        self.entries.append(entry)
        return True

    def finish(self, epoch: int, sequence: int, salt: int, flags: int) -> memoryview:
        """Write the header and the padding; returns the bytes of the whole round."""
        self.sequence = sequence
        buffer, end = self.buffer, self.end
        size = align_up(end)
        digest = crc32c(self.checksums)
        buffer[:ROUND_BYTES] = round_header(
            epoch, sequence, end - ROUND_BYTES, len(self.entries), digest, salt, flags
        )
        buffer[end:size] = _PADDING[: size - end]
        return buffer[:size]

    def clear(self) -> None:
        self.end = ROUND_BYTES
        self.checksums.clear()
        self.entries = []


class RoundHead(NamedTuple):
    epoch: int
    sequence: int
    length: int
    record_count: int
    digest: int
    salt: int
    is_synced: bool
    version: int

    def is_of_the_same_use(self, other: "RoundHead") -> bool:
        """Whether both rounds were written in the same use of a file."""
        return self.epoch == other.epoch and self.salt == other.salt


class Record(NamedTuple):
    """`body` is a view of the whole file's buffer."""

    header: bytes
    size: int
    ledger_id: int
    entry_id: int
    last_offset: int
    max_timestamp_ms: int
    body: memoryview


def parse_head(block: memoryview) -> RoundHead | None:
    """The round header in `block`; None if it has none that is whole."""
    magic, version, flags, epoch, sequence, length, count, digest, salt, crc = ROUND.unpack_from(block)
    if magic != ROUND_MAGIC or version not in ROUND_VERSIONS or crc != crc32c(block[: ROUND_BYTES - 4]):
        return None
    return RoundHead(epoch, sequence, length, count, digest, salt, not flags & UNSYNCED, version)


def parse_round(head: RoundHead, data: memoryview) -> list[Record] | None:
    """The records of a round; None if any byte of it is not what was written."""
    records: list[Record] = []
    checksums = bytearray()
    at = 0
    end = len(data)
    unpack = RECORD.unpack_from
    while at < end:
        body = at + RECORD_BYTES
        if body > end:
            return None
        size, crc, ledger_id, entry_id, last_offset, timestamp = unpack(data, at)
        stop = body + size
        if stop > end or crc32c(data[at + 8 : stop]) != crc:
            return None
        header = bytes(data[at:body])
        checksums += header[4:8]
        records.append(Record(header, size, ledger_id, entry_id, last_offset, timestamp, data[body:stop]))
        at = stop
    if len(records) != head.record_count or crc32c(checksums) != head.digest:
        return None
    return records


class Mended(NamedTuple):
    """What a round had before one of its bits changed."""

    head: RoundHead
    records: list[Record]
    bits: int
    """The length of what the checksum covers that has told the bit, the checksum included."""
    moves_record: bool = False
    """Whether the bit says which ledger a record belongs to."""


def mend_head(block: memoryview) -> RoundHead | None:
    """The round header in `block`, which is not whole, if only one bit of it is wrong.  `block` stays as it is."""
    covered = ROUND_BYTES - 4
    bit = wrong_bit(block[:covered], int.from_bytes(block[covered:ROUND_BYTES], "big"))
    if bit is None:
        return None
    mended = bytearray(block[:ROUND_BYTES])
    _turn(memoryview(mended), bit if bit < 8 * covered else _bit_of_integer(covered, bit - 8 * covered))
    return parse_head(memoryview(mended))


def mend_records(head: RoundHead, data: memoryview) -> Mended | None:
    """The round whose header is whole and whose records are not, if only one bit of them is wrong.

    `data` gets the right bit then, and stays as it is otherwise.
    """
    at = _first_damaged(data)
    if at is None:
        return None
    for bit, bits in _suspects(data, at):
        _turn(data, bit)
        records = parse_round(head, data)
        if records is not None:
            return Mended(head, records, bits, at + 8 <= bit // 8 < at + 16)
        _turn(data, bit)
    return None


def _first_damaged(data: memoryview) -> int | None:
    """Where the first record begins that is not whole; None if they all are, or its header is cut off."""
    at = 0
    while at + RECORD_BYTES <= len(data):
        size, crc = RECORD_START.unpack_from(data, at)
        stop = at + RECORD_BYTES + size
        if stop > len(data) or crc32c(data[at + 8 : stop]) != crc:
            return at
        at = stop
    return None


def _suspects(data: memoryview, at: int) -> Iterator[tuple[int, int]]:
    """The bits of which each alone may have spoiled the record at `at`, and how many its checksum covers."""
    size, crc = RECORD_START.unpack_from(data, at)
    for place in range(32):  # the length has no checksum; only the right one fits the record's
        other = size ^ (1 << place)
        stop = at + RECORD_BYTES + other
        if stop <= len(data) and crc32c(data[at + 8 : stop]) == crc:
            yield _bit_of_integer(at, place), 8 * (stop - at)
    covered = data[at + 8 : at + RECORD_BYTES + size]
    if len(covered) == RECORD_BYTES - 8 + size:
        bit = wrong_bit(covered, crc)
        if bit is not None:
            bits = 8 * len(covered)
            place = 8 * (at + 8) + bit if bit < bits else _bit_of_integer(at + 4, bit - bits)
            yield place, bits + CHECKSUM_BITS


def _bit_of_integer(position: int, place: int) -> int:
    """Bit `place` of the big-endian u32 at byte `position`."""
    return 8 * (position + 3 - place // 8) + place % 8


def _turn(data: memoryview, bit: int) -> None:
    data[bit // 8] ^= 1 << bit % 8

"""The journal's rounds as bytes: a header, followed by records."""

from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.arena import map_memory
from magnetar.storage.local.format import (
    BLOCK_BYTES,
    RECORD,
    RECORD_BYTES,
    ROUND,
    ROUND_BYTES,
    ROUND_MAGIC,
    ROUND_VERSIONS,
    UNSYNCED,
    align_up,
    round_header,
)
from magnetar.storage.local.kernel_writes import address_of
from magnetar.storage.local.ledger import Queued

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

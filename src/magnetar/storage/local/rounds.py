"""The journal's rounds as bytes: a header, and the records behind it."""

from typing import NamedTuple

from crc32c import crc32c

from magnetar.storage.local.format import (
    RECORD,
    RECORD_BYTES,
    ROUND,
    ROUND_BYTES,
    ROUND_MAGIC,
    ROUND_VERSIONS,
    UNSYNCED,
)


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
        """Both were written between the same start of a file and its next."""
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
    """A round's header, when it is one."""
    magic, version, flags, epoch, sequence, length, count, digest, salt, crc = ROUND.unpack_from(block)
    if magic != ROUND_MAGIC or version not in ROUND_VERSIONS or crc != crc32c(block[: ROUND_BYTES - 4]):
        return None
    return RoundHead(epoch, sequence, length, count, digest, salt, not flags & UNSYNCED, version)


def parse_round(head: RoundHead, data: memoryview) -> list[Record] | None:
    """The records of a round; None when any of it is not what was written."""
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

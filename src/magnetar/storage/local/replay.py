"""Reading the journal back after a stop, however sudden.

Two steps: `survey` looks at the first round of every file and orders them; `replay` yields the records of all
rounds behind the last checkpoint.  The journal ends at the first round that is not whole.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.arena import map_memory
from magnetar.base.errors import StorageError
from magnetar.storage.local.disk import Disk
from magnetar.storage.local.format import (
    BLOCK_BYTES,
    RECORD,
    RECORD_BYTES,
    ROUND,
    ROUND_BYTES,
    ROUND_MAGIC,
    VERSION,
    align_up,
)
from magnetar.storage.local.ring import RingFile

log = logging.getLogger(__name__)

READ_BYTES: Final = 4 << 20


class RoundHead(NamedTuple):
    epoch: int
    sequence: int
    length: int
    record_count: int
    digest: int


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
    magic, version, _, epoch, sequence, length, count, digest, crc = ROUND.unpack_from(block)
    if magic != ROUND_MAGIC or version != VERSION or crc != crc32c(block[: ROUND_BYTES - 4]):
        return None
    return RoundHead(epoch, sequence, length, count, digest)


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


class _Reader:
    """A journal file, read in large steps only as far as somebody looks."""

    def __init__(self, ring_file: RingFile) -> None:
        self._file = ring_file.file
        self._filled = 0
        self.buffer = memoryview(map_memory(ring_file.size))

    def view(self, start: int, end: int) -> memoryview:
        while self._filled < end:
            step = self.buffer[self._filled : self._filled + READ_BYTES]
            if self._file.read(step, self._filled) < len(step):
                raise StorageError("a journal file is shorter than it was")
            self._filled += len(step)
        return self.buffer[start:end]


def survey(
    disk: Disk, directory: Path, *, direct: bool, sync_writes: bool
) -> list[tuple[RingFile, RoundHead | None]]:
    """Every journal file, opened, with the head of its first round."""
    found = []
    block = memoryview(map_memory(BLOCK_BYTES))
    for name in disk.names(directory):
        if not name.endswith(".journal"):
            continue
        path = directory / name
        file = disk.open(path, direct=direct, sync_writes=sync_writes)
        size = file.size()
        if size < BLOCK_BYTES or size % BLOCK_BYTES:
            file.close()
            raise StorageError(f"{path} is damaged: a journal file has a multiple of {BLOCK_BYTES} bytes")
        file.read(block, 0)
        found.append((RingFile(path, file, size), parse_head(block)))
    return found


def replay(
    files: list[tuple[RingFile, RoundHead | None]], checkpoint: int
) -> Iterator[tuple[RoundHead, list[Record]]]:
    """Rounds behind `checkpoint`, in order.  Sets `epoch`, `position` and `last_sequence` of the files it
    reads.

    Raises:
        StorageError: an acknowledged round is missing between others that are there.
    """
    used = sorted(((file, head) for file, head in files if head is not None), key=lambda pair: pair[1].epoch)
    sequence = checkpoint
    for number, (file, first) in enumerate(used):
        file.epoch = first.epoch
        following = used[number + 1][1].sequence if number + 1 < len(used) else None
        if following is not None and following <= checkpoint + 1:
            file.last_sequence = following - 1
            continue
        if first.sequence > sequence + 1:
            raise StorageError(
                f"the journal is damaged: round {sequence + 1} is missing before {file.path.name}"
            )
        for head, records in _rounds(file, first, following, checkpoint):
            file.last_sequence = head.sequence
            if head.sequence > checkpoint:
                sequence = head.sequence
                yield head, records


def _rounds(
    file: RingFile, first: RoundHead, following: int | None, checkpoint: int
) -> Iterator[tuple[RoundHead, list[Record]]]:
    reader = _Reader(file)
    position = 0
    expected = first.sequence
    while position + ROUND_BYTES <= file.size and (following is None or expected < following):
        head = parse_head(reader.view(position, position + ROUND_BYTES))
        if head is None or head.epoch != first.epoch or head.sequence != expected:
            break
        end = position + ROUND_BYTES + head.length
        if end > file.size:
            break
        records: list[Record] | None = []
        if head.sequence > checkpoint:
            records = parse_round(head, reader.view(position + ROUND_BYTES, end))
        if records is None:
            log.warning("journal cut at its torn tail: file=%s round=%d", file.path.name, head.sequence)
            break
        yield head, records
        position = align_up(end)
        file.position = position
        expected += 1

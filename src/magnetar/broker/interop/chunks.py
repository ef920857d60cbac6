"""Finds the chunks of a message, backwards from the last one.

If a producer is alone on its partition, its chunks follow one another; entries of other producers may lie in between.
The search first looks at exactly as many offsets before the last chunk as the message has other chunks.  If they are
not there, it looks at more and more, up to a limit.  A message with a chunk that was never sent must not cost a search
through the whole log.
"""

import asyncio
from typing import Final

from magnetar.broker.interop.partition import ConvertedLog
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX
from magnetar.wire.pulsar.entry import EntryView, read_entry

_WINDOWS: Final = (64, 1024, 16_384)  # offsets
_READ_BYTES: Final = 4 << 20
_SEARCH_BYTES_MAX: Final = 64 << 20  # read in addition to twice the message itself
_AT_A_TIME: Final = 256  # entries in one step, before the event loop serves others


async def earlier_chunks(log: ConvertedLog, last: Entry, view: EntryView) -> list[memoryview] | None:
    """The payloads of all chunks before `last`, in order; None if some are missing.

    Raises:
        EntryCorrupt: an entry in the range is damaged.
        StorageError: the log cannot be read.
    """
    metadata = view.metadata
    count = metadata.num_chunks_from_msg - 1
    if not 0 < metadata.total_chunk_msg_size <= RECORDS_BYTES_MAX or count > _WINDOWS[-1]:
        return None
    budget = _SEARCH_BYTES_MAX + 2 * metadata.total_chunk_msg_size
    for window in (count, *(window for window in _WINDOWS if window > count)):
        begin = max(log.log_start, last.base_offset - window)
        found, spent = await _chunks_between(log, begin, last.base_offset, metadata.uuid, budget)
        if len(found) == count:
            return [found[chunk_id] for chunk_id in range(count)] if set(found) == set(range(count)) else None
        budget -= spent
        if begin == log.log_start or budget <= 0:
            break
    return None


async def _chunks_between(
    log: ConvertedLog, offset: int, end: int, uuid: str, budget: int
) -> tuple[dict[int, memoryview], int]:
    """Returns payloads by chunk id, and the bytes read.  A uuid can come again: its last beginning counts."""
    found: dict[int, memoryview] = {}
    spent = looked_at = 0
    while offset < end and spent < budget:
        entries = log.read_cached(offset, _READ_BYTES, log.high_watermark)
        if entries is None:
            entries = await log.read(offset, _READ_BYTES)
        for entry in entries:
            offset = entry.last_offset + 1
            spent += len(entry.payload)
            if offset > end:
                break
            looked_at += 1
            if looked_at % _AT_A_TIME == 0:
                await asyncio.sleep(0)
            if entry.kind is not EntryKind.PULSAR or entry.last_offset != entry.base_offset:
                continue
            view = read_entry(entry.payload, verify=False)
            if view.is_chunk and view.metadata.uuid == uuid:
                if view.metadata.chunk_id == 0:
                    found.clear()
                found[view.metadata.chunk_id] = view.payload
    return found, spent

"""The stored body of an entry that compaction has moved to another ledger: it keeps the entry's old position.

Clients know an entry by the ledger id and entry id that it got when it was appended, so it keeps both.  Four fields
of fixed size stand at the end of the broker entry metadata (`entry_format.py`), so a reader finds them by the
metadata's own size::

    61 i64   12: until when (ms since the epoch) it keeps tombstones, or itself as a marker; 0 while that is not known
    69 i64   13: ledger id
    71 i64   14: entry id
    7d u32   15: how many offsets the entry takes, as in every entry of a Pulsar client

Numbers are little-endian, as in protobuf.  Before these fields are the broker's time and the index, unchanged.  After
them is the entry itself, unchanged or with only the messages that compaction has kept.
"""

from typing import Final

from magnetar.storage.store import Buffer
from magnetar.wire.stored import COUNT_BYTES, ENTRY_HEAD, MOVED, MOVED_TAGS, PULSAR_MAGIC, Origin, origin_of

_MAGIC_BYTES: Final = len(PULSAR_MAGIC)


def moved(body: memoryview, origin: Origin, count: int, rest: Buffer) -> tuple[bytes, Buffer]:
    """The body of an entry that takes `count` offsets, in two parts.

    `body` is its old body, from which it keeps the broker's time and the index; `rest` follows the broker entry
    metadata.
    """
    magic, size = ENTRY_HEAD.unpack_from(body)
    end = ENTRY_HEAD.size + size
    if origin_of(body) is not None:
        end -= MOVED.size
    elif bytes(body[end : end + _MAGIC_BYTES]) == PULSAR_MAGIC:
        end -= COUNT_BYTES
    known = bytes(body[ENTRY_HEAD.size : end])
    first, second, third, last = MOVED_TAGS
    fields = MOVED.pack(
        first, origin.keep_until_ms, second, origin.ledger_id, third, origin.entry_id, last, count
    )
    return ENTRY_HEAD.pack(magic, len(known) + len(fields)) + known + fields, rest


def behind_metadata(body: memoryview) -> memoryview:
    """What follows the broker entry metadata."""
    _, size = ENTRY_HEAD.unpack_from(body)
    return body[ENTRY_HEAD.size + size :]

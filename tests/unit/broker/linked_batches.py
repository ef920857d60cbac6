"""Batches as a link sends them."""

from magnetar.wire.convert.batches import batch_of
from magnetar.wire.convert.plain import Records, record

NOW_MS = 1_700_000_000_000


def copied(offset: int, count: int = 1, name: bytes = b"") -> memoryview:
    """A batch of records with these offsets, whose values say them."""
    parts = [
        part
        for delta in range(count)
        for part in record(delta, delta, b"k", name + b"%d" % (offset + delta), [(b"h", b"x")])
    ]
    return batch_of(Records(b"".join(parts), count, NOW_MS, NOW_MS + count - 1), offset, stamped=False)

"""A copied record, and the record batches that records with their offsets make.

A batch has records whose offsets follow one another without a gap, because the server's readers count on that
(`broker/log/linked.py`).  Where an offset is missing, the next batch begins.  So a topic without gaps comes in large
batches, and one that compaction has thinned out in many small ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from magnetar.wire.convert.batches import batch_of
from magnetar.wire.convert.plain import Records, record

BATCH_RECORDS_MAX: Final = 10_000
BATCH_BYTES: Final = 512 << 10
NO_TIME: Final = -1


class Record(NamedTuple):
    """A record, as a function for `--mask` gets and returns it.

    `headers` are pairs (name, content), in order.  `timestamp_ms` is -1 if the record has none.  `stamped`: the
    source's broker has set the time, not the producer.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    stamped: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of its key, value and headers."""
        headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def batches_of(records: Iterable[Record]) -> Iterator[memoryview]:
    """The batches of records of one partition, whose offsets ascend."""
    run: list[Record] = []
    size = 0
    for one in records:
        if run and (not _continues(run[-1], one) or len(run) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES):
            yield _batch(run)
            run, size = [], 0
        run.append(one)
        size += one.size_bytes
    if run:
        yield _batch(run)


def _continues(last: Record, one: Record) -> bool:
    """Whether a record can be in the batch of the one before it: records that a broker has stamped share their time."""
    if one.offset != last.offset + 1 or one.stamped is not last.stamped:
        return False
    return not one.stamped or one.timestamp_ms == last.timestamp_ms


def _batch(run: Sequence[Record]) -> memoryview:
    base_ms = run[0].timestamp_ms
    parts = []
    for delta, one in enumerate(run):
        headers = [(name.encode(), content) for name, content in one.headers]
        parts += record(one.timestamp_ms - base_ms, delta, one.key, one.value, headers)
    newest_ms = max(one.timestamp_ms for one in run)
    records = Records(b"".join(parts), len(run), base_ms, newest_ms)
    return batch_of(records, run[0].offset, stamped=run[0].stamped)

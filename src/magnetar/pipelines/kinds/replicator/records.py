"""From slices of a topic to chunks of records: a task sends a chunk at once, and again until it arrives."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipelines.kinds.replicator.fields import VERSION, FieldReader
from magnetar.replicators.provider import ReplicatedRecord

COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
CHUNK_BYTES: Final = 16 << 20
CHUNK_RECORDS: Final = 20_000


class Readable(Protocol):
    """A slice of one partition (`connector.read.slices.Slice`)."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def from_offset(self) -> int: ...

    @property
    def to_offset(self) -> int: ...

    def record_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]: ...


def chunks(part: Readable, fields: FieldReader | None = None) -> Iterator[list[ReplicatedRecord]]:
    """The records of a slice, in order; no chunk is empty, or much larger than the constants say."""
    wanted = [*COLUMNS, VERSION] if fields is not None else [*COLUMNS]
    waiting: list[ReplicatedRecord] = []
    size = 0
    for batch in part.record_batches(wanted):
        for rows in _pieces(batch):
            if waiting and (size + rows.nbytes > CHUNK_BYTES or len(waiting) + rows.num_rows > CHUNK_RECORDS):
                yield waiting
                waiting, size = [], 0
            found = records(rows, part.partition)
            if fields is not None:
                contents = fields.read(part.topic, rows)
                found = (one._replace(fields=own) for one, own in zip(found, contents, strict=True))
            waiting += found
            size += rows.nbytes
    if waiting:
        yield waiting


def records(rows: pa.RecordBatch, partition: int) -> Iterable[ReplicatedRecord]:
    """The rows of one partition as records."""
    timestamps = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    return map(
        ReplicatedRecord,
        repeat(partition),
        rows.column("offset").to_pylist(),
        timestamps.tolist(),
        rows.column("key").to_pylist(),
        rows.column("value").to_pylist(),
        _headers(rows.column("headers")),
    )


def rows_of(found: Sequence[ReplicatedRecord]) -> pa.RecordBatch:
    """Records as rows again, with the columns that `records` reads."""
    from magnetar.pipelines.connector.read.slices import arrow_schema

    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in found]
    columns: dict[str, list[Any]] = {
        "key": [record.key for record in found],
        "value": [record.value for record in found],
        "offset": [record.offset for record in found],
        "timestamp": [record.timestamp_ms * 1000 for record in found],
        "headers": headers,
    }
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(COLUMNS))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for first in range(0, batch.num_rows, CHUNK_RECORDS):
        yield batch.slice(first, CHUNK_RECORDS)


def _headers(column: pa.ListArray) -> Iterable[Sequence[tuple[str, bytes | None]]]:
    if not pc.any(pc.greater(pc.fill_null(pc.list_value_length(column), 0), 0)).as_py():
        return repeat(())
    names, values = column.flatten().flatten()
    pairs = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    counts = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    return [pairs[first:end] for first, end in pairwise(ends)]

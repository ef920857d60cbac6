"""Batch reads: they ask the broker once, and then tasks read files.

Planning decides what a query reads: the offsets of its options, narrowed by its filters, up to the log's end at that
moment.  A lease keeps the files until the tasks have read them.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from magnetar.client.errors import ClientError
from magnetar.client.login import Server
from magnetar.client.rest import Located, Range, Topic
from magnetar.pipelines.connector.read.address import find
from magnetar.pipelines.connector.read.catalogue import Catalogue
from magnetar.pipelines.connector.read.client import LEASE_S, client_of
from magnetar.pipelines.connector.read.errors import DataLost, TopicError
from magnetar.pipelines.connector.read.filters import OFFSET_MAX, OFFSET_MIN, Restriction
from magnetar.pipelines.connector.read.options import ReadMode, ReadOptions
from magnetar.pipelines.connector.read.pieces import Scan
from magnetar.pipelines.connector.read.plan import Piece, Task, batch_tasks, pieces_of
from magnetar.pipelines.connector.read.positions import (
    Offsets,
    Position,
    TopicPartition,
    check_complete,
    resolve_end,
    resolve_start,
)
from magnetar.pipelines.connector.read.schema import DESCRIPTOR_COLUMNS
from magnetar.pipelines.connector.read.slices import Slice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

END_LEASE_WITHIN_S: Final = 1.0


@dataclass
class SliceTask(InputPartition):
    """What one Spark task reads, in order.  `ends_lease`: no other task uses its lease."""

    scan: Scan
    pieces: Task
    ends_lease: bool = False

    def slices(self) -> Iterator[Slice]:
        return (Slice(self.scan, piece) for piece in self.pieces)


class BatchReader(DataSourceReader):
    """A batch query.  Spark plans it once, in a process of its own; `read` runs in each task, on a copy."""

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._restriction = Restriction()

    def partitions(self) -> Sequence[InputPartition]:
        tasks = plan_batch(self._options, self._restriction)
        return list(tasks) if tasks else [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self._schema, descriptors=self._options.descriptors)


class FilteringBatchReader(BatchReader):
    """The same with filters.  It is a class of its own, because Spark refuses a reader that takes filters if these
    are turned off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._restriction.push(filters)

    def __getstate__(self) -> dict[str, object]:
        # This is sent to tasks after planning, and a restriction contains functions, which cannot be pickled.
        return {**self.__dict__, "_restriction": Restriction()}


def plan_batch(options: ReadOptions, restriction: Restriction) -> list[SliceTask]:
    """The tasks of a batch.  Raises: OptionError, SourceError."""
    catalogue = Catalogue(find(options.address), options.timeout_s, committed=options.committed)
    topics = catalogue.partitions(options.selection)
    if not topics:
        raise TopicError(
            f"option {options.selection.option}: no topic matches {options.selection.pattern!r} at {catalogue.url}"
        )
    starts, ends = _bounds(options, catalogue, topics)
    if restriction.empty:
        return []
    wanted: dict[TopicPartition, tuple[int, int]] = {}
    for each, start in starts.items():
        first, end = max(start, restriction.from_offset), min(ends[each], restriction.to_offset)
        if first < end and restriction.wants(each.topic, each.partition):
            wanted[each] = (first, end)
    if not wanted:
        return []
    ranges = [Range(topics[each].full, each.partition, *bounds) for each, bounds in wanted.items()]
    leased_at = time.time()
    found = catalogue.ask(lambda client: client.segments(ranges, lease_s=LEASE_S))
    pieces: list[Piece] = []
    for (each, (first, end)), answer in zip(wanted.items(), found.partitions, strict=True):
        first = surviving(answer, each, first, end, fail=options.fail_on_data_loss)
        if first < end:
            pieces += pieces_of(
                answer,
                first,
                end,
                files=options.mode is not ReadMode.BROKER,
                partitioned=topics[each].partitioned,
            )
    scan = scan_of(options, catalogue.server, found.store, found.lease, leased_at, restriction)
    tasks = batch_tasks(
        pieces,
        cores=os.cpu_count() or 1,
        tasks_min=options.partitions_min,
        records_max=options.records_per_partition_max,
    )
    # Spark does not tell a source when a batch ends.  A single task ends the lease; with several, the lease expires.
    return [SliceTask(scan, task, ends_lease=len(tasks) == 1 and not options.descriptors) for task in tasks]


def scan_of(
    options: ReadOptions,
    server: Server,
    store: str | None,
    lease: str | None,
    leased_at: float,
    restriction: Restriction | None = None,
) -> Scan:
    first = restriction.from_timestamp_ms if restriction is not None else OFFSET_MIN
    end = restriction.to_timestamp_ms if restriction is not None else OFFSET_MAX
    return Scan(
        url=server.url,
        context=server.context,
        store=store,
        lease=lease,
        leased_at=leased_at,
        mode=options.mode,
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
        timeout_s=options.timeout_s,
        from_timestamp_ms=None if first == OFFSET_MIN else first,
        to_timestamp_ms=None if end == OFFSET_MAX else end,
    )


def surviving(answer: Located, each: TopicPartition, first: int, end: int, *, fail: bool) -> int:
    """The first offset that still exists, of those from `first` (inclusive) to `end` (exclusive).

    Raises:
        TopicError: the partition is gone.
        DataLost: some are gone, and `fail` is true.
    """
    if answer.error is not None:
        if fail:
            raise TopicError(
                f"topic {each.topic} partition {each.partition} cannot be read: {answer.reason};"
                " set failOnDataLoss to false to go on without it"
            )
        return end
    if answer.earliest <= first:
        return first
    if fail:
        raise DataLost(
            f"topic {each.topic} partition {each.partition}: offsets {first} to {min(answer.earliest, end) - 1}"
            " have been deleted (retention, or the topic was made anew);"
            " set failOnDataLoss to false to read what is left"
        )
    return min(answer.earliest, end)


def _bounds(
    options: ReadOptions, catalogue: Catalogue, topics: Mapping[TopicPartition, Topic]
) -> tuple[Offsets, Offsets]:
    start, end = options.start, options.end
    if start.each or end.each:
        names = catalogue.names(options.selection)
        start, end = start.renamed(names), end.renamed(names)
        check_complete(options.start_option, start, topics)
        check_complete(options.end_option, end, topics)
    starts = resolve_start(
        options.start_option,
        start,
        catalogue.limits(topics, times_of(start, topics)),
        latest_when_no_timestamp=options.latest_when_no_timestamp,
    )
    # Asked last, so that a start by time cannot be after it.
    ends = resolve_end(options.end_option, end, catalogue.limits(topics, times_of(end, topics)))
    return starts, ends


def times_of(position: Position, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The times by which partitions must be looked up."""
    times = ((each, position.timestamp_of(each)) for each in partitions)
    return {each: time_ms for each, time_ms in times if time_ms is not None}


# -- in a task


def read_task(
    partition: InputPartition, schema: "StructType", *, descriptors: bool
) -> "Iterator[pa.RecordBatch]":
    """The rows of one task, in Arrow batches with the columns of `schema`."""
    if not isinstance(partition, SliceTask):
        return  # nothing to read: Spark makes one partition of none
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    if descriptors:
        yield _descriptors(partition, arrow_schema)
        return
    for part in partition.slices():
        yield from part.record_batches(arrow_schema)
    lease = partition.scan.lease
    if partition.ends_lease and lease is not None:
        with suppress(ClientError):
            client_of(partition.scan.server, END_LEASE_WITHIN_S).end_lease(lease)


def _descriptors(task: SliceTask, schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    slices = list(task.slices())
    columns = {
        "topic": [each.topic for each in slices],
        "partition": [each.partition for each in slices],
        "from_offset": [each.from_offset for each in slices],
        "to_offset": [each.to_offset for each in slices],
        "bytes": [each.size for each in slices],
        "plan": [each.to_bytes() for each in slices],
    }
    assert columns.keys() == DESCRIPTOR_COLUMNS.keys()
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema)

"""Turns Arrow batches into record batches of the right partitions, without Python code for single rows.

Small Arrow batches are collected until each partition can get a batch that is worth its header.  Then the rows of
each partition are selected by number and encoded, in their order.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.producer import BatchProducer, TopicPartition
from magnetar.client.kafka.transactions import Producer
from magnetar.pipelines.connector.columns import from_arrow
from magnetar.pipelines.connector.write.errors import RowError
from magnetar.pipelines.connector.write.options import WriteOptions
from magnetar.pipelines.connector.write.partitioner import NO_PARTITION, Partitioner
from magnetar.pipelines.connector.write.schema import COLUMNS, is_written
from magnetar.wire.columns import Columns, encode
from magnetar.wire.columns import Producer as Stamp

# Bytes of rows to collect; a header has 61 bytes and costs a broker 0.1 ms.
BYTES_PER_PARTITION: Final = 128 << 10
TOGETHER_BYTES_MAX: Final = 16 << 20
_SEQUENCES: Final = 1 << 31


class RowWriter:
    """Writes the rows of one task.

    producer  of the batches; None without idempotence
    before    called with partitions before the first write to them
    """

    def __init__(
        self,
        cluster: Cluster,
        options: WriteOptions,
        producer: Producer | None,
        before: Callable[[Sequence[TopicPartition]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._producer = producer
        self._before = before
        self._partitioner = Partitioner()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._partitions_seen = 1
        self._batches = BatchProducer(
            cluster,
            acks=options.acks,
            transactional_id=None if producer is None else producer.transactional_id,
            request_timeout_ms=options.request_timeout_ms,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
        )
        self.written: dict[TopicPartition, int] = {}
        """The number of rows by partition: sent, and after `flush` acknowledged."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows.  Raises RowError, KafkaClientError."""
        if not rows.num_rows:
            return
        names = [name for name in COLUMNS if name in rows.schema.names and is_written(name, self._options)]
        self._waiting.append(rows.select(names))
        self._waiting_bytes += self._waiting[-1].nbytes
        if self._waiting_bytes >= min(BYTES_PER_PARTITION * self._partitions_seen, TOGETHER_BYTES_MAX):
            self._send()

    def flush(self) -> None:
        """Return when every row is acknowledged.  Raises as `write`."""
        self._send()
        self._batches.flush()

    def close(self) -> None:
        """Forget rows that are not acknowledged."""
        self._batches.close()

    def _send(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        rows = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        try:
            columns = from_arrow(rows, now_ms := time.time_ns() // 1_000_000)
        except ValueError as error:
            raise RowError(str(error)) from error
        chosen = list(self._chosen(rows, columns))
        new = [key for key, _ in chosen if key not in self.written]
        if new and self._before is not None:
            self._before(new)
        for key, numbers in chosen:
            self._encode(key, columns, numbers, now_ms)
        self._partitions_seen = len(self.written)

    def _encode(self, key: TopicPartition, columns: Columns, numbers: Any, now_ms: int) -> None:
        sent = self.written.get(key, 0)
        producer = self._producer
        stamp = None
        if producer is not None:
            is_transactional = producer.transactional_id is not None
            stamp = Stamp(producer.producer_id, producer.epoch, sent % _SEQUENCES, is_transactional)
        batches = encode(
            columns,
            self._options.compression,
            rows=numbers,
            bytes_max=self._options.batch_bytes,
            producer=stamp,
            timestamp_ms=now_ms,
        )
        self.written[key] = sent + (columns.count if numbers is None else len(numbers))
        for batch in batches:
            self._batches.send(*key, batch)

    # --- which row goes where ----------------------------------------------------------------------------------------

    def _chosen(self, rows: pa.RecordBatch, columns: Columns) -> Iterator[tuple[TopicPartition, Any]]:
        """Every partition that gets rows, with their row numbers (None: all rows)."""
        wanted = _wanted(rows)
        for topic, numbers in self._topics(rows):
            count = self._cluster.partition_count(topic)
            if wanted is not None and int(wanted.max()) >= count:
                self._refuse_partition(topic, count, wanted, numbers)
            if count == 1:
                yield (topic, 0), numbers
                continue
            assigned = self._partitioner.assign(count, columns.count, columns.key, wanted)
            yield from _by_partition(topic, assigned, numbers)

    def _topics(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        names = rows.column("topic").dictionary_encode()
        if names.null_count:
            raise RowError("a row has null in the column topic: give it one, or set option topic")
        codes = names.indices.to_numpy()
        for code, topic in enumerate(names.dictionary.to_pylist()):
            yield topic, (None if len(names.dictionary) == 1 else np.flatnonzero(codes == code))

    def _refuse_partition(self, topic: str, count: int, wanted: NDArray[np.int32], numbers: Any) -> None:
        greatest = int((wanted if numbers is None else wanted[numbers]).max())
        if greatest >= count:
            raise RowError(
                f"a row names partition {greatest} of topic '{topic}', which has {count} partitions"
            )


def _wanted(rows: pa.RecordBatch) -> NDArray[np.int32] | None:
    """The partition that each row names; None if there is no such column."""
    if "partition" not in rows.schema.names:
        return None
    column = rows.column("partition")
    lowest = pc.min(column).as_py()
    if lowest is None:
        return None
    if lowest < 0:
        raise RowError(
            f"a row names partition {lowest}: partitions are 0 and above, null leaves the choice to the key"
        )
    wanted: NDArray[np.int32] = pc.fill_null(column, NO_PARTITION).to_numpy(zero_copy_only=False)
    return wanted


def _by_partition(
    topic: str, assigned: NDArray[np.int32], numbers: Any
) -> Iterator[tuple[TopicPartition, Any]]:
    if numbers is not None:
        assigned = assigned[numbers]
    if assigned[0] == assigned[-1] and (assigned == assigned[0]).all():
        yield (topic, int(assigned[0])), numbers
        return
    # With 16 bits numpy sorts by counting, which is fast.
    order = np.argsort(assigned.astype(np.uint16) if assigned.max() < 1 << 16 else assigned, kind="stable")
    ordered = assigned[order]
    cuts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    for begin, end in pairwise(cuts):
        chosen = order[begin:end]
        yield (topic, int(ordered[begin])), chosen if numbers is None else numbers[chosen]

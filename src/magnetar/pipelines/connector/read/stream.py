"""Streams: offsets that Spark keeps, and what each micro-batch reads.

One process plans a query for its whole life.  A trigger asks the broker twice: how far partitions reach
(`latestOffset`), and where the records of the batch are (`partitions`).  Once a second it asks which topics and
partitions exist.

With `predefinedSubscription` a durable position with that name follows the query, so that retention keeps what the
query has not read.  The query moves it to where the next batch begins: everything before that is in Spark's commit
log.  A query that starts without a checkpoint continues at its subscription's position.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from magnetar.client.errors import ClientError, Refused
from magnetar.client.rest import Located, Range, Topic
from magnetar.pipelines.connector.read.address import find
from magnetar.pipelines.connector.read.admission import Patience, at_most, waiting
from magnetar.pipelines.connector.read.catalogue import Catalogue
from magnetar.pipelines.connector.read.client import LEASE_S
from magnetar.pipelines.connector.read.errors import DataLost, SourceError, TopicError
from magnetar.pipelines.connector.read.options import ReadMode, ReadOptions
from magnetar.pipelines.connector.read.plan import Piece, pieces_of, stream_tasks
from magnetar.pipelines.connector.read.positions import (
    Offsets,
    TopicPartition,
    check_complete,
    listed,
    offsets_from_json,
    offsets_to_json,
    resolve_start,
)
from magnetar.pipelines.connector.read.reader import SliceTask, read_task, scan_of, surviving, times_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log: Final = logging.getLogger(__name__)

TOPICS_EVERY_S: Final = 1.0
BROKER_RECORDS_MAX: Final = 20_000  # of a partition: fewer are fetched faster than found in a file,
BROKER_BYTES_MAX: Final = 32 << 20  # unless records are large


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's side of a stream; `read` runs in tasks, on a copy."""

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._state: _Planner | None = None  # created in the process that uses it: it has connections

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}

    @property
    def _planner(self) -> "_Planner":
        if self._state is None:
            self._state = _Planner(self._options)
        return self._state

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return offsets_to_json(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.trigger_offsets_max is not None:
            return ReadMaxRows(self._options.trigger_offsets_max)
        if self._options.trigger_offsets_min is not None:
            return ReadMinRows(self._options.trigger_offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = offsets_from_json(start)
        # Trigger.Once asks for all records, whatever the options say.
        limited = not isinstance(limit, ReadAllAvailable)
        return offsets_to_json(self._planner.latest(begun, limited=limited))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        reached = self._planner.reached
        return offsets_to_json(reached) if reached else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._planner.tasks(offsets_from_json(start), offsets_from_json(end))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self._schema, descriptors=self._options.descriptors)

    def commit(self, end: dict[str, Any]) -> None:
        self._planner.move(offsets_from_json(end))

    def stop(self) -> None:
        if self._state is not None:
            self._state.close()


class _Planner:
    """What a stream remembers between two calls of Spark."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._catalogue = Catalogue(find(options.address), options.timeout_s, committed=options.committed)
        self._topics: dict[TopicPartition, Topic] = {}
        self._topics_at_s = 0.0
        self._patience = Patience(
            options.trigger_offsets_min or 0, options.trigger_delay_max_ms / 1000, time.monotonic()
        )
        self._target: Offsets | None = None  # the end of a run that ends (AvailableNow)
        self._position: Offsets = {}  # the subscription's
        self._lease: str | None = None
        self.reached: Offsets = {}
        """The ends of all partitions when they were last looked at."""

    # -- offsets

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        options = self._options
        topics = self._partitions(all_there=True)
        position = options.start
        if position.each:
            position = position.renamed(self._catalogue.names(options.selection))
            check_complete(options.start_option, position, topics)
        found = resolve_start(
            options.start_option,
            position,
            self._catalogue.limits(topics, times_of(position, topics)),
            latest_when_no_timestamp=options.latest_when_no_timestamp,
        )
        if options.subscription is not None:
            stands = self._catalogue.subscription(options.subscription)
            self._position = {each: offset for each, offset in stands.items() if each in found}
            found |= self._position
            self.move(found)
        return found

    def freeze(self) -> None:
        """From now on the set of partitions and their ends do not change."""
        self._target = self._ends()

    def latest(self, begun: Offsets, *, limited: bool) -> Offsets:
        """The end of the next batch, which begins at `begun`; `begun` itself if there should be none."""
        self.move(begun)
        ends = self._ends() if self._target is None else self._target
        self.reached = ends
        if self._options.fail_on_data_loss:
            self._check_not_gone(begun, ends)
        starts = begun | self._begin([each for each in ends if each not in begun])
        options = self._options
        if limited and options.trigger_offsets_min is not None and self._target is None:
            rows = sum(waiting(starts, ends).values())
            if self._patience.holds_back(rows, time.monotonic()):
                return begun
        if limited and options.trigger_offsets_max is not None:
            ends = at_most(options.trigger_offsets_max, starts, ends)
        elif not options.fail_on_data_loss:
            # A topic that was deleted and created again is read from its end; the records before that are lost.
            begun = {each: offset for each, offset in begun.items() if each in ends}
        return begun | (self._admitted(starts, ends) if options.replicator_rate else ends)

    def _admitted(self, starts: Offsets, ends: Offsets) -> Offsets:
        """The end of what may be read now at the rates of replicators."""
        waits = {each: end for each, end in ends.items() if end > starts[each]}
        if not waits:
            return ends
        assert self._options.subscription is not None, "the options have been checked"
        return ends | self._catalogue.admitted(self._options.subscription, starts, waits)

    def _ends(self) -> Offsets:
        limits = self._catalogue.limits(self._partitions(), all_there=self._options.fail_on_data_loss)
        return {each: limit.end for each, limit in limits.items()}

    def _begin(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Where partitions begin that appeared during the query, which has read nothing of them.

        Raises:
            DataLost: their first records are gone already, and `failOnDataLoss` is true.
        """
        begins = {each: limit.earliest for each, limit in self._catalogue.limits(partitions).items()}
        late = [each for each, offset in begins.items() if offset > 0]
        if late and self._options.fail_on_data_loss:
            raise DataLost(
                f"{listed(late)} appeared while the query ran, and the first records are deleted already;"
                " set failOnDataLoss to false to read what is left"
            )
        return begins

    def _check_not_gone(self, begun: Offsets, ends: Offsets) -> None:
        if gone := [each for each in begun if each not in ends]:
            raise TopicError(
                f"{listed(gone)} was read before and is not there any more (or option"
                f" {self._options.selection.option} no longer means it);"
                " set failOnDataLoss to false to go on without it"
            )
        if back := [each for each, end in ends.items() if end < begun.get(each, end)]:
            raise DataLost(
                f"{listed(back)} ends before offsets that were read already: the topic was made anew;"
                " set failOnDataLoss to false to go on, or use another checkpointLocation to begin again"
            )

    def _partitions(self, *, all_there: bool | None = None) -> dict[TopicPartition, Topic]:
        """The partitions that exist now, or existed a moment ago."""
        now_s = time.monotonic()
        if not self._topics or (self._target is None and now_s - self._topics_at_s >= TOPICS_EVERY_S):
            self._topics = self._catalogue.partitions(
                self._options.selection,
                all_there=self._options.fail_on_data_loss if all_there is None else all_there,
            )
            self._topics_at_s = now_s
        return self._topics

    # -- what a batch reads

    def tasks(self, start: Offsets, end: Offsets) -> list[SliceTask]:
        """The tasks of a batch.  The same offsets always give the same tasks."""
        options = self._options
        bounds = {
            each: (start.get(each), offset) for each, offset in end.items() if start.get(each) != offset
        }
        if not bounds:
            return []
        self._end_lease()
        files = options.mode is not ReadMode.BROKER
        asked = {each: not files or self._is_small(*bounds[each]) for each in bounds}
        leased_at = time.time()
        found = self._catalogue.ask(
            lambda client: client.segments(
                [Range(each.topic, each.partition, *bounds[each]) for each in bounds],
                lease_s=None if all(asked.values()) else LEASE_S,
            )
        )
        self._lease = found.lease
        topics = self._partitions(all_there=False)  # the catalogue has reported what is gone
        pieces: list[Piece] = []
        for (each, (first, offset)), answer in zip(bounds.items(), found.partitions, strict=True):
            begin, stop = self._existing(answer, each, first, offset)
            if begin < stop:
                partitioned = each not in topics or topics[each].partitioned
                own = pieces_of(answer, begin, stop, files=False, partitioned=partitioned)
                if not asked[each] or (files and own[0].size > BROKER_BYTES_MAX):
                    own = pieces_of(answer, begin, stop, partitioned=partitioned)
                pieces += own
        scan = scan_of(options, self._catalogue.server, found.store, found.lease, leased_at)
        tasks = stream_tasks(
            pieces, tasks_min=options.partitions_min, records_max=options.records_per_partition_max
        )
        return [SliceTask(scan, task) for task in tasks]

    def _is_small(self, first: int | None, end: int) -> bool:
        """Whether the broker is faster than looking for the file, opening it and finding the place."""
        return self._options.mode is ReadMode.AUTO and first is not None and end - first <= BROKER_RECORDS_MAX

    def _existing(
        self, answer: Located, each: TopicPartition, first: int | None, end: int
    ) -> tuple[int, int]:
        """The existing part of the offsets from `first` (inclusive) to `end` (exclusive).  Raises DataLost,
        TopicError.
        """
        fail = self._options.fail_on_data_loss
        begin = surviving(answer, each, answer.from_offset if first is None else first, end, fail=fail)
        if answer.error is None and answer.high_watermark < end:
            if fail:
                raise DataLost(
                    f"topic {each.topic} partition {each.partition} ends at {answer.high_watermark}, before"
                    f" offset {end} that the checkpoint has: the topic was made anew;"
                    " use another checkpointLocation to begin again"
                )
            return begin, answer.high_watermark
        return begin, end

    # -- what the broker keeps for the query

    def move(self, offsets: Offsets) -> None:
        """Move the subscription to where the next batch begins."""
        name = self._options.subscription
        if name is None:
            return
        changed = {each: offset for each, offset in offsets.items() if self._position.get(each) != offset}
        try:
            self._catalogue.move_subscription(name, changed)
        except SourceError as error:
            # A topic that is gone, or was created again and is shorter, has no such position.
            if self._options.fail_on_data_loss or not isinstance(error.__cause__, Refused):
                raise
            log.warning("the query could not move subscription %s in every partition: %s", name, error)
        self._position |= changed

    def _end_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(ClientError):  # it ends by itself
                self._catalogue.client.end_lease(lease)

    def close(self) -> None:
        self._end_lease()

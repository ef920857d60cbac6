"""Offsets by time, where records of both protocols have the timestamps that Kafka's clients see.

The log's index has the greatest time that each entry claims.  For a Pulsar entry that is the later one of publish and
event time, but Kafka's clients see the event time if there is one.  So the entry that the index finds is decoded, on
a thread (`log/opening.py`).  If many entries claim times that none of their records has, the look-up reads through
the log.  It ends when its client has given up, too.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.broker.errors import LookupTimedOut
from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.ledger.entry import Entry
from magnetar.wire.kafka.record_scan import Budget, Stamped, first_at, newest
from magnetar.wire.kafka.records import BatchHeader, read_header

T = TypeVar("T")

SEARCH_S_MAX: Final = 30.0
"""In seconds; as long as Kafka's clients wait for an answer by default (`request.timeout.ms`)."""


class TimeLookups:
    """Look-ups in any partition.  `owner` is the client of a look-up: owners take turns in the queue for threads."""

    def __init__(self, clock: Clock, interop: Interop, opener: Opener) -> None:
        self._clock = clock
        self._interop = interop
        self._opener = opener

    async def first_at(self, partition: Partition, timestamp_ms: int, owner: Hashable) -> Stamped | None:
        """The first readable record at or after `timestamp_ms`; None if there is none.

        Raises:
            LookupTimedOut: the look-up takes longer than `SEARCH_S_MAX`.
            WireError, StorageError: a batch on the way cannot be read.
        """
        log = partition.log
        clock = self._clock
        offset = log.log_start
        deadline = clock.monotonic() + SEARCH_S_MAX
        while (entry := await log.entry_for_timestamp(timestamp_ms, offset)) is not None:
            found = await self._look_into(
                partition, entry, owner, partial(_first_at, timestamp_ms=timestamp_ms, offset=offset)
            )
            if found is not None:
                return found
            # The record is below the log's start, or the entry claims a time that none of its records has.
            offset = entry.last_offset + 1
            if clock.monotonic() > deadline:
                raise LookupTimedOut(f"the offset at {timestamp_ms} was not found in {SEARCH_S_MAX:.0f} s")
        return None

    async def newest(self, partition: Partition, owner: Hashable) -> Stamped | None:
        """The first record that has the log's greatest timestamp; None if the log is empty.

        The entry that claims the greatest time may have no record with that time (its event times are before its
        publish time).  Then the result is that entry's greatest time: an exact answer would need to read the whole log.

        Raises as `first_at`.
        """
        greatest = partition.log.max_timestamp_ms
        if greatest < 0:
            return None
        found = await self.first_at(partition, greatest, owner)
        if found is not None:
            return found
        entry = await partition.log.entry_for_timestamp(greatest, partition.log.log_start)
        return None if entry is None else await self._look_into(partition, entry, owner, newest)

    async def _look_into(
        self,
        partition: Partition,
        entry: Entry,
        owner: Hashable,
        look: Callable[[memoryview, BatchHeader, Budget], Stamped | None],
    ) -> Stamped | None:
        interop = self._interop
        formed = interop.kafka_form(partition, [entry]) or await interop.kafka_form_later(partition, [entry])
        batch = formed[0].payload
        header = read_header(batch)
        if header.is_control:
            return None
        return await self._opener.run(owner, partial(look, batch, header))


def _first_at(
    batch: memoryview, header: BatchHeader, budget: Budget, *, timestamp_ms: int, offset: int
) -> Stamped | None:
    return first_at(batch, header, timestamp_ms, offset, budget)

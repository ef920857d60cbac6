"""Reads the logs of partitions for what Pulsar's producers have sent, if a policy turned deduplication on later.

It reads a log when the first producer asks for it, because most logs of a namespace may have no producers of Pulsar.
The partition admits no producer before that has ended, so clients wait, or try again.  All logs take turns, a piece
each: a log of many gigabytes does not hold up the others, and together they have one piece in memory.

If an attempt fails, it fails for all producers that wait for it.  The next attempt continues where this one ended.  It
does not skip an entry that it cannot read, because that may be the last entry of a producer.  The operator puts the
file back, deletes the records up to the entry, or turns deduplication off.
"""

import asyncio
import logging
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, WireError
from magnetar.base.lane import Lane
from magnetar.base.tasks import Tasks
from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.log.deduplication_reading import Reading
from magnetar.broker.log.errors import ProducersNotKnown
from magnetar.broker.log.partition import Partition

_log: Final = logging.getLogger(__name__)


class DeduplicationLearner:
    """See the module's text."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lane = Lane()
        self._tasks = Tasks(_log)
        self._readings: dict[Partition, Reading] = {}  # under way, or failed
        self._attempts: dict[Reading, asyncio.Task[None]] = {}

    @staticmethod
    def knows(partition: Partition) -> bool:
        """Whether producers may publish: deduplication is off, or the partition knows what they have sent."""
        return partition.deduplication is None or not partition.deduplication.unread_end

    async def learn(self, partition: Partition) -> None:
        """Return when the partition knows what producers have sent to it.

        Raises:
            ProducersNotKnown: its log cannot be read now.
        """
        while not self.knows(partition):
            reading = self._reading(partition)
            attempt = self._attempts.get(reading)
            if attempt is None:
                attempt = self._tasks.begin(f"read {partition.log.name}", self._read(partition, reading))
                self._attempts[reading] = attempt
            await asyncio.shield(attempt)
            if reading.error is not None:
                raise ProducersNotKnown(f"{partition.log.name}: {_reason(reading)}") from reading.error

    def _reading(self, partition: Partition) -> Reading:
        """The partition's present reading, also if its last attempt has failed; a new one if there is none."""
        assert partition.deduplication is not None
        reading = self._readings.get(partition)
        if reading is None:
            reading = self._readings[partition] = Reading(partition.log, partition.deduplication)
        return reading

    async def _read(self, partition: Partition, reading: Reading) -> None:
        log, reading.error = partition.log, None
        size = backlog_bytes(log, reading.offset)
        _log.info("%s: the server reads %d MiB to know its producers", log.name, size >> 20)
        try:
            # What was on its way when deduplication was turned on; some of it may have failed since.
            await partition.durable_waits.until(min(reading.deduplication.unread_end, log.next_offset))
            is_read = False
            while not is_read and partition.deduplication is reading.deduplication:
                if partition.is_closed:
                    raise ProducersNotKnown("it was closed")
                async with self._lane.piece():
                    is_read = await reading.read_piece(self._clock.now_ms())
            if is_read:
                partition.bytes_since_snapshot += 1  # the next snapshot says what is known now
        except (BrokerError, WireError) as error:
            reading.error = error
            _log.warning("%s: %s", log.name, _reason(reading))
        finally:
            del self._attempts[reading]
            if reading.error is None or partition.is_closed:
                del self._readings[partition]

    @property
    def problem(self) -> str | None:
        """What the operator should know; None if all is well."""
        for partition, reading in list(self._readings.items()):
            is_stale = partition.is_closed or partition.deduplication is not reading.deduplication
            if is_stale and reading not in self._attempts:
                del self._readings[partition]
        found = [
            f"{one.log.name}: {_reason(reading)}" for one, reading in self._readings.items() if reading.error
        ]
        more = f" (and {len(found) - 1} partitions more)" if len(found) > 1 else ""
        return f"{found[0]}{more}" if found else None

    async def close(self) -> None:
        """End what is under way: the next start reads those logs again."""
        self._tasks.cancel()
        await self._tasks.ended()


def _reason(reading: Reading) -> str:
    return f"what its producers have sent cannot be read from offset {reading.offset} on: {reading.error}"

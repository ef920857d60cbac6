"""Snapshots of what partitions know about their producers and transactions: stored regularly, and read at the start.

With a snapshot the next start need not read the whole log.  Every changed partition gets one every ten seconds.  If
reading all that was written since the last ones would take a quarter of a second, the partitions with most of it get
one at once.  The others wait: their snapshots may be large, such as those of a client that invents producers, and one
busy partition must not have them written each second.

If a start could not find out the outcome of a partition's transactions, this room tries again
(`log/partition_recovery.py`).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.times import Times
from magnetar.broker.log import partition_recovery
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.producer_snapshots import HEAD, split_path
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.roots import SNAPSHOTS_ROOT
from magnetar.metadata.store import Delete, MetadataStore, Put

log: Final = logging.getLogger(__name__)

_INTERVAL_S: Final = 1.0
_RECOVER_INTERVAL_S: Final = 5.0
# Bytes that all partitions have written since their last snapshots: a restart after a kill reads these in 0.25 s.
_AT_BYTES: Final = 256 << 20
_LEFT_BYTES: Final = _AT_BYTES // 2  # of them, when only the partitions with most have got snapshots
_AT_ONCE: Final = 64  # snapshots in memory that share one synced write of the metadata store
_EVERY: Final = 10  # rounds after which every changed partition gets a snapshot


class ProducerSnapshots:
    """See the module's text."""

    def __init__(self, topics: TopicRegistry, metadata: MetadataStore, times: Times) -> None:
        self._topics = topics
        self._metadata = metadata
        self._clock = times.clock
        self._upkeep = times.upkeep
        self._uncertain: list[Partition] = []  # partitions that do not know their transactions
        self._rounds = 0

    def start(self) -> None:
        self._upkeep.every(_INTERVAL_S, "producer snapshots", self._store_due)
        self._upkeep.every(_RECOVER_INTERVAL_S, "transactions to be read from logs", self._recover_uncertain)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Restore the memory of all open partitions; those that fail now are tried again later."""
        snapshots: dict[str, dict[str, bytes]] = {}
        for path, stored in await self._metadata.scan(SNAPSHOTS_ROOT):
            name, suffix = split_path(path[len(SNAPSHOTS_ROOT) :])
            snapshots.setdefault(name, {})[suffix] = stored.value
        for topic in self._topics:
            for partition in topic.open_partitions:
                await self._recover(partition, snapshots.pop(partition.log.name, {}))

    async def recover_one(self, partition: Partition) -> None:
        """Restore the memory of a partition that another broker had before."""
        root = SNAPSHOTS_ROOT + partition.log.name
        head = await self._metadata.get(root)
        values = {} if head is None else {HEAD: head.value}
        pieces = await self._metadata.scan(f"{root}/")
        await self._recover(partition, values | {path[len(root) :]: one.value for path, one in pieces})

    async def _recover(self, partition: Partition, values: Mapping[str, bytes]) -> None:
        await partition.recover_producers(values, self._clock.now_ms())
        if partition.uncertain is not None:
            self._uncertain.append(partition)

    async def _recover_uncertain(self) -> None:
        """Try again for partitions that do not know the outcome of transactions."""
        for partition in self._uncertain:
            if not _is_gone(partition):
                await partition_recovery.resume(partition, self._clock.now_ms())
        self._uncertain = [one for one in self._uncertain if one.uncertain is not None and not _is_gone(one)]

    @property
    def problem(self) -> str | None:
        """What the operator should know; None if all is well."""
        found = [one.problem for one in self._uncertain if one.problem is not None]
        more = f" (and {len(found) - 1} partitions more)" if len(found) > 1 else ""
        return f"{found[0]}{more}" if found else None

    # --- storing -----------------------------------------------------------------------------------------------------

    def _changed(self) -> list[Partition]:
        return [
            partition
            for topic in self._topics
            for partition in topic.open_partitions
            if partition.bytes_since_snapshot and partition.uncertain is None
        ]

    async def store_changed(self) -> None:
        """Store a snapshot of every partition that has changed since its last one."""
        await self.store(self._changed())

    async def store(self, partitions: Sequence[Partition]) -> None:
        """Store snapshots.  A snapshot that cannot be stored now stays due, and does not prevent the others."""
        failures: list[BrokerError] = []
        for begin in range(0, len(partitions), _AT_ONCE):
            at_once = partitions[begin : begin + _AT_ONCE]
            results = await asyncio.gather(*map(self._store_one, at_once), return_exceptions=True)
            for result in results:
                if isinstance(result, BrokerError):
                    failures.append(result)
                elif result is not None:
                    raise result
        if failures:
            log.warning("producer snapshots of %d partitions wait: %s", len(failures), failures[0])

    async def _store_one(self, partition: Partition) -> None:
        """Store a partition's snapshot, once everything that it covers is durable.  Raises MetadataError."""
        behind = partition.bytes_since_snapshot
        # Asked together with the snapshot, because a batch may fail while this waits for another partition.
        snapshot, durable = partition.snapshot(), partition.durable_waits.until(partition.log.next_offset)
        try:
            if not await durable or partition.topic.is_deleted:
                return
            root = SNAPSHOTS_ROOT + partition.log.name
            puts, gone = partition.stored_snapshot.unstored(snapshot)
            await self._metadata.commit(
                [
                    *partition.log.owned,
                    *(Put(root + suffix, value) for suffix, value in puts.items()),
                    *(Delete(root + suffix) for suffix in gone),
                ]
            )
            partition.stored_snapshot.note(snapshot)
            behind = 0
        finally:
            partition.bytes_since_snapshot += behind

    async def _store_due(self) -> None:
        self._rounds += 1
        due = self._changed()
        # No more often than necessary: a write of metadata makes the file system commit, and acknowledgements wait
        # for that.
        behind = sum(partition.bytes_since_snapshot for partition in due)
        if due and self._rounds % _EVERY == 0:
            await self.store(due)
        elif behind >= _AT_BYTES:
            await self.store(_furthest_behind(due, behind - _LEFT_BYTES))


def _is_gone(partition: Partition) -> bool:
    return partition.topic.is_deleted or partition.is_closed


def _furthest_behind(partitions: Sequence[Partition], size: int) -> list[Partition]:
    """The fewest partitions that together have written `size` bytes since their last snapshots."""
    found: list[Partition] = []
    for partition in sorted(partitions, key=attrgetter("bytes_since_snapshot"), reverse=True):
        if size <= 0:
            break
        found.append(partition)
        size -= partition.bytes_since_snapshot
    return found

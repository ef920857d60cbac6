"""What a broker of a cluster does for the bundles that it owns: opens their logs, hands them over, lets them go.

**Serve.**  The logs of the bundle's partitions are fenced and recovered, the cursors of their subscriptions are read
again, and what their producers have sent is restored.  Only when all of that is done, clients find any of them here.  A
partition without a log is opened when a client asks for it.

**Stop.**  From one moment on the partitions take no appends and no new clients.  What was appended ends, and its
receipts leave before the producers are closed, so their clients send nothing twice.  The consumers are closed with
their positions stored, and a snapshot of the producers spares the next owner a replay.

**Drop.**  Everything ends at once, and nothing is stored: the next owner may have written already.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from magnetar.base.clock import Clock, sleep
from magnetar.base.errors import BrokerError, LogLost, StorageError
from magnetar.base.tasks import Tasks, outcomes
from magnetar.broker.cluster.bundles import Bundle, position_of
from magnetar.broker.cluster.ownership.membership import still_owns
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.log.partition import Partition
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.snapshots import ProducerSnapshots
from magnetar.ledger.cursor_store import CursorStore
from magnetar.metadata.store import MetadataStore

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.1
_AT_ONCE: Final = 64  # logs that are recovered side by side


class ServedBundles:
    """See the module's text.  Implements `BundleWork`."""

    def __init__(
        self,
        seat: Seat,
        metadata: MetadataStore,
        clock: Clock,
        topics: TopicRegistry,
        producers: Producers,
        subscriptions: Subscriptions,
        cursors: CursorStore,
        snapshots: ProducerSnapshots,
    ) -> None:
        self._seat = seat
        self._metadata = metadata
        self._clock = clock
        self._topics = topics
        self._producers = producers
        self._subscriptions = subscriptions
        self._cursors = cursors
        self._snapshots = snapshots
        self._held: dict[Bundle, Hold] = {}
        self._stopping: dict[Hold, list[Partition]] = {}
        self._opening = Tasks(log)

    def brokers_changed(self) -> None:
        self._seat.brokers_changed()

    async def ended(self) -> None:
        """Return when nothing is being opened any more."""
        await self._opening.ended()

    # --- serve -------------------------------------------------------------------------------------------------------

    def serve(self, hold: Hold) -> None:
        self._held[hold.bundle] = hold
        self._opening.spawn(f"open {hold.bundle.namespace} {hold.bundle.range}", self._serve(hold))

    def _is_held(self, hold: Hold) -> bool:
        return self._held.get(hold.bundle) == hold

    async def _serve(self, hold: Hold) -> None:
        has_warned = False
        while self._is_held(hold):
            try:
                if not await still_owns(self._metadata, hold):
                    return  # the membership hears of that, too
                await self._open(hold)
                return
            except BrokerError as error:
                if not has_warned:
                    log.warning("%s %s is not open yet: %s", hold.bundle.namespace, hold.bundle.range, error)
                has_warned = True
            await sleep(self._clock, RETRY_S)

    async def _open(self, hold: Hold) -> None:
        there = list(self._partitions_of(hold.bundle))
        await self._cursors.read_again({(topic.name.full, index) for topic, index in there})
        opened: list[tuple[Topic, int, Partition]] = []
        try:
            for begin in range(0, len(there), _AT_ONCE):
                if not self._is_held(hold):
                    break  # what was opened next would be fenced for the next owner
                some = there[begin : begin + _AT_ONCE]
                results = await outcomes([self._recovered(hold, *one) for one in some])
                failures = [result for result in results if isinstance(result, BaseException)]
                for (topic, index), result in zip(some, results, strict=True):
                    if result is not None and not isinstance(result, BaseException):
                        opened.append((topic, index, result))
                if failures:
                    raise failures[0]
            if self._is_held(hold):
                self._show(hold, opened)
                opened = []
        finally:
            for _, _, partition in opened:
                partition.close()

    async def _recovered(self, hold: Hold, topic: Topic, index: int) -> Partition | None:
        """The partition with all that is stored of it; None if there is no log, or one that cannot be served."""
        stored = await self._topics.recover(topic, index)
        if stored is None:
            return None
        try:
            partition = self._topics.open_owned(topic, index, hold, stored)
        except LogLost:
            raise
        except StorageError:  # said where it was found
            return None
        try:
            await self._snapshots.recover_one(partition)
        except BaseException:
            partition.close()
            raise
        return partition

    def _show(self, hold: Hold, opened: list[tuple[Topic, int, Partition]]) -> None:
        for topic, index, partition in opened:
            if topic.is_deleted:
                partition.close()
            else:
                topic.show(index, partition)
        self._seat.opened(hold)

    def _partitions_of(self, bundle: Bundle) -> Iterator[tuple[Topic, int]]:
        for topic in self._topics:
            if topic.name.namespace_name == bundle.namespace:
                for index, name in enumerate(topic.pulsar_names):
                    if bundle.contains(position_of(name)):
                        yield topic, index

    # --- stop and drop -----------------------------------------------------------------------------------------------

    async def stop(self, hold: Hold) -> None:
        partitions = self._stopping[hold] = self._released(hold)
        for partition in partitions:
            partition.log.let_go()
        await asyncio.gather(*map(self._settle, partitions))
        for partition in self._stopping.pop(hold, ()):
            self._close(partition)

    async def _settle(self, partition: Partition) -> None:
        await partition.durable_waits.until(partition.log.next_offset)
        self._producers.close(partition)
        await self._subscriptions.close_partition(partition)
        if partition.bytes_since_snapshot and partition.uncertain is None:
            await self._snapshots.store([partition])

    def drop(self, hold: Hold) -> None:
        for partition in [*self._released(hold), *self._stopping.pop(hold, ())]:
            self._close(partition)

    def _released(self, hold: Hold) -> list[Partition]:
        """The open partitions of the bundle, which no client finds any more."""
        if not self._is_held(hold):
            return []
        del self._held[hold.bundle]
        self._seat.closed(hold)
        released = [topic.release(index) for topic, index in self._partitions_of(hold.bundle)]
        return [partition for partition in released if partition is not None]

    def _close(self, partition: Partition) -> None:
        self._subscriptions.abandon(partition)  # if positions could not be stored, their messages come again
        partition.close()
        self._producers.release(partition)

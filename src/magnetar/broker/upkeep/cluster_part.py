"""A broker's part in a cluster, from its start to its stop."""

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.errors import BadVersion
from magnetar.base.upkeep import Upkeep, Watch
from magnetar.broker.cluster.bundles import Bundle
from magnetar.broker.cluster.ownership.membership import Membership
from magnetar.broker.cluster.ownership.records import NO_OWNER
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.upkeep.bundle_loads import BundleLoads
from magnetar.broker.upkeep.served_bundles import ServedBundles
from magnetar.broker.upkeep.snapshots import ProducerSnapshots
from magnetar.ledger.cursor_store import CursorStore
from magnetar.metadata.store import MetadataStore

log: Final = logging.getLogger(__name__)


class Parts(Protocol):
    """What a broker's part in a cluster needs of it; `metadata` is the store of the broker's session."""

    metadata: MetadataStore
    clock: Clock
    topics: TopicRegistry
    producers: Producers
    subscriptions: Subscriptions
    cursors: CursorStore
    snapshots: ProducerSnapshots


class ClusterPart:
    """See the module's text."""

    def __init__(self, seat: Seat, parts: Parts) -> None:
        view, metadata, clock = seat.view, parts.metadata, parts.clock
        self._seat = seat
        self._bundles = ServedBundles(
            seat,
            metadata,
            clock,
            parts.topics,
            parts.producers,
            parts.subscriptions,
            parts.cursors,
            parts.snapshots,
        )
        self._loads = BundleLoads(seat, parts.topics, metadata, clock)
        self.membership = Membership(seat.here, view, metadata, clock, self._bundles, lambda: view.loads, log)
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    def start(self, upkeep: Upkeep) -> None:
        """Take part: the broker has loaded what it needs."""
        self._task = asyncio.get_running_loop().create_task(self.membership.run(), name="ownership")
        self._watch = upkeep.watch("ownership", self._task)
        self._loads.start(upkeep)

    async def unload(self, unloaded: Bundle) -> None:
        """Ask the owners of all bundles in this range of a namespace to let them go; the leader gives each to a broker.

        Raises:
            MetadataError
        """
        for record in self._seat.view.of(unloaded.namespace):
            if record.owner != NO_OWNER and unloaded.contains(record.bundle.low):
                with suppress(BadVersion):  # it is on its way already
                    await self.membership.ask(record)

    async def stop(self) -> None:
        """Hand over what the broker serves, and leave."""
        if self._task is not None and self._watch is not None:
            self._watch.expect_end()
            await self.membership.resign()
            await asyncio.wait([self._task])
        await self._bundles.ended()

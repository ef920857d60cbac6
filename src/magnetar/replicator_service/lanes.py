"""The lanes of all connections: at most one for each topic and region.

A broker that has lost its connection comes back at once, while the thread of its last lane may still send.  A new lane
waits until that thread has ended: otherwise an old record could arrive behind a newer one of its key.  If the other
lane's connection is alive, the new one is refused, as Pulsar's brokers refuse a second producer of one name.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from magnetar.base.errors import MagnetarError
from magnetar.base.tasks import Tasks
from magnetar.replicator_service.lane import Lane

log = logging.getLogger(__name__)


class LaneBusy(MagnetarError):
    """Another connection sends this topic to this region."""


class LaneKey(NamedTuple):
    """`topic` is the full name of a topic, or of one partition."""

    topic: str
    region: str


class Lanes:
    """See the module's text."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, Lane] = {}
        self._tasks = Tasks(log)

    async def begin(self, key: LaneKey, make: Callable[[], Lane]) -> Lane:
        """A new lane, when its target's producer is open.

        Raises:
            LaneBusy: there is another one.
            TargetUnavailable, CredentialsRefused, ReplicatorConfigError: the producer cannot be opened.
        """
        while (old := self._lanes.get(key)) is not None:
            if not old.is_closing:
                raise LaneBusy(f"another connection replicates {key.topic} to {key.region}")
            await old.ended.wait()
        lane = self._lanes[key] = make()
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(lane.name, self._run(key, lane, opened))
        await opened
        return lane

    async def _run(self, key: LaneKey, lane: Lane, opened: "asyncio.Future[None]") -> None:
        try:
            await lane.run(opened)
        finally:
            del self._lanes[key]  # in the step in which it has ended, so that `begin` finds none

    async def close(self) -> None:
        """End all lanes, each after the chunk that is on its way."""
        for lane in self._lanes.values():
            lane.close()
        await self._tasks.ended()

"""What groups with epochs have done beside the loop: epochs stored ahead of their use, and large targets computed.

A group's epochs are stored in blocks: one synced write in a thousand changes, and a restart goes on above all epochs
that can have been given.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.base.pacing import Pace
from magnetar.base.tasks import Tasks
from magnetar.broker.groups.consumer.group import AssignedGroup
from magnetar.broker.groups.consumer.heartbeats import Assigning, Install

log: Final = logging.getLogger(__name__)

EPOCHS_AT_ONCE: Final = 1_000


class Background:
    """See the module's text.  `record` stores the last epoch that a group has asked for, and calls back in the step in
    which that is done.
    """

    def __init__(
        self, clock: Clock, record: "Callable[[AssignedGroup, Callable[[], None]], asyncio.Future[None]]"
    ) -> None:
        self._record = record
        self.tasks = Tasks(log)
        self._pace = Pace(clock.monotonic)
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="magnetar-assign", initializer=self._pace.enter
        )

    async def close(self) -> None:
        """Wait for the computation that is under way."""
        self._pace.hurry()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.tasks.cancel()
        await self.tasks.ended()

    def _stored(self, group: AssignedGroup) -> "asyncio.Future[None]":
        """Done when the next block of epochs is durable, and may be given."""
        if group.storing is None:
            epochs = group.epochs_asked = group.epoch + EPOCHS_AT_ONCE

            # In the step in which the future is done, and not in a callback after it: a heartbeat that came in between
            # would find it done and no epochs, and ask again without ever letting the loop go on.
            def publish() -> None:
                group.epochs_stored = epochs
                group.storing = None

            def ended(future: "asyncio.Future[None]") -> None:
                if group.storing is future:  # it has failed
                    group.storing = None

            group.storing = self._record(group, publish)
            group.storing.add_done_callback(ended)
        return group.storing

    async def may_bump(self, group: AssignedGroup) -> bool:
        """Return once the group may be given its next epochs; False where they cannot be stored."""
        try:
            await asyncio.shield(self._stored(group))
        except MetadataError as failure:
            log.warning("the epochs of group %r could not be stored: %s", group.group_id, failure)
            return False
        return True

    def store_ahead(self, group: AssignedGroup) -> None:
        """Have the next block stored where half of this one is used."""
        if group.epochs_stored - group.epoch < EPOCHS_AT_ONCE // 2 and group.storing is None:
            self._stored(group)

    def assign_later(self, group: AssignedGroup, job: Assigning, install: Install) -> None:
        """Compute a target on the thread, and `install` it."""
        self.tasks.spawn(
            f"assign the partitions of group {group.group_id!r}", self._assign(group, job, install)
        )

    async def _assign(self, group: AssignedGroup, job: Assigning, install: Install) -> None:
        try:
            target = await asyncio.get_running_loop().run_in_executor(self._thread, job.compute)
        except BaseException:
            group.is_assigning = False  # the next heartbeat tries again
            raise
        install(group, job, target)

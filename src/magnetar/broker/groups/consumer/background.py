"""Background work of groups with epochs: it stores epochs ahead of their use, computes large targets on a thread, and
asks for the rights to many topics.

A group's epochs are stored in blocks: one synced write for a thousand changes.  After a restart the group continues
above all epochs that it can have given.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.base.pacing import Pace
from magnetar.base.tasks import Tasks
from magnetar.broker.groups.consumer.group import AssignedGroup
from magnetar.broker.groups.consumer.subscription import Subscription
from magnetar.broker.groups.epochs import EpochGroup

log: Final = logging.getLogger(__name__)

EPOCHS_AT_ONCE: Final = 1_000

Target = TypeVar("Target")


class Background:
    """See the module's text.  `record` stores the last epoch that a group has requested, and calls back in the step
    that makes it durable.
    """

    def __init__(
        self, clock: Clock, record: "Callable[[EpochGroup, Callable[[], None]], asyncio.Future[None]]"
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

    def _stored(self, group: EpochGroup) -> "asyncio.Future[None]":
        """Resolves when the group's next block of epochs is durable, so that the group may use it."""
        if group.storing is None:
            epochs = group.epochs_asked = group.epoch + EPOCHS_AT_ONCE

            # This runs in the step in which the future is done, and not in a callback after it.  A heartbeat in
            # between would find the future done but no epochs, and would ask again for ever without letting the loop
            # continue.
            def publish() -> None:
                group.epochs_stored = epochs
                group.storing = None

            def ended(future: "asyncio.Future[None]") -> None:
                if group.storing is future:  # it has failed
                    group.storing = None

            group.storing = self._record(group, publish)
            group.storing.add_done_callback(ended)
        return group.storing

    async def may_bump(self, group: EpochGroup) -> bool:
        """Wait until the group may use its next epochs; False if the metadata store cannot store them."""
        try:
            await asyncio.shield(self._stored(group))
        except MetadataError as failure:
            log.warning("the server could not store the epochs of group %r: %s", group.group_id, failure)
            return False
        return True

    def store_ahead(self, group: EpochGroup) -> None:
        """Begin to store the next block once the group has used half of the present one."""
        if group.epochs_stored - group.epoch < EPOCHS_AT_ONCE // 2 and group.storing is None:
            self._stored(group)

    def assign_later(
        self, group: EpochGroup, compute: Callable[[], Target], install: Callable[[Target], None]
    ) -> None:
        """Compute a target on the thread, and `install` it."""
        self.tasks.spawn(
            f"make the assignments of group {group.group_id!r}", self._assign(group, compute, install)
        )

    async def _assign(
        self, group: EpochGroup, compute: Callable[[], Target], install: Callable[[Target], None]
    ) -> None:
        try:
            target = await asyncio.get_running_loop().run_in_executor(self._thread, compute)
        except BaseException:
            group.is_assigning = False  # so that the next heartbeat tries again
            raise
        install(target)

    def ask_later(
        self, group: AssignedGroup, subscriptions: Sequence[Subscription], rights_changes: int
    ) -> None:
        """Ask for the rights of subscriptions, with turns of the event loop between every few."""
        group.is_asking = True
        self.tasks.spawn(
            f"ask for the rights of members of group {group.group_id!r}",
            _ask(group, subscriptions, rights_changes),
        )


async def _ask(group: AssignedGroup, subscriptions: Sequence[Subscription], rights_changes: int) -> None:
    try:
        for one in subscriptions:
            before = one.seen
            for _ in one.ask(rights_changes):
                await asyncio.sleep(0)
            group.sees_others = group.sees_others or one.seen != before
    finally:
        group.is_asking = False
        group.asked()

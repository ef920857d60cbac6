"""The positions of subscriptions in use: stored a tenth of a second after they have changed, and when a caller asks.

What a killed server had not stored is delivered again, so it should be little.  Where storing takes long, because there
are many subscriptions, or ranges, or the disk is slow, it is done less often: it takes a small share of the time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, MetadataError
from magnetar.base.upkeep import Job, Upkeep
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.ledger.cursor_store import CursorStore

log: Final = logging.getLogger(__name__)

RANGES_AT_ONCE: Final = (
    20_000  # acknowledged apart, in one turn of the event loop: five milliseconds to write
)
SAVE_INTERVAL_S: Final = 0.1
SAVE_INTERVAL_S_MAX: Final = 1.0  # Pulsar's managedLedgerDefaultMarkDeleteRateLimit
SAVE_SHARE: Final = 0.04  # of the time: a synced write of 4 ms may be made every 0.1 s


class StoredPositions:
    """See the module's text; `let_go` gets each subscription that no client uses any more."""

    def __init__(
        self, clock: Clock, cursors: CursorStore, let_go: Callable[[Subscription], Awaitable[None]]
    ) -> None:
        self._clock = clock
        self._cursors = cursors
        self._let_go = let_go
        self._unsaved: set[Subscription] = set()
        self._saving: Job | None = None
        self._rests_until_s = 0.0

    def start(self, upkeep: Upkeep) -> None:
        self._saving = upkeep.every(SAVE_INTERVAL_S, "positions of subscriptions", self._save_all)

    async def stop(self) -> None:
        """Store nothing any more by itself."""
        if self._saving is not None:
            await self._saving.stop()

    def changed(self, subscription: Subscription) -> None:
        """Store the subscription's position soon."""
        self._unsaved.add(subscription)

    def forget(self, subscription: Subscription) -> None:
        """The subscription has nothing to store: it was dropped, or its owner lets it go."""
        self._unsaved.discard(subscription)

    async def store(self, subscription: Subscription) -> None:
        """Return when the cursor as it is now is durable.  Raises MetadataError: it holds, but is not stored yet."""
        if subscription.is_attached:  # otherwise it was stored before it was let go of, or dropped
            self.changed(subscription)
            if not await self.save(subscription):
                raise MetadataError("it holds, but could not be stored yet")

    async def save(self, subscription: Subscription) -> bool:
        """Store the position if it has changed; false when that failed, and it is tried again."""
        subscription.counts.note()
        if subscription not in self._unsaved:
            return True
        self._unsaved.discard(subscription)
        if subscription.partition.topic.is_deleted:
            return True
        subscription.cursor.commit_timestamp_ms = self._clock.now_ms()
        try:
            await self._cursors.save(subscription.key)
        except (BrokerError, ValueError) as error:
            log.warning("the position of %s is not stored yet: %s", subscription, error)
            self.changed(subscription)
            return False
        except BaseException:
            self.changed(subscription)
            raise
        return True

    async def _save_all(self) -> None:
        began_s = self._clock.monotonic()
        unsaved = [one for one in self._unsaved if one.is_attached]
        if not unsaved or began_s < self._rests_until_s:
            return
        # All at once: what is asked for at one moment shares a synced write.
        saving: list[Coroutine[Any, Any, bool]] = []
        ranges = 0
        for subscription in unsaved:
            saving.append(self._save_after(ranges // RANGES_AT_ONCE, subscription))
            ranges += subscription.cursor.range_count
        results = await asyncio.gather(*saving, return_exceptions=True)
        ended_s = self._clock.monotonic()
        self._rests_until_s = ended_s + min((ended_s - began_s) / SAVE_SHARE, SAVE_INTERVAL_S_MAX)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        for subscription in unsaved:
            if not subscription.is_in_use and not subscription.changing.locked():
                await self._let_go(subscription)

    async def _save_after(self, turns: int, subscription: Subscription) -> bool:
        """As `save`, so many turns of the event loop later."""
        for _ in range(turns):
            await asyncio.sleep(0)
        return await self.save(subscription)

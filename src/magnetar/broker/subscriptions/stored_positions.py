"""The positions of subscriptions in use: stored a tenth of a second after they have changed, and when a caller asks.

After a kill, messages whose acknowledgement was not stored are delivered again, so these should be few.  Storing may
take long, because there are many subscriptions, or ranges, or the disk is slow.  Then the broker stores less often, so
that storing takes a small share of the time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, MetadataError, kept
from magnetar.base.upkeep import Job, Upkeep
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.ledger.cursor_store import CursorStore

log: Final = logging.getLogger(__name__)

# In one turn of the event loop: five to ten milliseconds to write.
RANGES_AT_ONCE: Final = 20_000  # acknowledged apart
SAVES_AT_ONCE: Final = 200
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
        self._under_way: dict[Subscription, asyncio.Future[None]] = {}  # the latest write of each
        self._saving: Job | None = None
        self._room = _Room()
        self._rests_until_s = 0.0

    def start(self, upkeep: Upkeep) -> None:
        self._saving = upkeep.every(SAVE_INTERVAL_S, "positions of subscriptions", self._save_all)

    async def stop(self) -> None:
        """Store nothing any more by itself."""
        if self._saving is not None:
            await self._saving.stop()

    def changed(self, subscription: Subscription) -> None:
        """Store the subscription's position soon, unless it has none to store, was dropped, or was let go of."""
        if subscription.is_durable and subscription.is_attached:
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

    async def settle(self, subscription: Subscription) -> bool:
        """As `save`, with what changes meanwhile: for a subscription without consumers, before it is let go of."""
        while await self.save(subscription):
            if subscription not in self._unsaved:
                return True
        return False

    async def save(self, subscription: Subscription) -> bool:
        """Return when the position as it is now is durable; false when that failed, and it is tried again."""
        if not subscription.is_closed:
            subscription.counts.note()
        if subscription in self._unsaved:
            async with self._room.held(subscription.cursor.range_count):
                self._begin_write(subscription)
                return await self._is_written(subscription)
        return await self._is_written(subscription)

    def _begin_write(self, subscription: Subscription) -> None:
        """Begin to store the position, if no other caller has begun meanwhile."""
        if subscription not in self._unsaved:
            return
        subscription.cursor.commit_timestamp_ms = self._clock.now_ms()
        try:
            write = self._cursors.save(subscription.key)
        except (BrokerError, ValueError) as error:
            write = asyncio.get_running_loop().create_future()
            write.set_exception(kept(error))
        self._unsaved.discard(subscription)
        self._under_way[subscription] = write
        write.add_done_callback(partial(self._write_ended, subscription))

    def _write_ended(self, subscription: Subscription, write: asyncio.Future[None]) -> None:
        """The loop calls this before it continues what waits for the write."""
        if self._under_way.get(subscription) is write:
            del self._under_way[subscription]
        error = write.exception()
        if error is not None:
            log.warning("the position of %s is not stored yet: %s", subscription, error)
            self.changed(subscription)

    async def _is_written(self, subscription: Subscription) -> bool:
        """Whether the last write has succeeded; waits for one that is under way, whatever began it."""
        write = self._under_way.get(subscription)
        if write is None:
            return True
        await asyncio.wait([write])  # which goes on if this caller is cancelled
        return write.exception() is None

    async def _save_all(self) -> None:
        began_s = self._clock.monotonic()
        unsaved = [*self._unsaved]
        if not unsaved or began_s < self._rests_until_s:
            return
        failure: BaseException | None = None
        for begin in range(0, len(unsaved), SAVES_AT_ONCE):
            # Many at once: what is asked for at one moment shares a synced write.
            saving = map(self.save, unsaved[begin : begin + SAVES_AT_ONCE])
            results = await asyncio.gather(*saving, return_exceptions=True)
            failures = [result for result in results if isinstance(result, BaseException)]
            failure = failure or next(iter(failures), None)
        ended_s = self._clock.monotonic()
        self._rests_until_s = ended_s + min((ended_s - began_s) / SAVE_SHARE, SAVE_INTERVAL_S_MAX)
        if failure is not None:
            raise failure
        for subscription in unsaved:
            if not subscription.is_in_use and not subscription.changing.locked():
                await self._let_go(subscription)


class _Room:
    """For what is written at one time: it is encoded in one turn of the event loop, and reported as durable in another.

    A client that goes lets go of all of its subscriptions at once.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def held(self, ranges: int) -> AsyncIterator[None]:
        """Room for a position with so many ranges, as long as the block lasts."""
        size = max(ranges, RANGES_AT_ONCE // SAVES_AT_ONCE)
        if self._waiting or not self._fits(size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except BaseException:
                self._gave_up(size, turn)
                raise
        else:
            self._taken += size
        try:
            yield
        finally:
            self._give_back(size)

    def _fits(self, size: int) -> bool:
        return not self._taken or self._taken + size <= RANGES_AT_ONCE

    def _gave_up(self, size: int, turn: asyncio.Future[None]) -> None:
        if turn.cancelled():
            self._waiting = deque(one for one in self._waiting if one[1] is not turn)
            size = 0
        self._give_back(size)

    def _give_back(self, size: int) -> None:
        self._taken -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._taken += size
                turn.set_result(None)

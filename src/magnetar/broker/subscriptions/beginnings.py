"""Where a subscription begins: at its stored cursor, at a new one, or at a place that is stored nowhere."""

from collections.abc import Callable

from magnetar.base.clock import Clock
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.subscriptions.model import InitialPosition, SubscribeRequest, Within
from magnetar.broker.subscriptions.request import kept_properties
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.ledger.compacted_view import LogView, view_of
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorStore


class Beginnings:
    """Gives subscriptions their cursors; the caller holds their `changing`.

    `check_count` raises SubscriptionNotAllowed if a partition may not have a subscription of this name besides the
    others.
    """

    def __init__(
        self, clock: Clock, cursors: CursorStore, check_count: Callable[[Partition, str], None]
    ) -> None:
        self._clock = clock
        self._cursors = cursors
        self._check_count = check_count

    async def attach(self, subscription: Subscription, wanted: SubscribeRequest, within: Within) -> None:
        """Take the stored cursor of a durable subscription, or store a new one."""
        key, partition = subscription.key, subscription.partition
        while True:
            # A write that ended later would be missing in the cursor that is taken here, and overwritten.
            await self._cursors.at_rest(key)
            partition.topic.check_exists()
            stored = self._cursors.get(key)
            if stored is None:
                cursor = await self._new(partition, wanted)
                partition.topic.check_exists()
                if self._cursors.newest(key) is None:  # no Kafka client has committed one meanwhile
                    async with within():
                        await self._cursors.commit({key: cursor})
            elif wanted.holds_data and not stored.holds_data:
                # A Kafka group's until now.  From here on it is a subscription that a Pulsar client relies on.
                cursor = stored.copy()
                cursor.holds_data = True
                await self._cursors.commit({key: cursor})
            else:
                break
        subscription.cursor = stored.copy()
        subscription.cursor.forget_wish()
        subscription.is_attached = True
        self._cursors.attach(key, subscription)

    async def place(self, subscription: Subscription, wanted: SubscribeRequest) -> None:
        """Give a non-durable subscription its cursor."""
        view = view_of(subscription.partition.log, compacted=wanted.consumer.reads_compacted)
        if wanted.start is not None and wanted.rollback_s <= 0:
            # From the entry of that message on: the client leaves out what it does not want of it.
            offset = await positions.offset_of(view, *wanted.start)
        else:
            offset = await self._initial(view, wanted)
        subscription.cursor = Cursor(offset)
        subscription.is_attached = True

    async def _new(self, partition: Partition, wanted: SubscribeRequest) -> Cursor:
        if not wanted.may_create:
            raise SubscriptionNotFound("Subscription does not exist")
        self._check_count(partition, wanted.subscription)
        view = view_of(partition.log, compacted=wanted.consumer.reads_compacted)
        return Cursor(
            await self._initial(view, wanted),
            commit_timestamp_ms=self._clock.now_ms(),
            holds_data=wanted.holds_data,
            properties=kept_properties(wanted.properties),
        )

    async def _initial(self, view: LogView, wanted: SubscribeRequest) -> int:
        if wanted.rollback_s > 0:
            return await positions.offset_at_time(view, self._clock.now_ms() - wanted.rollback_s * 1000)
        is_latest = wanted.initial_position is InitialPosition.LATEST
        return view.high_watermark if is_latest else view.log_start

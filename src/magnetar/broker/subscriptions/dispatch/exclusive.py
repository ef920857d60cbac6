"""One active consumer gets everything, in the order of the log (Exclusive, and the base of Failover).

The dispatcher remembers no delivered message: the cursor knows which are acknowledged.  If the client wants anything
again, the dispatcher reads again from the first unacknowledged message, because single messages sent again would break
the order.  Pulsar's `PersistentDispatcherSingleActiveConsumer` does the same.  So there is no count of redeliveries and
no limit of unacknowledged messages.  `consumer_epoch` lets the client drop what was under way before it asked.
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence

from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.dispatch.model import (
    Actions,
    Consumer,
    Deliver,
    Dispatcher,
    Place,
    Rewind,
    Unit,
)
from magnetar.broker.subscriptions.dispatch.ranges import OffsetRange, merged
from magnetar.broker.subscriptions.model import PERMITS_MAX, SubscriptionType


class SingleActiveDispatcher(Dispatcher):
    """Everything but who the active consumer is."""

    def __init__(self) -> None:
        super().__init__()
        self.active: Consumer | None = None
        self._waiting: deque[Unit] = deque()

    def flow(self, consumer: Consumer, permits: int) -> Actions:
        if permits <= 0 or consumer not in self.consumers:
            return []
        consumer.permits = min(PERMITS_MAX, consumer.permits + permits)
        return self._pump() if consumer is self.active else []

    def set_writable(self, consumer: Consumer, is_writable: bool) -> Actions:
        consumer.writable = is_writable
        return self._pump() if is_writable and consumer is self.active else []

    def offer(self, units: Sequence[Unit], now_ms: int) -> Actions:
        if self.active is None:
            return [Rewind()]
        if not units:
            return []
        self._observe(units)
        self._waiting.extend(units)
        return self._pump()

    def acked(self, ranges: Iterable[OffsetRange]) -> Actions:
        waiting = self._waiting
        if not waiting:
            return []
        first, last = waiting[0].base_offset, waiting[-1].end_offset
        cuts = merged(limits for limits in ranges if limits[0] < last and limits[1] > first)
        if cuts:
            for unit in waiting:
                unit.subtract(cuts)
            self._waiting = deque(unit for unit in waiting if not unit.is_acknowledged)
        return []

    def redeliver(
        self,
        consumer: Consumer,
        base_offsets: Iterable[int] | None = None,
        epoch: int | None = None,
        entries: Container[object] | None = None,
    ) -> Actions:
        if consumer not in self.consumers:
            return []
        if epoch is not None:
            consumer.epoch = max(consumer.epoch, epoch)
        if consumer is not self.active:
            return []
        self.rewind()
        return [Rewind()]

    def rewind(self) -> None:
        self._waiting.clear()

    def wanted(self) -> int:
        active = self.active
        if active is None or self._waiting or not active.available:
            return 0
        return self._entries_for(active.permits)

    def _pump(self) -> Actions:
        waiting, consumer = self._waiting, self.active
        if not waiting or consumer is None or not consumer.available:
            return []
        units = []
        permits = consumer.permits
        while waiting and permits > 0:
            unit = waiting.popleft()
            unit.place = Place.HELD
            permits -= unit.permits
            units.append(unit)
        consumer.permits = permits
        return [Deliver(consumer, units)]


class ExclusiveDispatcher(SingleActiveDispatcher):
    """The first consumer has the subscription until it leaves."""

    type = SubscriptionType.EXCLUSIVE

    def add_consumer(self, consumer: Consumer) -> Actions:
        if self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")
        self.consumers.append(consumer)
        self.active = consumer
        return []

    def remove_consumer(self, consumer: Consumer) -> Actions:
        if consumer not in self.consumers:
            return []
        self.consumers.remove(consumer)
        self.active = None
        self.rewind()
        return [Rewind()]

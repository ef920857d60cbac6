"""What Shared and Key_Shared have in common: several consumers hold units at once.

A unit is in exactly one place (`model.Place`) from the offer to its acknowledgement; a unit that is held is in `held`
of one consumer, its holder.  Everything that changes which consumer may get something ends in `_pump`, which delivers
all that can be delivered: so between two calls nothing waits that an available consumer may have.

Limits: a consumer with as many unacknowledged messages as it may have gets nothing until it has only half of them.
There is also a limit for all consumers together.  When they reach it, nothing new goes out until half of the messages
are left.  Messages that were delivered before do go out again, since only their acknowledgement helps.  The entry that
reaches a limit is delivered whole.  A limit that changes holds at once: a consumer that is below the new one gets more.

A consumer may hold fifty thousand units.  It may want all of them again, leave, or be allowed as many at once.  Then
`UNITS_AT_ONCE` of them come back or go out, and the rest in the next turns of the event loop (`tick`).  Nothing new
goes out while some have yet to come back, or it would overtake them.

How redeliveries count: +1 when a consumer asks for a unit again, and nothing when it leaves; with the last consumer
all counts are forgotten.  We have observed that Pulsar 4.0.8 does so.  Kafka's share groups remember the counts: they
look at `counted` before.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.subscriptions.dispatch.delayed import TICK_MS, DelayedIndex
from magnetar.broker.subscriptions.dispatch.index import UnitIndex
from magnetar.broker.subscriptions.dispatch.model import (
    READ_ENTRIES_MAX,
    Actions,
    Consumer,
    Dispatcher,
    Place,
    Rewind,
    Unit,
)
from magnetar.broker.subscriptions.dispatch.ranges import OffsetRange, merged
from magnetar.broker.subscriptions.model import PERMITS_MAX

HELD, DONE = Place.HELD, Place.DONE

# Units that may wait for one particular consumer before reading stops: Pulsar's
# keySharedLookAheadMsgInReplayThresholdPerConsumer and ...PerSubscription.
LOOK_AHEAD_PER_CONSUMER = 2_000
LOOK_AHEAD_MAX = 20_000
UNITS_AT_ONCE = 1_000  # five microseconds each, or more


class MultiConsumerDispatcher(Dispatcher):
    """Which consumer holds what; the subclasses know which may get what."""

    remembers = wants_ticks = True

    def __init__(
        self,
        *,
        unacked_messages_max: int = 0,
        tick_ms: int = TICK_MS,
    ) -> None:
        """`unacked_messages_max` of 0 is no limit."""
        super().__init__()
        self.unacked_messages = 0
        self.unacked_messages_max = unacked_messages_max
        self._members: set[Consumer] = set()
        self._index = UnitIndex()
        self._delayed = DelayedIndex(tick_ms)
        self.delays_messages = True  # false: what has a time to be delivered at goes out at once
        self._pending: dict[Unit, int] = {}  # messages of held units that do not count: see `pending`
        self._returning: dict[Consumer, OrderedDict[Unit, None]] = {}  # held units that are to come back
        self._has_more = False  # more could have gone out
        self.counted: set[Unit] = set()  # those that have been redelivered
        self._waiting = 0
        self._stirred = False  # something happened that may let a waiting unit go

    # The consumers that take part.

    def add_consumer(self, consumer: Consumer) -> Actions:
        assert consumer not in self._members
        self._admit(consumer)
        self.consumers.append(consumer)
        self._members.add(consumer)
        return self._pump()

    def remove_consumer(self, consumer: Consumer) -> Actions:
        if consumer not in self._members:
            return []
        self.consumers.remove(consumer)
        self._members.discard(consumer)
        self._dismiss(consumer)
        if not self.consumers:
            self.rewind()
            consumer.held.clear()
            consumer.unacked_messages = 0
            return [Rewind()]
        self._returning[consumer] = OrderedDict.fromkeys(sorted(consumer.held, key=lambda unit: unit.order))
        return self._go_on()

    def flow(self, consumer: Consumer, permits: int) -> Actions:
        if permits <= 0 or consumer not in self._members:
            return []
        consumer.permits = min(PERMITS_MAX, consumer.permits + permits)
        return self._woken(consumer)

    def set_writable(self, consumer: Consumer, is_writable: bool) -> Actions:
        consumer.writable = is_writable
        return self._woken(consumer) if consumer in self._members else []

    def _woken(self, consumer: Consumer) -> Actions:
        if not consumer.available:
            return []
        self._available(consumer)
        return self._pump()

    # Units come, go and come back.

    def offer(self, units: Sequence[Unit], now_ms: int) -> Actions:
        if not self.consumers:
            return [Rewind()]
        if not units:
            return []
        self._observe(units)
        add = self._index.add
        for unit in units:
            if unit.deliver_at_ms > now_ms and self.delays_messages:
                self._delayed.put(unit)
                continue
            add(unit)
            self._comes(unit)
            self._arrived(unit)
        return self._pump()

    def offer_due(self, units: Sequence[Unit], entries: Sequence[OffsetRange], now_ms: int) -> Actions:
        if not self.consumers:
            return [Rewind()]
        self._delayed.read_again(entries)
        self._delayed.ripen(now_ms)
        self._index.add_late(units)
        for unit in units:
            self._comes(unit)
            self._returned(unit)
        return self._pump()

    def _comes(self, unit: Unit) -> None:
        """A unit that was offered is to wait."""
        if unit.redelivery_count:
            self.counted.add(unit)
        self._waiting += 1
        if self._waiting > READ_ENTRIES_MAX:
            unit.payload = None  # it will wait: what is kept in memory stays bounded

    def acked(self, ranges: Iterable[OffsetRange]) -> Actions:
        if self._delayed:
            ranges = list(ranges)
            self._delayed.acked(ranges)
        exactly = self._index.exactly
        others: list[OffsetRange] = []
        for start, stop in ranges:
            unit = exactly(start, stop)
            if unit is None:
                others.append((start, stop))
            else:
                self._finish(unit)
        if others:
            self._acked_otherwise(merged(others))
        return self._pump() if self._stirred else []

    def _acked_otherwise(self, ranges: list[OffsetRange]) -> None:
        """Ranges that are not just one entry each, ascending."""
        overlapping = self._index.overlapping
        cuts: dict[Unit, list[OffsetRange]] = {}
        only: Unit | None = None
        for limits in ranges:
            start, stop = limits
            if only is not None and only.base_offset <= start and stop <= only.end_offset:
                cuts[only].append(limits)  # the next part of the same batch
                continue
            units = overlapping(start, stop)
            for unit in units:
                cuts.setdefault(unit, []).append(limits)
            only = units[0] if len(units) == 1 else None
        for unit, parts in cuts.items():
            self._acked_partly(unit, unit.subtract(parts))
            if unit.is_acknowledged:
                self._finish(unit)

    def redeliver(
        self,
        consumer: Consumer,
        base_offsets: Iterable[int] | None = None,
        epoch: int | None = None,
        entries: Container[object] | None = None,
    ) -> Actions:
        if consumer not in self._members:
            return []
        if epoch is not None:
            consumer.epoch = max(consumer.epoch, epoch)
        if base_offsets is None:
            units = sorted(consumer.held, key=lambda unit: unit.order)
        else:
            at = self._index.at
            units = [
                unit
                for base in base_offsets
                for unit in at(base)
                if unit.holder is consumer and (entries is None or unit.entry in entries)
            ]
        returning = self._returning.setdefault(consumer, OrderedDict())
        for unit in units:
            if unit.holder is consumer and unit not in returning:  # a client may name an entry twice
                unit.redelivery_count += 1
                self.counted.add(unit)
                returning[unit] = None
        return self._go_on()

    # Consumers that have a time for each message take single ones of a unit back, or go on with them.

    def held_in(self, consumer: Consumer, start: int, stop: int) -> list[Unit]:
        """The units that the consumer holds and that have offsets in [start, stop), by their entries."""
        return [unit for unit in self._index.overlapping(start, stop) if unit.holder is consumer]

    def cut_off(self, unit: Unit, ranges: Sequence[OffsetRange]) -> Unit:
        """Make a unit of its own, with the same holder, of some of the messages that are left of one that is held."""
        holder = unit.holder
        assert holder is not None
        before = unit.message_count
        unit.subtract(ranges)
        unit.permits = unit.message_count  # a consumer that gets them one by one pays for them one by one
        other = Unit(
            unit.entry,
            unit.base_offset,
            unit.end_offset,
            offsets=tuple(ranges),
            message_count=before - unit.message_count,
            permits=before - unit.message_count,
            slot=unit.slot,
        )
        other.redelivery_count = unit.redelivery_count
        if other.redelivery_count:
            self.counted.add(other)
        other.place, other.holder = HELD, holder
        holder.held.add(other)
        self._index.add_beside(unit, other)
        return other

    def give_back(self, units: Iterable[Unit], *, counts: bool) -> Actions:
        """Units that are held wait again; whether that counts as a delivery that was of no use."""
        for unit in units:
            if counts:
                unit.redelivery_count += 1
                self.counted.add(unit)
            self._take_back(unit)
        return self._pump()

    def limit_unacked(self, limits: UnackedLimits) -> Actions:
        if limits.subscription != self.unacked_messages_max:
            self.unacked_messages_max = limits.subscription
            self.blocked = self.unacked_messages >= limits.subscription > 0
        for consumer in self.consumers:
            if limits.consumer != consumer.unacked_messages_max:
                consumer.unacked_messages_max = limits.consumer
                consumer.blocked = consumer.unacked_messages >= limits.consumer > 0
                if consumer.available:
                    self._available(consumer)
        return self._pump()

    def pending(self, ranges: Iterable[OffsetRange], count_of: Callable[[Unit], int]) -> Actions:
        for start, stop in ranges:
            for unit in self._index.overlapping(start, stop):
                holder = unit.holder
                if holder is not None:
                    count = count_of(unit)
                    self._release(holder, count - self._pending.pop(unit, 0))
                    if count:
                        self._pending[unit] = count
        return self._pump() if self._stirred else []

    def tick(self, now_ms: int) -> Actions:
        if self._delayed:
            self._delayed.ripen(now_ms)
        return self._go_on() if self._returning or self._has_more else []

    def wanted(self) -> int:
        return 0 if self._keeps_new else self._wanted()

    def wanted_due(self) -> int:
        # Like all that comes back they go out although too much is unacknowledged.
        return self._wanted() if self._delayed.has_due and not self._returning else 0

    def _wanted(self) -> int:
        permits = self._permits(READ_ENTRIES_MAX * self._messages_per_entry)
        return self._entries_for(permits, self.look_ahead_left())

    def due(self, count: int) -> list[int]:
        return self._delayed.due(count)

    @property
    def next_tick_ms(self) -> int | None:
        return 0 if self._returning or self._has_more else self._delayed.next_tick_ms

    def rows(self, row_bytes: int) -> int:
        return self._index.unit_count + self._delayed.size_bytes // row_bytes

    @property
    def unit_count(self) -> int:
        return self._index.unit_count

    @property
    def delayed_count(self) -> int:
        return len(self._delayed)

    @property
    def delayed_bytes(self) -> int:
        return self._delayed.size_bytes

    @property
    def waiting_count(self) -> int:
        return self._waiting

    def rewind(self) -> None:
        for unit in self._index:
            unit.place = DONE
            unit.holder = None
        self._index.clear()
        self._delayed.clear()
        self._pending.clear()
        self._returning.clear()
        self._has_more = False
        self.counted.clear()
        self._forget()
        for consumer in self.consumers:
            consumer.held.clear()
            consumer.unacked_messages = 0
            consumer.blocked = False
            if consumer.available:
                self._available(consumer)
        self._waiting = 0
        self.unacked_messages = 0
        self.blocked = False

    def look_ahead_left(self) -> int:
        """Units that may still be read although some wait for a particular consumer."""
        limit = min(LOOK_AHEAD_MAX, LOOK_AHEAD_PER_CONSUMER * len(self.consumers))
        return limit - self._waiting

    # Bookkeeping, for the subclasses too.

    @property
    def _keeps_new(self) -> bool:
        """Whether nothing goes out now that has not been delivered before."""
        return self.blocked or bool(self._returning)

    def _go_on(self) -> Actions:
        """Take some back of what is to come back, and deliver."""
        left = UNITS_AT_ONCE
        for holder, units in list(self._returning.items()):
            while units and left:
                left -= 1
                unit, _ = units.popitem(last=False)
                if unit.holder is holder:  # not acknowledged meanwhile
                    self._take_back(unit)
            if not units:
                del self._returning[holder]
        return self._pump()

    def _hold(self, unit: Unit, consumer: Consumer) -> None:
        """A waiting unit goes to a consumer."""
        count = unit.message_count
        self._waiting -= 1
        unit.place = HELD
        unit.holder = consumer
        consumer.held.add(unit)
        consumer.permits -= unit.permits
        consumer.unacked_messages += count
        self.unacked_messages += count
        if consumer.unacked_messages >= consumer.unacked_messages_max > 0:
            consumer.blocked = True
        if self.unacked_messages >= self.unacked_messages_max > 0:
            self.blocked = True

    def _take_back(self, unit: Unit) -> None:
        """A held unit waits again."""
        holder = unit.holder
        assert holder is not None
        holder.held.discard(unit)
        unit.holder = None
        self._waiting += 1
        self._release(holder, unit.message_count - self._pending.pop(unit, 0))
        self._let_go(unit, holder)
        self._returned(unit)

    def _acked_partly(self, unit: Unit, gone: int) -> None:
        if unit.place is HELD:
            assert unit.holder is not None
            pending = self._pending.pop(unit, 0)
            if pending > gone:
                self._pending[unit] = pending - gone
            self._release(unit.holder, gone - min(pending, gone))

    def _finish(self, unit: Unit) -> None:
        """A unit is acknowledged, wherever it is."""
        self._index.remove(unit)
        if unit.redelivery_count:
            self.counted.discard(unit)
        place = unit.place
        unit.place = DONE
        if place is HELD:
            holder = unit.holder
            assert holder is not None
            holder.held.discard(unit)
            unit.holder = None
            self._release(holder, unit.message_count - self._pending.pop(unit, 0))
            self._let_go(unit, holder)
        else:
            self._waiting -= 1
            self._withdrawn(unit, place)

    def _release(self, holder: Consumer, count: int) -> None:
        """So many messages are no longer unacknowledged at their holder."""
        holder.unacked_messages -= count
        self.unacked_messages -= count
        if holder.blocked and holder.unacked_messages <= holder.unacked_messages_max // 2:
            holder.blocked = False
            if holder.available and holder in self._members:
                self._available(holder)
                self._stirred = True
        if self.blocked and self.unacked_messages <= self.unacked_messages_max // 2:
            self.blocked = False
            self._stirred = True

    # What the subclasses decide.

    @abstractmethod
    def _admit(self, consumer: Consumer) -> None:
        """A consumer joins, or is refused by an exception before anything has changed."""

    @abstractmethod
    def _dismiss(self, consumer: Consumer) -> None:
        """A consumer has left; what it holds is taken back after this."""

    @abstractmethod
    def _available(self, consumer: Consumer) -> None:
        """A consumer may be given units (again)."""

    @abstractmethod
    def _permits(self, enough: float) -> int:
        """Messages that available consumers have asked for, counted until there are `enough`."""

    @abstractmethod
    def _arrived(self, unit: Unit) -> None:
        """A new unit waits."""

    @abstractmethod
    def _returned(self, unit: Unit) -> None:
        """A unit waits (again) that was held or delayed; it may be older than others that wait."""

    @abstractmethod
    def _withdrawn(self, unit: Unit, place: Place) -> None:
        """A unit that waited at `place` is acknowledged."""

    @abstractmethod
    def _let_go(self, unit: Unit, holder: Consumer) -> None:
        """A consumer does not hold this unit any more."""

    @abstractmethod
    def _forget(self) -> None:
        """Nothing is known of any unit any more."""

    @abstractmethod
    def _pump(self) -> Actions:
        """Deliver what can be delivered, `UNITS_AT_ONCE` or about as many; `_has_more` says whether that is all, and
        `_stirred` is False afterwards.
        """

"""One share consumer at one partition: the records that the dispatcher has given it, and its acknowledgements.

The consumer gets records only while one of its fetches waits.  It holds a record for some time (the lock).  Then the
record goes to any consumer of the subscription, of either protocol.  A record that the consumer releases, or whose lock
ends, was delivered in vain.  When that has happened as often as the group's rules allow, the record is acknowledged,
and no consumer gets it any more.  A record that goes back because its consumer is gone does not count as delivered.

Units are entries.  If a consumer acknowledges only some records of an entry, these become a unit of their own.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from magnetar.base.clock import Clock, TimerHandle
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range, intersection
from magnetar.broker.subscriptions.consumer import ConsumerPort, OutboxConsumer, OutboxOwner
from magnetar.broker.subscriptions.delivery_counts import DeliveryCounts
from magnetar.broker.subscriptions.dispatch.model import Actions, Unit
from magnetar.broker.subscriptions.dispatch.multi import MultiConsumerDispatcher
from magnetar.broker.subscriptions.model import (
    Acknowledge,
    Acknowledged,
    Acquired,
    ConsumerSpec,
    Delivery,
    ShareRules,
)
from magnetar.ledger.cursor import Cursor

Burial: TypeAlias = asyncio.Task[None]

REJECTED: Final = "Offset rejected by client."
SPENT: Final = "Offset delivery count exceeded the threshold."
DELIVERY_COUNT_MAX: Final = (1 << 15) - 1  # what the protocol can say


class SharedSubscription(OutboxOwner, Protocol):
    """A subscription as share consumers use it."""

    @property
    def partition(self) -> Partition: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def dispatcher(self) -> object: ...
    @property
    def is_closed(self) -> bool: ...
    def carry_out(self, actions: Actions) -> None: ...
    @property
    def counts(self) -> DeliveryCounts: ...
    def advance(self, ranges: Sequence[Range], member: "OutboxConsumer | None" = None) -> None:
        """Acknowledge ranges of offsets."""
        ...


class SharePort(ConsumerPort):
    """Calls `arrived` when records have come while a fetch waits.

    `bury` begins to write the dead letters of units, with the cause, and calls the consumer's `buried` or `not_buried`.
    """

    def __init__(
        self,
        clock: Clock,
        rules: Callable[[], ShareRules],
        arrived: Callable[[], None],
        bury: "Callable[[ShareConsumer, Sequence[Unit], str], Burial]",
    ) -> None:
        self.clock = clock
        self.rules = rules
        self.arrived = arrived
        self.bury = bury
        self.is_asking = False
        self.is_closed = False

    @property
    def is_writable(self) -> bool:
        return self.is_asking

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        raise AssertionError("a share consumer takes units")

    def active_changed(self, is_active: bool) -> None:
        """Never called: only consumers of Failover subscriptions become active."""

    def reached_end(self) -> None:
        """Does nothing: Kafka's protocol has no such message."""

    def closed(self) -> None:
        self.is_closed = True
        self.arrived()


class ShareConsumer(OutboxConsumer):
    """See the module's text."""

    takes_bare = True

    __slots__ = (
        "__weakref__",
        "_archiving",
        "_deadlines",
        "_port",
        "_subscription",
        "_timer",
        "burials",
        "fresh",
    )

    def __init__(
        self,
        subscription: SharedSubscription,
        spec: ConsumerSpec,
        port: SharePort,
        connected_since_ms: int,
        unacked_messages_max: int,
    ) -> None:
        super().__init__(subscription, spec, port, connected_since_ms, unacked_messages_max)
        self._port = port
        self._subscription = subscription
        self.fresh: list[Unit] = []  # units that no fetch has taken yet
        self._deadlines: dict[Unit, float] = {}  # the ends of its locks, ascending
        self._timer: TimerHandle | None = None
        self._archiving: set[Unit] = set()  # units that it holds until their dead letters are durable
        self.burials: list[Burial] = []  # begun by acknowledgements, whose request waits for them

    @property
    def takes_undecided(self) -> bool:  # type: ignore[override]
        return not self._port.rules().reads_committed

    @property
    def _dispatcher(self) -> MultiConsumerDispatcher | None:
        """None after the subscription has dropped its dispatcher."""
        found = self._subscription.dispatcher
        if isinstance(found, MultiConsumerDispatcher) and self.state in found.consumers:
            return found
        return None

    @property
    def is_connected(self) -> bool:
        return self._dispatcher is not None

    @property
    def holds_any(self) -> bool:
        return bool(self.state.held)

    # --- fetching ----------------------------------------------------------------------------------------------------

    def ask(self, records_max: int) -> None:
        """A fetch waits for up to `records_max` records; the last batch comes whole."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        dispatcher.unacked_messages_max = self._port.rules().locks_max
        self._port.is_asking = True
        self.state.permits = min(self.state.permits, 0)
        self._subscription.writable(self, True)
        self._subscription.flow(self, records_max - self.state.permits)

    def rest(self) -> None:
        """No fetch waits."""
        if self._port.is_asking:
            self._port.is_asking = False
            if (dispatcher := self._dispatcher) is not None:
                self._subscription.carry_out(dispatcher.set_writable(self.state, False))

    def drain(self, subscription: OutboxOwner) -> None:
        """Take the units that the dispatcher has assigned; the use case that answers the fetch reads their bytes."""
        deadline = self._port.clock.monotonic() + self._port.rules().lock_ms / 1000
        while self.outbox:
            unit = self.outbox.popleft()
            unit.payload = None
            self.fresh.append(unit)
            self._deadlines[unit] = deadline
        self._watch()
        self._port.arrived()

    def take(self) -> list[Unit]:
        """The units that have come since the last call and that it still holds, by offset."""
        found = [unit for unit in self.fresh if unit.holder is self.state]
        self.fresh.clear()
        return sorted(found, key=lambda unit: left(unit)[0])

    def sent(self, unit: Unit, size: int) -> None:
        """Note that a response has a unit, with this many bytes."""
        messages = unit.message_count
        redelivered = messages if unit.redelivery_count else 0
        self._subscription.count(messages, redelivered)
        self._subscription.pace.used(messages, size)
        self.bytes_out += size
        self.messages_out += messages
        self.messages_redelivered += redelivered

    def holds(self, unit: Unit) -> bool:
        return unit.holder is self.state

    def cut_behind(self, unit: Unit, count: int) -> list[Unit]:
        """Leave `count` records in a unit that it holds, and make a unit of the others."""
        dispatcher = self._dispatcher
        behind: list[Range] = []
        for start, stop in left(unit):
            kept = min(count, stop - start)
            count -= kept
            if start + kept < stop:
                behind.append((start + kept, stop))
        if dispatcher is None or not behind or unit.holder is not self.state:
            return []
        other = dispatcher.cut_off(unit, behind)
        self._deadlines[other] = self._deadlines.get(unit, 0.0)
        return [other]

    def give_back_unsent(self, units: Iterable[Unit]) -> None:
        """Give units back that could not be sent; they do not count as delivered."""
        self._give_back([unit for unit in units if unit.holder is self.state], counts=False)

    def gone(self, units: Sequence[Unit]) -> None:
        """Acknowledge units whose records the log does not have any more."""
        self._subscription.advance([limits for unit in units for limits in left(unit)])

    def release_all(self) -> None:
        """Give all units back; they do not count as delivered."""
        self.fresh.clear()
        held = sorted(self.state.held - self._archiving, key=lambda unit: unit.order)
        self._give_back(held, counts=False)

    # --- acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(self, said: Sequence[Acknowledged]) -> bool:
        """Apply the acknowledgements of ascending ranges; False, without any change, if it does not hold all of them.

        Records below the subscription's position are ignored.
        """
        dispatcher = self._dispatcher
        if dispatcher is None:
            return False
        done: list[Range] = []
        rejected: list[Range] = []
        returned: list[Range] = []
        renewed: list[Range] = []
        mark_delete = self._subscription.cursor.mark_delete
        for start, stop, kind in said:
            start = max(start, mark_delete)
            if start >= stop:
                continue
            if not self._holds(dispatcher, start, stop):
                return False
            if kind is Acknowledge.RELEASE:
                returned.append((start, stop))
            elif kind is Acknowledge.RENEW:
                renewed.append((start, stop))
            elif kind is Acknowledge.REJECT and self._port.rules().dead_letter_topic:
                rejected.append((start, stop))
            else:
                done.append((start, stop))
        self._renew(self._cut_out(dispatcher, renewed))
        back = self._cut_out(dispatcher, returned)
        lost = self._cut_out(dispatcher, rejected)
        if done:
            self._subscription.advance(done, self)
        for burial in (self._archive(lost, REJECTED), self._give_back(back, counts=True)):
            if burial is not None:
                self.burials.append(burial)
        self._watch()
        return True

    def _cut_out(self, dispatcher: MultiConsumerDispatcher, ranges: Iterable[Range]) -> list[Unit]:
        """Cut its units so that some have exactly what it holds of these ranges, and return those."""
        return [
            self._cut(dispatcher, unit, limits)
            for limits in ranges
            for unit in dispatcher.held_in(self.state, *limits)
            if intersection(left(unit), [limits])
        ]

    def _holds(self, dispatcher: MultiConsumerDispatcher, start: int, stop: int) -> bool:
        held = 0
        for unit in dispatcher.held_in(self.state, start, stop):
            if unit in self._archiving:
                continue
            held += sum([high - low for low, high in intersection(left(unit), [(start, stop)])])
        return held == stop - start

    def _cut(self, dispatcher: MultiConsumerDispatcher, unit: Unit, limits: Range) -> Unit:
        """Cut the unit; returns the part that lies in the range."""
        inside = intersection(left(unit), [limits])
        if list(inside) == list(left(unit)):
            return unit
        other = dispatcher.cut_off(unit, inside)
        self._deadlines[other] = self._deadlines.get(unit, 0.0)
        return other

    def _give_back(self, units: Sequence[Unit], *, counts: bool) -> Burial | None:
        """Give units back; returns the task that writes dead letters, if some were delivered too often."""
        dispatcher = self._dispatcher
        if dispatcher is None or not units:
            return None
        last = self._port.rules().deliveries_max - 1
        spent = [unit for unit in units if counts and unit.redelivery_count >= last]
        for unit in units:
            self._deadlines.pop(unit, None)
        burial = self._archive(spent, SPENT)
        back = [unit for unit in units if unit.holder is self.state and unit not in self._archiving]
        self._subscription.carry_out(dispatcher.give_back(back, counts=counts))
        if counts:
            self._subscription.counts.changed()
        return burial

    # --- giving up ---------------------------------------------------------------------------------------------------

    def _archive(self, units: Sequence[Unit], cause: str) -> Burial | None:
        """Give units up: they are acknowledged, after their dead letters if the group has such."""
        if not units:
            return None
        if not self._port.rules().dead_letter_topic:
            self._subscription.advance([limits for unit in units for limits in left(unit)])
            return None
        for unit in units:
            self._deadlines.pop(unit, None)
        self._archiving.update(units)
        return self._port.bury(self, units, cause)

    def buried(self, ranges: Sequence[Range], units: Sequence[Unit]) -> None:
        """Acknowledge `ranges` of units whose dead letters are durable, or cannot be written."""
        self._archiving.difference_update(units)
        if not self._subscription.is_closed:
            self._subscription.advance(ranges, self)

    def not_buried(self, units: Sequence[Unit]) -> None:
        """Give units back whose dead letters could not be stored; later the group gives them up again."""
        self._archiving.difference_update(units)
        self._give_back([unit for unit in units if unit.holder is self.state], counts=False)

    # --- time --------------------------------------------------------------------------------------------------------

    def _renew(self, units: Sequence[Unit]) -> None:
        deadline = self._port.clock.monotonic() + self._port.rules().lock_ms / 1000
        for unit in units:
            self._deadlines.pop(unit, None)
            self._deadlines[unit] = deadline

    def _watch(self) -> None:
        """Set the timer to the end of the first lock."""
        while self._deadlines:
            unit, deadline = next(iter(self._deadlines.items()))
            if unit.holder is self.state:
                break
            del self._deadlines[unit]  # it is acknowledged, or another consumer holds it
        if self._timer is None and self._deadlines:
            delay_s = deadline - self._port.clock.monotonic()
            self._timer = self._port.clock.call_later(max(delay_s, 0.0), self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = self._port.clock.monotonic()
        over = [
            unit
            for unit, deadline in self._deadlines.items()
            if deadline <= now_s and unit.holder is self.state
        ]
        self._give_back(over, counts=True)
        self._watch()

    def stop(self) -> None:
        """The consumer is gone: stop its timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()
        self.fresh.clear()


def acquired_ranges(units: Sequence[Unit], batch_max: int) -> list[Acquired]:
    """The ranges that a response names for its units, ascending: neighbours are joined, up to `batch_max` records."""
    found: list[Acquired] = []
    for unit in units:
        count = min(unit.redelivery_count + 1, DELIVERY_COUNT_MAX)
        for start, stop in left(unit):
            last = found[-1] if found else None
            if last and (last.stop, last.delivery_count) == (start, count) and stop - last.start <= batch_max:
                found[-1] = Acquired(last.start, stop, count)
            else:
                found.append(Acquired(start, stop, count))
    return sorted(found)


def left(unit: Unit) -> Sequence[Range]:
    """The offsets of a unit that are not acknowledged."""
    return ((unit.base_offset, unit.end_offset),) if unit.offsets is None else unit.offsets

"""Every unit to any consumer that can take it (Shared).

Consumers of the lowest priority level with permits take turns of up to 20 messages; units that came back go out
before new ones, in the order of the log.  Cumulative acknowledgements make no sense here and are the shell's to
ignore (as Pulsar's `Consumer.messageAcked` does, with a log line).

The chunks of one large message go to one consumer; otherwise no consumer could put them together.  While a consumer
holds or is to get a chunk of a uuid, the others of that uuid wait for it (`parked`), even if it is another consumer's
turn.
"""

from collections import deque

from magnetar.broker.subscriptions.dispatch.delayed import TICK_MS
from magnetar.broker.subscriptions.dispatch.model import (
    Actions,
    Consumer,
    Deliver,
    Place,
    Unit,
)
from magnetar.broker.subscriptions.dispatch.multi import UNITS_AT_ONCE, MultiConsumerDispatcher
from magnetar.broker.subscriptions.dispatch.redelivery import WaitingUnits
from magnetar.broker.subscriptions.dispatch.ring import ConsumerRing
from magnetar.broker.subscriptions.model import SubscriptionType

REPLAY, PARKED, DONE = Place.REPLAY, Place.PARKED, Place.DONE
TURN_MESSAGES_MAX = 20  # dispatcherMaxRoundRobinBatchSize


class ChunkOwner:
    """The consumer that gets all chunks of one message, and how many it holds or is to get."""

    __slots__ = ("consumer", "count")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.count = 0


class SharedDispatcher(MultiConsumerDispatcher):
    """Round robin."""

    type = SubscriptionType.SHARED

    def __init__(
        self,
        *,
        unacked_messages_max: int = 0,
        tick_ms: int = TICK_MS,
        turn_messages_max: int = TURN_MESSAGES_MAX,
    ) -> None:
        super().__init__(unacked_messages_max=unacked_messages_max, tick_ms=tick_ms)
        self._ring = ConsumerRing()
        self._replay = WaitingUnits()
        self._fresh: deque[Unit] = deque()
        self._chunks: dict[str, ChunkOwner] = {}
        self._parked: dict[Consumer, WaitingUnits] = {}
        self._with_parked: list[Consumer] = []  # available, and units wait for just them
        self._turn_messages_max = turn_messages_max

    def _permits(self, enough: float) -> int:
        return self._ring.permits(enough)

    def _admit(self, consumer: Consumer) -> None:
        if consumer.available:
            self._ring.join(consumer)

    def _dismiss(self, consumer: Consumer) -> None:
        self._ring.leave(consumer)
        parked = self._parked.pop(consumer, None)
        while parked is not None and (unit := parked.take()) is not None:
            self._leave_chunks(unit)
            self._returned(unit)

    def _available(self, consumer: Consumer) -> None:
        self._ring.join(consumer)
        if consumer in self._parked:
            self._with_parked.append(consumer)

    def _arrived(self, unit: Unit) -> None:
        self._fresh.append(unit)

    def _returned(self, unit: Unit) -> None:
        unit.place = REPLAY
        self._replay.put(unit)

    def _withdrawn(self, unit: Unit, place: Place) -> None:
        if place is REPLAY:
            self._replay.forget_one()
        elif place is PARKED:
            assert unit.chunk_id is not None
            self._parked[self._chunks[unit.chunk_id].consumer].forget_one()
            self._leave_chunks(unit)

    def _let_go(self, unit: Unit, holder: Consumer) -> None:
        if unit.chunk_id is not None:
            self._leave_chunks(unit)

    def _forget(self) -> None:
        self._replay.clear()
        self._fresh.clear()
        self._chunks.clear()
        self._parked.clear()
        self._with_parked.clear()

    def _leave_chunks(self, unit: Unit) -> None:
        assert unit.chunk_id is not None
        owner = self._chunks[unit.chunk_id]
        owner.count -= 1
        if not owner.count:
            del self._chunks[unit.chunk_id]

    def _pump(self) -> Actions:
        self._stirred = False
        actions: Actions = []
        while self._with_parked:
            self._unpark(self._with_parked.pop(), actions)
        replay, fresh, ring = self._replay, self._fresh, self._ring
        left = UNITS_AT_ONCE
        self._has_more = False
        while replay or (fresh and not self._keeps_new):
            if left <= 0:
                self._has_more = True
                break
            consumer = ring.next()
            if consumer is None:
                break
            units = self._turn(consumer, actions)
            if not units:
                ring.stay(consumer)
                continue
            left -= len(units)
            last = actions[-1] if actions else None
            if type(last) is Deliver and last.consumer is consumer:
                last.units.extend(units)
            else:
                actions.append(Deliver(consumer, units))
        return actions

    def _turn(self, consumer: Consumer, actions: Actions) -> list[Unit]:
        """What a consumer gets in its turn; chunks that belong to others go to them on the way."""
        left = UNITS_AT_ONCE if self._ring.is_alone(consumer) else self._turn_messages_max
        replay, fresh = self._replay, self._fresh
        units: list[Unit] = []
        while left > 0 and consumer.permits > 0 and not consumer.blocked:
            if replay:
                unit = replay.take()
                assert unit is not None
            elif fresh and not self._keeps_new:
                unit = fresh.popleft()
                if unit.place is DONE:
                    continue
            else:
                break
            if unit.chunk_id is not None:
                owner = self._owner_of_chunk(unit.chunk_id, consumer)
                if owner is not consumer:
                    self._pass_on(unit, owner, actions)
                    continue
            self._hold(unit, consumer)
            units.append(unit)
            left -= unit.permits
        return units

    def _owner_of_chunk(self, chunk_id: str, consumer: Consumer) -> Consumer:
        """The consumer of one more chunk of this message: `consumer`, unless another consumer has others of it."""
        owner = self._chunks.get(chunk_id)
        if owner is None:
            owner = self._chunks[chunk_id] = ChunkOwner(consumer)
        owner.count += 1
        return owner.consumer

    def _pass_on(self, unit: Unit, owner: Consumer, actions: Actions) -> None:
        if owner.available:
            self._hold(unit, owner)
            actions.append(Deliver(owner, [unit]))
        else:
            unit.place = PARKED
            self._parked.setdefault(owner, WaitingUnits()).put(unit)

    def _unpark(self, consumer: Consumer, actions: Actions) -> None:
        """Give an available consumer what waits for it alone."""
        parked = self._parked.get(consumer)
        units: list[Unit] = []
        while parked is not None and consumer.available:
            unit = parked.take()
            if unit is None:
                del self._parked[consumer]
                break
            self._hold(unit, consumer)
            units.append(unit)
        if units:
            actions.append(Deliver(consumer, units))

"""Every key to one consumer at a time, in order (Key_Shared, PIP-379).

Keys are hashed to slots, and a selector gives every slot an owner.  What makes the contract is one rule per slot:

    a unit goes out only to the owner of its slot, and only as the oldest that waits in its slot.  No other consumer may
    hold a unit of the slot then.

So a slot that moves to another consumer is drained by itself.  The dispatcher counts the units that the former owner
holds.  New units of the slot wait until these are acknowledged, come back, or their holder leaves.  All other slots go
on.  A redelivered unit is the oldest of its slot again; asking for it gives up the order, never the exclusiveness.

Slots are kept only while something of them is held or waits.  A consumer has a heap of the slots that may go out to
it, by their oldest units, so a slot that waits costs nothing to the others.  What waits is bounded
(`look_ahead_left`): behind a slow consumer the dispatcher reads ahead for the others, but not for ever.

With `allow_out_of_order` slots are not drained; a key may then be at two consumers after a membership change.
"""

from collections import deque
from heapq import heappop, heappush, heapreplace

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
from magnetar.broker.subscriptions.dispatch.selectors import DeclaredRanges, HashRing, Selector
from magnetar.broker.subscriptions.model import SubscriptionType

FRESH, REPLAY = Place.FRESH, Place.REPLAY
SLOTS_AT_ONCE = 5_000  # a microsecond each, or two


class Slot:
    """What is known of one hash while units of it are held or wait."""

    __slots__ = ("held", "holder", "number", "queued_at", "queued_order", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.holder: Consumer | None = None  # the one that holds units of it (the last one, if out of order)
        self.held = 0
        self.waiting: WaitingUnits | None = None
        # Where its one valid place in a consumer's heap is; any other is to be passed over.
        self.queued_at: Consumer | None = None
        self.queued_order = -1

    def __lt__(self, other: "Slot") -> bool:
        """Heaps compare slots only where a place is there twice, or for parts of one entry: either may come first."""
        return False

    def oldest(self) -> Unit | None:
        return None if self.waiting is None else self.waiting.first()


class KeySharedDispatcher(MultiConsumerDispatcher):
    """`sticky`: consumers declare their slots; otherwise slots are split by a ring."""

    type = SubscriptionType.KEY_SHARED

    def __init__(
        self,
        *,
        sticky: bool = False,
        allow_out_of_order: bool = False,
        unacked_messages_max: int = 0,
        tick_ms: int = TICK_MS,
    ) -> None:
        super().__init__(unacked_messages_max=unacked_messages_max, tick_ms=tick_ms)
        self.sticky = sticky
        self.allow_out_of_order = allow_out_of_order
        self._selector: Selector = DeclaredRanges() if sticky else HashRing()
        self._slots: dict[int, Slot] = {}
        self._unplaced: deque[Slot] = deque()  # whose owners may be others now: to be queued again
        self._heaps: dict[Consumer, list[tuple[int, Slot]]] = {}
        self._open = ConsumerRing()  # the available ones
        self._awake: set[Consumer] = set()  # to be served by the next pump
        self._held_up: dict[Slot, None] = {}  # their oldest is new, and nothing new goes out now
        self._outgoing: dict[Consumer, list[Unit]] = {}

    def owner(self, slot: int) -> Consumer | None:
        """The consumer to which a slot belongs now."""
        return self._selector.select(slot)

    def _permits(self, enough: float) -> int:
        return self._open.permits(enough)

    def _admit(self, consumer: Consumer) -> None:
        self._selector.add(consumer)
        self._heaps[consumer] = []
        if consumer.available:
            self._open.join(consumer)
        self._reassign()

    def _dismiss(self, consumer: Consumer) -> None:
        self._selector.remove(consumer)
        self._open.leave(consumer)
        self._awake.discard(consumer)
        del self._heaps[consumer]
        self._reassign()

    def _reassign(self) -> None:
        """Owners have changed: every slot that waits finds its new place."""
        for heap in self._heaps.values():
            heap.clear()
        self._held_up.clear()
        for slot in self._slots.values():
            slot.queued_at = None
        self._unplaced = deque(slot for slot in self._slots.values() if slot.waiting)

    def _available(self, consumer: Consumer) -> None:
        self._open.join(consumer)
        if self._heaps[consumer]:
            self._awake.add(consumer)

    def _arrived(self, unit: Unit) -> None:
        number = unit.slot
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(number)
        if not slot.waiting and not self._keeps_new:
            # The usual case: nothing of this slot waits, so it may go out at once.
            owner = self._selector.select(number)
            if owner is not None and owner.available and self._may_have(slot, owner):
                self._give(unit, slot, owner)
                return
        if slot.waiting is None:
            slot.waiting = WaitingUnits()
        slot.waiting.put(unit)
        if slot.queued_at is None:
            self._queue(slot)

    def _returned(self, unit: Unit) -> None:
        unit.place = REPLAY
        slot = self._slots.get(unit.slot)
        if slot is None:
            slot = self._slots[unit.slot] = Slot(unit.slot)
        if slot.waiting is None:
            slot.waiting = WaitingUnits()
        slot.waiting.put(unit)
        self._queue(slot)

    def _withdrawn(self, unit: Unit, place: Place) -> None:
        slot = self._slots[unit.slot]
        assert slot.waiting is not None
        slot.waiting.forget_one()
        if slot.waiting:
            if slot.queued_at is None:
                self._queue(slot)  # it was held up by a new unit, and what is oldest now may go out
        else:
            self._drop_if_empty(slot)

    def _let_go(self, unit: Unit, holder: Consumer) -> None:
        slot = self._slots[unit.slot]
        slot.held -= 1
        if slot.held:
            return
        slot.holder = None
        if slot.waiting:
            self._queue(slot)
        else:
            self._drop_if_empty(slot)

    def _forget(self) -> None:
        self._slots.clear()
        self._unplaced.clear()
        self._held_up.clear()
        self._awake.clear()
        for heap in self._heaps.values():
            heap.clear()

    def _drop_if_empty(self, slot: Slot) -> None:
        if not slot.held and not slot.waiting:
            slot.queued_at = None
            del self._slots[slot.number]

    def _may_have(self, slot: Slot, owner: Consumer) -> bool:
        """Whether a slot is not being drained by another consumer."""
        return slot.holder is None or slot.holder is owner or self.allow_out_of_order

    def _queue(self, slot: Slot) -> None:
        """Give a slot its place in the heap of the consumer to which its oldest unit may go."""
        oldest = slot.oldest()
        if oldest is None:
            return
        owner = self._selector.select(slot.number)
        if owner is None or not self._may_have(slot, owner):
            slot.queued_at = None
            return
        if slot.queued_at is not owner or slot.queued_order != oldest.order:
            slot.queued_at = owner
            slot.queued_order = oldest.order
            heappush(self._heaps[owner], (oldest.order, slot))
        if owner.available:
            self._awake.add(owner)
            self._stirred = True

    def _give(self, unit: Unit, slot: Slot, owner: Consumer) -> None:
        slot.held += 1
        slot.holder = owner
        self._hold(unit, owner)
        units = self._outgoing.get(owner)
        if units is None:
            self._outgoing[owner] = [unit]
        else:
            units.append(unit)

    def _pump(self) -> Actions:
        self._stirred = False
        if self._held_up and not self._keeps_new:
            slots, self._held_up = self._held_up, {}
            for slot in slots:
                if self._slots.get(slot.number) is slot:
                    self._queue(slot)
        for _ in range(min(SLOTS_AT_ONCE, len(self._unplaced))):
            slot = self._unplaced.popleft()
            if slot.queued_at is None and self._slots.get(slot.number) is slot:
                self._queue(slot)
        left = UNITS_AT_ONCE
        while self._awake and left > 0:
            left -= self._serve(self._awake.pop(), left)
        self._has_more = bool(self._awake or self._unplaced)
        self._stirred = False
        actions: Actions = [Deliver(consumer, units) for consumer, units in self._outgoing.items()]
        self._outgoing.clear()
        return actions

    def _serve(self, consumer: Consumer, units_max: int) -> int:
        """Give a consumer the oldest that waits for it, as far as it may have more; how many units it got."""
        heap = self._heaps[consumer]
        count = 0
        while heap and consumer.available:
            if count == units_max:
                self._awake.add(consumer)
                break
            order, slot = heap[0]
            if slot.queued_at is not consumer or slot.queued_order != order:
                heappop(heap)
                continue
            oldest = slot.oldest()
            if oldest is None:
                heappop(heap)
                slot.queued_at = None
                continue
            if oldest.order != order:  # what was the oldest is acknowledged
                slot.queued_order = oldest.order
                heapreplace(heap, (oldest.order, slot))
                continue
            if self._keeps_new and oldest.place is FRESH:
                heappop(heap)
                slot.queued_at = None
                self._held_up[slot] = None
                continue
            assert slot.waiting is not None
            slot.waiting.take()
            self._give(oldest, slot, consumer)
            count += 1
            following = slot.oldest()
            if following is None:
                heappop(heap)
                slot.queued_at = None
            else:
                slot.queued_order = following.order
                heapreplace(heap, (following.order, slot))
        return count

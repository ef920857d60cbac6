"""How often records were delivered in vain: from the dispatcher into the cursor, and back."""

from dataclasses import dataclass, field

from magnetar.broker.subscriptions.delivery_counts import HAS_SHARERS, DeliveryCounts, with_counts
from magnetar.broker.subscriptions.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.subscriptions.dispatch.model import Consumer, Deliver, Dispatcher, Unit
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher
from magnetar.ledger.cursor import Counted, Cursor


def unit(base: int, end: int, count: int = 0, offsets: list[tuple[int, int]] | None = None) -> Unit:
    made = Unit((1, base), base, end, offsets=offsets)
    made.redelivery_count = count
    return made


def shown(units: list[Unit]) -> list[tuple[list[tuple[int, int]], int]]:
    return [(list(one.offsets or [(one.base_offset, one.end_offset)]), one.redelivery_count) for one in units]


@dataclass
class OneSubscription:
    """A subscription as its counts see it, with one consumer."""

    dispatcher: Dispatcher = field(default_factory=SharedDispatcher)
    cursor: Cursor = field(default_factory=lambda: Cursor(properties={HAS_SHARERS: ""}))
    offered_to: int = 0
    changes: int = 0

    def __post_init__(self) -> None:
        self.counts = DeliveryCounts(self, lambda: self.offered_to)
        self.consumer = Consumer(None, "c")
        self.dispatcher.add_consumer(self.consumer)

    def changed(self) -> None:
        self.changes += 1

    def noted(self) -> tuple[Counted, ...]:
        """What the cursor knows once that is asked for."""
        self.counts.note()
        return self.cursor.counted

    def offer(self, *units: Unit) -> list[Unit]:
        """What its consumer is given of these."""
        self.dispatcher.flow(self.consumer, 100)
        given = self.dispatcher.offer(self.counts.with_known(list(units)), 0)
        self.offered_to = units[-1].end_offset
        return [one for action in given if isinstance(action, Deliver) for one in action.units]


def test_what_was_never_delivered_in_vain_costs_nothing() -> None:
    one = OneSubscription()
    units = [unit(0, 5), unit(5, 6)]
    assert one.counts.with_known(units) is units
    one.offer(*units)
    assert (one.noted(), one.changes) == ((), 0)


def test_the_cursor_knows_what_was_delivered_in_vain_until_it_is_acknowledged() -> None:
    one = OneSubscription()
    units = one.offer(unit(0, 3), unit(3, 4), unit(4, 8))
    one.dispatcher.redeliver(one.consumer, [0, 3])
    one.dispatcher.redeliver(one.consumer, [3])
    assert one.noted() == (Counted(0, 3, 1), Counted(3, 4, 2))
    assert one.changes == 1
    assert one.noted()
    assert one.changes == 1, "nothing is new"
    one.dispatcher.acked([(1, 2), (3, 4)])
    assert one.noted() == (Counted(0, 1, 1), Counted(2, 3, 1))
    one.dispatcher.acked([(one.base_offset, one.end_offset) for one in units])
    assert one.noted() == ()


def test_neighbours_of_one_count_are_one_range() -> None:
    one = OneSubscription()
    one.offer(*(unit(at, at + 1) for at in range(10)))
    one.dispatcher.redeliver(one.consumer)
    assert one.noted() == (Counted(0, 10, 1),)


def test_a_record_that_was_cut_off_keeps_its_count() -> None:
    one = OneSubscription()
    assert isinstance(one.dispatcher, SharedDispatcher)
    (all_of_it,) = one.offer(unit(0, 3, 2))
    one.dispatcher.cut_off(all_of_it, [(1, 2)])
    assert one.noted() == (Counted(0, 3, 2),)


def test_what_is_not_read_again_yet_keeps_its_count() -> None:
    one = OneSubscription()
    one.cursor.counted = (Counted(0, 2, 1), Counted(3, 9, 4))
    assert shown(one.offer(unit(0, 4), unit(4, 6))) == [
        ([(0, 2)], 1),
        ([(2, 3)], 0),
        ([(3, 4)], 4),
        ([(4, 6)], 4),
    ]
    one.dispatcher.acked([(0, 2)])
    assert one.noted() == (Counted(3, 6, 4), Counted(6, 9, 4))
    assert shown(one.offer(unit(6, 12))) == [([(6, 9)], 4), ([(9, 12)], 0)]


def test_what_is_read_anew_is_counted_once() -> None:
    one = OneSubscription()
    one.offer(unit(0, 3))
    one.dispatcher.redeliver(one.consumer)
    assert one.noted() == (Counted(0, 3, 1),)
    one.dispatcher.rewind()
    one.offered_to = 0
    assert one.noted() == (Counted(0, 3, 1),)
    assert shown(one.offer(unit(0, 3))) == [([(0, 3)], 1)]
    assert one.noted() == (Counted(0, 3, 1),)


def test_counts_of_pulsars_subscriptions_are_forgotten_with_their_consumers() -> None:
    one = OneSubscription(cursor=Cursor())
    one.offer(unit(0, 3))
    one.dispatcher.redeliver(one.consumer)
    one.counts.changed()
    assert (one.noted(), one.changes) == ((), 0)


def test_a_consumer_that_gets_everything_in_order_gets_whole_entries() -> None:
    one = OneSubscription(ExclusiveDispatcher())
    one.cursor.counted = (Counted(0, 2, 1),)
    units = [unit(0, 4)]
    assert one.counts.with_known(units) is units
    assert shown(units) == [([(0, 4)], 0)]
    assert one.noted() == (Counted(0, 2, 1),)


def test_a_unit_whose_records_differ_is_cut() -> None:
    counted = [Counted(2, 4, 3), Counted(5, 6, 1), Counted(10, 30, 2)]
    found = with_counts([unit(0, 6), unit(6, 8), unit(8, 20, 0, [(8, 9), (12, 13)]), unit(20, 25)], counted)
    assert shown(found) == [
        ([(0, 2), (4, 5)], 0),
        ([(2, 4)], 3),
        ([(5, 6)], 1),
        ([(6, 8)], 0),
        ([(8, 9)], 0),
        ([(12, 13)], 2),
        ([(20, 25)], 2),
    ]
    assert [one.permits for one in found[:3]] == [3, 2, 1]

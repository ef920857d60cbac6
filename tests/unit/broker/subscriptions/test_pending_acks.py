"""What open transactions have acknowledged, against sets of offsets."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

KEY = CursorKey("s", "t", 0)
OFFSETS = 40

owners = st.lists(st.integers(0, 3), min_size=OFFSETS, max_size=OFFSETS)
"""For each offset the transaction that has acknowledged it; 0: none."""
spans = st.lists(st.tuples(st.integers(0, OFFSETS - 1), st.integers(1, 6)), max_size=6).map(
    lambda found: [(start, start + length) for start, length in found]
)


def _ranges(offsets: set[int]) -> list[Range]:
    cursor = Cursor(mark_delete=-1)
    cursor.ack_individual((one, one + 1) for one in sorted(offsets))
    return cursor.ranges


def _made_by(owners: list[int]) -> PendingAcks:
    pending = PendingAcks()
    for transaction in {*owners} - {0}:
        mine = {offset for offset, owner in enumerate(owners) if owner == transaction}
        assert pending.add(KEY, transaction, _ranges(mine)).ranges == _ranges(mine)
    return pending


@given(owners, spans)
def test_questions_are_answered_as_by_sets(owners: list[int], asked: list[Range]) -> None:
    pending = _made_by(owners)
    wanted = {offset for start, end in asked for offset in range(start, end)}
    taken = {offset for offset, owner in enumerate(owners) if owner}
    left = pending.left(KEY, asked)
    assert {offset for start, end in left for offset in range(start, end)} == wanted - taken
    for transaction in (1, 2, 9):
        mine = {offset for offset, owner in enumerate(owners) if owner == transaction}
        assert pending.has_any(KEY, transaction, asked) == bool(wanted & mine)
        assert pending.others_have(KEY, transaction, asked) == bool(wanted & (taken - mine))


@given(owners, st.integers(1, 3))
def test_an_end_leaves_what_others_have(owners: list[int], ended: int) -> None:
    pending = _made_by(owners)
    pending.take(ended)
    left = [0 if owner == ended else owner for owner in owners]
    others = {offset for offset, owner in enumerate(left) if owner}
    everything = [(0, OFFSETS)]
    assert pending.left(KEY, everything) == _ranges({*range(OFFSETS)} - others)
    assert bool(pending.by_key) == bool(others)
    assert pending.of(ended) == {}


@given(st.sets(st.integers(0, OFFSETS)), st.sets(st.integers(0, OFFSETS)))
def test_what_is_taken_back_is_not_acknowledged(acknowledged: set[int], back: set[int]) -> None:
    cursor = Cursor(mark_delete=-1)
    cursor.ack_individual(_ranges(acknowledged))
    cursor.take_back(_ranges(back))
    assert cursor.ranges == _ranges(acknowledged - back)


def test_a_subscription_that_was_deleted_has_none() -> None:
    pending = PendingAcks()
    pending.add(KEY, 1, [(0, 2)])
    pending.add(KEY, 2, [(4, 5)])
    assert sorted(pending.forget(KEY)) == [1, 2]
    assert pending.left(KEY, [(0, 5)]) == [(0, 5)]
    pending.take(1)
    assert not pending.by_key

"""What open transactions have acknowledged, beside sets of offsets that say the same."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

KEYS = [CursorKey("s", "t", 0), CursorKey("s", "t", 1), CursorKey("other", "t", 0)]
TRANSACTIONS = [7, 8, 9]
OFFSETS = range(12)

Sets = dict[CursorKey, dict[int, set[int]]]


def ranges_of(offsets: set[int]) -> list[Range]:
    """Half-open, as long as they can be."""
    begins = [one for one in sorted(offsets) if one - 1 not in offsets]
    ends = [one + 1 for one in sorted(offsets) if one + 1 not in offsets]
    return list(zip(begins, ends, strict=True))


def agree(acks: PendingAcks, expected: Sets) -> None:
    every = set(OFFSETS)
    for key in KEYS:
        of_key = expected.get(key, {})
        assert acks.left(key, [(0, len(OFFSETS))]) == ranges_of(every - set().union(*of_key.values()))
        for transaction in TRANSACTIONS:
            mine = of_key.get(transaction, set())
            others = set().union(*(one for other, one in of_key.items() if other != transaction))
            for offset in OFFSETS:
                asked = [(20, 30), (offset, offset + 1)]
                assert acks.has_any(key, transaction, asked) == (offset in mine)
                assert acks.others_have(key, transaction, asked) == (offset in others)
    for transaction in TRANSACTIONS:
        assert acks.of(transaction) == {
            key: ranges_of(of_key[transaction]) for key, of_key in expected.items() if transaction in of_key
        }
    assert set(acks.by_key) == {key for key, of_key in expected.items() if of_key}, (
        "else it is not empty again"
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_is_pending_for_the_transaction_that_has_it_until_that_ends(seed: int) -> None:
    chance = random.Random(seed)
    acks, expected = PendingAcks(), Sets()
    for _ in range(25):
        key, transaction = chance.choice(KEYS), chance.choice(TRANSACTIONS)
        what = chance.choice(["add", "add", "add", "end", "forget"])
        if what == "add":
            start = chance.choice(OFFSETS)
            end = chance.randint(start + 1, len(OFFSETS))
            of_key = expected.setdefault(key, {})
            others = set().union(*(one for other, one in of_key.items() if other != transaction))
            free = set(range(start, end)) - others  # as the coordinator sees to
            if free:
                mine = of_key.setdefault(transaction, set())
                mine |= free
                assert acks.add(key, transaction, ranges_of(free)).ranges == ranges_of(mine)
        elif what == "end":
            acks.end(transaction)
            for of_key in expected.values():
                of_key.pop(transaction, None)
        else:
            acks.forget(key)
            expected.pop(key, None)
        agree(acks, expected)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_what_is_taken_back_is_not_acknowledged(acknowledged: set[int], back: set[int]) -> None:
    cursor = Cursor(mark_delete=-1)
    cursor.ack_individual(ranges_of(acknowledged))
    cursor.take_back(ranges_of(back))
    assert cursor.ranges == ranges_of(acknowledged - back)


def test_a_subscription_that_was_deleted_names_the_transactions_that_had_something_there() -> None:
    acks = PendingAcks()
    acks.add(KEYS[0], 1, [(0, 2)])
    acks.add(KEYS[0], 2, [(4, 5)])
    assert acks.transaction_count(KEYS[0]) == 2
    assert sorted(acks.forget(KEYS[0])) == [1, 2]
    assert acks.transaction_count(KEYS[0]) == 0
    assert acks.forget(KEYS[0]) == []

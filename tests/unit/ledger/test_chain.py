"""What a chain says of its ledgers, compared with a look at every one; ledgers without entries lie anywhere between."""

from itertools import product

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.chain import LedgerChain, LedgerInfo
from magnetar.storage.store import LedgerId

START = 5


def chain_of(counts: tuple[int, ...]) -> LedgerChain:
    """Ledgers with so many records each."""
    ledgers, offset = [], START
    for number, count in enumerate(counts):
        last = offset + count - 1 if count else -1
        ledgers.append(LedgerInfo(LedgerId(number + 1), 0, 0, offset, last, count, 10 * count, 1000))
        offset += count
    return LedgerChain(ledgers)


CHAINS = [counts for length in (1, 2, 3, 4) for counts in product((0, 1, 3), repeat=length)]


@pytest.mark.parametrize("counts", CHAINS)
def test_overlapping_and_holder_are_what_a_look_at_every_ledger_says(counts: tuple[int, ...]) -> None:
    chain = chain_of(counts)
    end = START + sum(counts)
    held = {offset: info for info in chain for offset in range(info.first_offset, info.last_offset + 1)}
    for first in range(START, end + 1):
        for stop in range(first + 1, end + 2):
            expected = list(dict.fromkeys(held[each].ledger_id for each in range(first, min(stop, end))))
            assert [info.ledger_id for info in chain.overlapping(first, stop)] == expected
        if first < end:
            assert chain.holder_of(first) is held[first]
    with pytest.raises(EntryCorrupt):
        chain.holder_of(START - 1)


@pytest.mark.parametrize(
    ("held_from", "gone"), [(7, []), (8, [1]), (10, [1]), (11, [1, 2]), (None, [1, 2, 3])]
)
def test_what_a_subscription_holds_stays_and_nothing_else(held_from: int | None, gone: list[int]) -> None:
    plan = chain_of((3, 3, 3)).plan_trim(START, expired_before_ms=2000, held_from=held_from)
    assert [info.ledger_id for info in plan.dropped] == gone
    assert plan.log_start == START + 3 * len(gone)


@pytest.mark.parametrize(
    ("retention_bytes", "gone"), [(30, [1, 2]), (31, [1]), (60, [1]), (61, []), (90, [])]
)
def test_a_ledger_goes_once_what_is_left_without_it_is_enough(retention_bytes: int, gone: list[int]) -> None:
    plan = chain_of((3, 3, 3)).plan_trim(START, retention_bytes=retention_bytes)
    assert [info.ledger_id for info in plan.dropped] == gone

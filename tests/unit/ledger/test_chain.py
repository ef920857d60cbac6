"""What a chain says of its ledgers, compared with a look at every one; ledgers without entries lie anywhere between."""

from itertools import product
from typing import cast

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.chain import LedgerChain, LedgerInfo
from magnetar.storage.store import LedgerId, LedgerWriter

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
    for outside in (START - 1, *([] if sum(counts) else [START])):
        with pytest.raises(EntryCorrupt):
            chain.holder_of(outside)
    everything = list(dict.fromkeys(info.ledger_id for info in held.values()))
    assert [info.ledger_id for info in chain.overlapping(START - 1, end)] == everything


def test_a_ledger_goes_on_behind_the_beginning_of_the_one_that_is_made_to_follow_it() -> None:
    chain = chain_of((3, 4))
    chain.add(LedgerInfo(LedgerId(3), 0, 0, START + 4))
    for offset in range(START + 3, START + 7):
        assert chain.holder_of(offset).ledger_id == 2
        assert [info.ledger_id for info in chain.overlapping(offset, offset + 1)] == [2]


def test_the_newest_timestamp_is_of_what_can_be_read() -> None:
    chain = chain_of((3, 3))
    first, second = chain
    first.max_timestamp_ms, second.max_timestamp_ms = 2000, 1000
    assert chain.max_timestamp_ms(START) == 2000
    assert chain.max_timestamp_ms(START + 2) == 2000
    assert chain.max_timestamp_ms(START + 3) == 1000
    assert chain.max_timestamp_ms(START + 6) == -1
    empty = LedgerChain([LedgerInfo(LedgerId(1), 0, 0, START)])
    assert empty.max_timestamp_ms(0) == -1


@pytest.mark.parametrize(("timestamp_ms", "newest_ms"), [(-1, 700), (0, 0), (1, 1)])
def test_only_for_records_without_a_timestamp_the_age_of_the_ledger_counts(
    timestamp_ms: int, newest_ms: int
) -> None:
    info = LedgerInfo(LedgerId(1), 0, 700, START, START, 1, 10, timestamp_ms)
    assert info.newest_ms == newest_ms


@pytest.mark.parametrize(("expired_before_ms", "gone"), [(1000, []), (1001, [1, 2])])
def test_a_record_may_get_as_old_as_the_limit(expired_before_ms: int, gone: list[int]) -> None:
    plan = chain_of((3, 3)).plan_trim(START, expired_before_ms=expired_before_ms)
    assert [info.ledger_id for info in plan.dropped] == gone


@pytest.mark.parametrize("is_open", [True, False])
def test_of_ledgers_that_are_not_sealed_the_open_one_alone_stays_for_its_size(is_open: bool) -> None:
    chain = chain_of((3, 3))
    for info in chain:
        info.writer = cast(LedgerWriter, object())
    first, second = chain
    plan = chain.plan_trim(START, retention_bytes=0, writer_info=first if is_open else second)
    assert plan.dropped == ([] if is_open else [first])


def test_of_ledgers_without_entries_only_the_last_one_stays() -> None:
    plan = chain_of((3, 0, 0)).plan_trim(START)
    assert [info.ledger_id for info in plan.dropped] == [2]
    assert [info.ledger_id for info in plan.kept] == [1, 3]


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


# --- ledgers that stand for others ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("begin", [0, 1, 2, 3])
def test_neighbours_are_replaced_where_they_stand(begin: int, count: int) -> None:
    chain = chain_of((3, 3, 3, 3))
    before = list(chain)
    old, new = before[begin : begin + count], LedgerInfo(LedgerId(99), 0, 0, START)
    replaced = chain.replaced(old, new)
    assert replaced == [*before[:begin], new, *before[begin + count :]]
    assert list(chain) == before, "that is for whoever has stored it"


def test_nothing_takes_the_place_of_ledgers_that_are_not_all_there() -> None:
    chain = chain_of((3, 3, 3, 3))
    first, second, third, fourth = chain
    new = LedgerInfo(LedgerId(99), 0, 0, START)
    stranger = chain_of((3,)).by_id(LedgerId(1))
    assert chain.replaced([stranger], new) is None, "one like another is not the other"
    assert chain.replaced([stranger, second], new) is None
    assert chain.replaced([second, fourth], new) is None, "what is between would go, too"
    assert chain.replaced([third, second], new) is None
    assert chain.replaced([fourth, stranger], new) is None
    chain.replace([second, third, fourth])
    assert chain.replaced([first, second], new) is None
    assert chain.replaced([second, third], new) == [new, fourth]


def rewritten_chain() -> LedgerChain:
    """Epochs 2, 4 and 7 begin at 0, 5 and 9 in one ledger, and 8 at 12 in the next."""
    one = LedgerInfo(LedgerId(5), 7, 0, 0, 11, 3, epoch_from=9, earlier_epochs=((2, 0), (4, 5)))
    return LedgerChain([one, LedgerInfo(LedgerId(6), 8, 0, 12, 19, 8)])


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, 2), (4, 2), (5, 4), (8, 4), (9, 7), (11, 7), (12, 8), (19, 8)]
)
def test_each_offset_has_the_epoch_in_which_it_was_written(offset: int, epoch: int) -> None:
    assert rewritten_chain().epoch_at(offset) == epoch


def test_an_offset_in_front_of_what_is_left_has_the_first_epoch() -> None:
    chain = rewritten_chain()
    first = chain.by_id(LedgerId(5))
    first.earlier_epochs = ((2, 3), (4, 5))  # compaction has left nothing before 3
    assert [chain.epoch_at(offset) for offset in (0, 2, 3)] == [2, 2, 2]


def test_an_epoch_begins_at_the_ledgers_first_offset_unless_it_says_otherwise() -> None:
    assert LedgerInfo(LedgerId(1), 3, 0, 50).epochs == ((3, 50),)
    assert LedgerInfo(LedgerId(1), 3, 0, 50, epoch_from=0).epochs == ((3, 0),)

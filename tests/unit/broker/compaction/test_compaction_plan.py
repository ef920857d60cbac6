"""What is compacted of a log, when, and which ledgers go into one: decided from what is known of its ledgers."""

from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.config import LONG_MAX
from magnetar.broker.compaction import plan as module
from magnetar.broker.compaction.plan import Plan, grouped, is_due, plan
from magnetar.ledger.chain import LedgerInfo
from magnetar.storage.store import LedgerId

NOW_MS = 1_000_000


def ledger(
    number: int, first: int, end: int, size: int = 100, *, age_ms: int = 50, count: int = 1
) -> LedgerInfo:
    """Made, and written to for the last time, `age_ms` ago; empty if `end` is `first`."""
    info = LedgerInfo(LedgerId(number), 0, NOW_MS - age_ms, first)
    if end > first:
        info.last_offset, info.entry_count, info.size_bytes = end - 1, count, size
        info.max_timestamp_ms = NOW_MS - age_ms
    return info


def partition(ledgers: list[LedgerInfo], *, cleaned: int = 0, log_start: int = 0, **config: Any) -> Any:
    defaults = {"compaction_lag_min_ms": 0, "compaction_lag_max_ms": LONG_MAX, "dirty_share_min": 0.5}
    return SimpleNamespace(
        log=SimpleNamespace(ledgers=ledgers, cleaned=cleaned, log_start=log_start),
        topic=SimpleNamespace(config=SimpleNamespace(**defaults | config)),
        last_stable_offset=LONG_MAX,
    )


def made(*arguments: Any, **fields: Any) -> Plan:
    found = plan(partition(*arguments, **fields), NOW_MS, LONG_MAX)
    assert found is not None
    return found


def test_bytes_are_dirty_as_far_as_they_lie_behind_what_was_compacted() -> None:
    ledgers = [ledger(1, 0, 100, 1000), ledger(2, 100, 300, 4000), ledger(3, 300, 400, 500)]
    assert made(ledgers)[1:4] == (0, 5500, 0)
    assert made(ledgers, cleaned=100)[1:4] == (100, 4500, 1000)
    assert made(ledgers, cleaned=150)[1:4] == (150, 3500, 2000)
    assert made(ledgers, log_start=299, cleaned=150)[1:4] == (299, 520, 4980)
    assert plan(partition(ledgers, cleaned=400), NOW_MS, LONG_MAX) is None
    assert made(ledgers, cleaned=100).dirty_share == 4500 / 5500
    assert made([ledger(1, 0, 1, 1)]).dirty_share == 1


def test_a_log_is_due_when_more_than_the_least_share_is_dirty() -> None:
    ledgers = [ledger(1, 0, 100, 1000), ledger(2, 100, 200, 1000)]
    found = made(ledgers, cleaned=100)
    for least, due in ((0.49, True), (0.5, False), (0.51, False)):
        assert is_due(found, partition([], dirty_share_min=least).topic.config) is due
        assert is_due(found._replace(is_late=True), partition([], dirty_share_min=least).topic.config)


@pytest.mark.parametrize(("limit_ms", "is_late"), [(89, True), (90, True), (91, False)])
def test_the_oldest_ledger_that_was_not_compacted_says_how_late_it_is(limit_ms: int, is_late: bool) -> None:
    ledgers = [ledger(1, 0, 10, age_ms=500), ledger(2, 10, 20, age_ms=90), ledger(3, 20, 30, age_ms=40)]
    assert made(ledgers, cleaned=10, compaction_lag_max_ms=limit_ms).is_late is is_late


@pytest.mark.parametrize(("lag_ms", "count"), [(0, 3), (40, 3), (41, 2), (90, 2), (91, 1)])
def test_what_is_as_old_as_the_least_lag_goes(lag_ms: int, count: int) -> None:
    ledgers = [ledger(1, 0, 10, age_ms=500), ledger(2, 10, 20, age_ms=90), ledger(3, 20, 30, age_ms=40)]
    assert len(made(ledgers, compaction_lag_min_ms=lag_ms).ledgers) == count


def ids(groups: list[list[LedgerInfo]]) -> list[list[int]]:
    return [[info.ledger_id for info in group] for group in groups]


def test_neighbours_are_put_together_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    ledgers = [ledger(number, 10 * number, 10 * number + 10, 100, count=3) for number in range(1, 6)]
    assert ids(grouped(ledgers, 1000)) == [[1, 2, 3, 4, 5]]
    assert ids(grouped(ledgers, 200)) == [[1, 2], [3, 4], [5]]
    assert ids(grouped(ledgers, 299)) == [[1, 2], [3, 4], [5]]
    assert ids(grouped(ledgers, 300)) == [[1, 2, 3], [4, 5]]
    assert ids(grouped(ledgers, 50)) == [[1], [2], [3], [4], [5]]
    monkeypatch.setattr(module, "_ENTRIES_MAX", 6)
    assert ids(grouped(ledgers, 1000)) == [[1, 2], [3, 4], [5]]
    monkeypatch.setattr(module, "_ENTRIES_MAX", 8)
    assert ids(grouped(ledgers, 1000)) == [[1, 2], [3, 4], [5]]
    assert grouped([], 1000) == []


def test_a_ledger_without_entries_is_in_the_group_of_a_neighbour() -> None:
    empty, full = ledger(1, 0, 0), ledger(2, 0, 10)
    assert ids(grouped([empty, full], 50)) == [[1, 2]]
    assert ids(grouped([full, ledger(3, 10, 10), ledger(4, 10, 20)], 100)) == [[2, 3], [4]]
    assert ids(grouped([ledger(1, 0, 0), ledger(2, 0, 0), ledger(3, 0, 9), ledger(4, 9, 10)], 100)) == [
        [1, 2, 3],
        [4],
    ]

"""Rows of a chain, there and back, and what stands for ledgers that were rewritten."""

import json
from typing import Any

from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.chain_rows import document_of, info_of, rewritten, row_of, stored_id_of
from magnetar.storage.store import LedgerId, LedgerStat


def ledger(number: int, epoch: int, first: int, end: int) -> LedgerInfo:
    info = LedgerInfo(LedgerId(number), epoch, 1000 + number, first)
    if end > first:
        info.last_offset, info.entry_count = end - 1, 1
    return info


def stat_of(number: int, last_offset: int) -> LedgerStat:
    return LedgerStat(LedgerId(number), 2, 100, last_offset, -1, sealed=True)


def test_a_rewritten_ledger_keeps_each_epoch_once_from_where_it_began() -> None:
    old = [
        ledger(1, 3, 0, 5),
        ledger(2, 3, 5, 9),
        ledger(4, 5, 9, 9),
        ledger(6, 7, 9, 12),
        ledger(7, 8, 12, 12),
    ]
    reader: Any = None
    info = rewritten(old, stat_of(9, 11), reader)
    assert info.epochs == ((3, 0), (7, 9))
    assert (info.ledger_id, info.stored_id, info.created_ms) == (7, 9, 1006)
    assert (info.first_offset, info.end_offset, info.size_bytes) == (0, 12, 100)
    again = rewritten([info, ledger(10, 7, 12, 20), ledger(11, 9, 20, 21)], stat_of(9, 20), reader)
    assert again.epochs == ((3, 0), (7, 9), (9, 20))


def test_rows_come_back_as_they_were_and_name_the_ledger_of_the_store() -> None:
    reader: Any = None
    plain = ledger(1, 3, 0, 5)
    other = rewritten([ledger(2, 4, 5, 9), ledger(3, 6, 9, 12)], stat_of(9, 11), reader)
    for info, stored_id in ((plain, 1), (other, 9)):
        row = json.loads(json.dumps(row_of(info)))
        assert stored_id_of(row) == stored_id
        found = info_of(row, info.first_offset)
        assert (found.ledger_id, found.stored_id, found.created_ms) == (
            info.ledger_id,
            info.stored_id,
            info.created_ms,
        )
        assert found.epochs == info.epochs


def test_a_chain_that_was_never_compacted_is_stored_as_ever() -> None:
    stored = json.loads(document_of([ledger(1, 3, 0, 5)], 4, 0, 2, 0))
    assert stored == {"v": 1, "epoch": 4, "first": 0, "log_start": 2, "ledgers": [[1, 3, 1001]]}
    assert json.loads(document_of([], 4, 7, 7, 6)) == {
        "v": 2,
        "epoch": 4,
        "first": 7,
        "log_start": 7,
        "ledgers": [],
        "cleaned": 6,
    }


def test_the_stores_id_of_a_row_is_the_ledger_that_took_the_place() -> None:
    assert stored_id_of([7, 3, 1000]) == 7
    assert stored_id_of([7, 3, 1000, 9, 40, [[2, 0]]]) == 9

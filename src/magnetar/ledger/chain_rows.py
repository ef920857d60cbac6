"""How the metadata store holds a chain of ledgers, and the ledger that compaction puts in the place of others.

The document of a chain (`managed_ledger.py`) is JSON::

    {"v": 1, "epoch": 0, "first": 0, "log_start": 0, "ledgers": [row, ...]}
    {"v": 2, ..., "cleaned": 0}
    {"v": 3, ..., "compacted": ledger_id}

`epoch` is the leader epoch under which the document was written.  It is stored because the epoch must not go back
when every ledger has expired.  `first` is the offset at which the first ledger of the list starts, or would start if
the list is empty.  `log_start` is the first readable offset; DeleteRecords can put it inside a ledger.  `cleaned` is
the offset up to which compaction has cleaned the log.  `compacted` is the ledger that Pulsar's compaction has written
beside the chain (`compacted.py`).  A row::

    [ledger_id, leader_epoch, created_ms]
    [ledger_id, leader_epoch, created_ms, stored_id, epoch_from, [[leader_epoch, first_offset], ...]]

The second form is for a ledger that compaction has written.  `stored_id` is its id in the store, and `epoch_from` is
the offset at which `leader_epoch` begins in it.  The list has the epochs before that one.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.entry import NO_LEDGER
from magnetar.storage.store import LedgerId, LedgerReader, LedgerStat

METADATA_ROOT: Final = "/managed-ledgers/"


def document_of(
    ledgers: Sequence[LedgerInfo],
    leader_epoch: int,
    first: int,
    log_start: int,
    cleaned: int,
    compacted: LedgerId = NO_LEDGER,
) -> bytes:
    """The JSON document of a chain that begins at the offset `first`."""
    document: dict[str, object] = {
        "v": 1,
        "epoch": leader_epoch,
        "first": first,
        "log_start": log_start,
        "ledgers": [row_of(info) for info in ledgers],
    }
    if cleaned:
        document |= {"v": 2, "cleaned": cleaned}
    if compacted != NO_LEDGER:
        document |= {"v": 3, "compacted": compacted}
    return json.dumps(document).encode()


def row_of(info: LedgerInfo) -> list[object]:
    row: list[object] = [info.ledger_id, info.leader_epoch, info.created_ms]
    if info.rewritten_id is not None:
        row += [info.rewritten_id, info.epoch_from, info.earlier_epochs]
    return row


def info_of(row: Sequence[Any], first_offset: int) -> LedgerInfo:
    """The ledger of a row; its counts, sizes and last offset are not in the row: the store has them."""
    ledger_id, leader_epoch, created_ms, *more = row
    info = LedgerInfo(LedgerId(ledger_id), leader_epoch, created_ms, first_offset)
    if more:
        info.rewritten_id, info.epoch_from = LedgerId(more[0]), more[1]
        info.earlier_epochs = tuple((epoch, begin) for epoch, begin in more[2])
    return info


def stored_id_of(row: Sequence[Any]) -> int:
    """The id under which the store has the ledger of a row."""
    return int(row[3] if len(row) > 3 else row[0])


def ids_in(document: bytes) -> list[LedgerId]:
    """The ids under which the store has the ledgers of a stored chain, including that of its compacted log."""
    chain = json.loads(document)
    beside = [LedgerId(chain["compacted"])] if "compacted" in chain else []
    return [LedgerId(stored_id_of(row)) for row in chain["ledgers"]] + beside


def rewritten(old: Sequence[LedgerInfo], stat: LedgerStat, reader: LedgerReader) -> LedgerInfo:
    """The ledger that replaces all of `old`: neighbours, the oldest first, at least one of them with entries."""
    last = [info for info in old if not info.is_empty][-1]
    assert stat.last_offset == last.last_offset, (stat, last)
    epochs: list[tuple[int, int]] = []
    for info in old:
        if not info.is_empty:
            epochs += [one for one in info.epochs if not epochs or one[0] != epochs[-1][0]]
    info = LedgerInfo(
        old[-1].ledger_id,
        last.leader_epoch,
        last.created_ms,
        old[0].first_offset,
        reader=reader,
        rewritten_id=stat.ledger_id,
        epoch_from=epochs[-1][1],
        earlier_epochs=tuple(epochs[:-1]),
    )
    info.take(stat)
    return info

"""A log as its next owner finds it in the stores: its chain, with all ledgers fenced and recovered."""

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.base.errors import LedgerNotFound, StorageError
from magnetar.ledger.chain_rows import METADATA_ROOT, ids_in
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.metadata.store import Versioned
from magnetar.storage.store import LedgerId, LedgerStat


@dataclass(frozen=True, slots=True)
class StoredLog:
    """`stats` has all ledgers that `chain` names, unless the store lacks some."""

    chain: Versioned
    stats: Mapping[LedgerId, LedgerStat]


async def recover_log(environment: LedgerEnvironment, name: str) -> StoredLog | None:
    """Take a log away from its owner before; None if it was never written.

    The caller owns the log: the chain is read first, and no other broker can change it any more.

    Raises:
        MetadataError, StorageError: try again, if the log is still the caller's.
    """
    path = METADATA_ROOT + name
    chain = await environment.metadata.get(path)
    if chain is None:
        return None
    stats: dict[LedgerId, LedgerStat] = {}
    named = ids_in(chain.value)
    for ledger_id in named:
        try:
            stats[ledger_id] = (await environment.store.open(ledger_id)).stat
        except LedgerNotFound:
            continue  # a log that lacks a ledger is refused when it is opened, and says so
    if len(stats) < len(named) and await environment.metadata.get(path) != chain:
        raise StorageError(f"another broker has changed {name} while it was opened")
    return StoredLog(chain, stats)

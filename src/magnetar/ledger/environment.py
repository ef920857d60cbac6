"""What all managed ledgers of a broker share."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar.base.clock import Clock
from magnetar.base.tasks import Tasks
from magnetar.ledger.entry import Entry
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.tombstones import Tombstones
from magnetar.metadata.store import MetadataStore
from magnetar.storage.store import LedgerId, LedgerStat, LedgerStore, StoredEntry

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LedgerEnvironment:
    """The stores, the cache and the clock; and the tasks that no caller waits for."""

    store: LedgerStore
    metadata: MetadataStore
    cache: EntryCache
    clock: Clock
    decode_entry: Callable[[LedgerId, StoredEntry], Entry]
    stats: dict[LedgerId, LedgerStat] = field(default_factory=dict)  # as the store reported them at the start
    tasks: Tasks = field(default_factory=lambda: Tasks(log))
    tombstones: Tombstones = field(init=False)

    def __post_init__(self) -> None:
        self.tombstones = Tombstones(self.store, self.metadata, self.clock, self.tasks.spawn)

    async def load(self) -> None:
        """Read what the store has; call this before any ledger is opened."""
        self.stats = {stat.ledger_id: stat for stat in await self.store.list_ledgers()}

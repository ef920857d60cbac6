"""What every managed ledger of a broker shares."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from magnetar.base.clock import Clock
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
    stats: dict[LedgerId, LedgerStat] = field(default_factory=dict)  # as the store knew them at start
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    tombstones: Tombstones = field(init=False)

    def __post_init__(self) -> None:
        self.tombstones = Tombstones(self.store, self.metadata, self.clock, self.spawn)

    async def load(self) -> None:
        """Learn what the store has; before any ledger is opened."""
        self.stats = {stat.ledger_id: stat for stat in await self.store.list_ledgers()}

    def spawn(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run `work` in the background; its failure is logged, never lost."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._finished)

    def begin(self, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` whether its caller goes on waiting for it or not; its failure is the caller's to hear."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even when the caller is gone

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work %s failed", task.get_name(), exc_info=error)

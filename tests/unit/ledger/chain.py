"""A managed ledger over stores whose disk the test plays, and entries that say what they are."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import wraps

from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.ledger.stored_chain import no_owner
from magnetar.metadata.store import Check
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore

NAME = "public/default/persistent/t-partition-0@0"


def decode(ledger_id: LedgerId, stored: StoredEntry) -> Entry:
    """A body begins with the entry's first offset; one that was moved has its old position behind that."""
    base, where = int(bytes(stored.body[:20])), bytes(stored.body[20:60])
    entry_id = stored.entry_id
    if where[:1].isdigit():
        ledger_id, entry_id = LedgerId(int(where[:20])), EntryId(int(where[20:]))
    return Entry(
        base, stored.last_offset, stored.max_timestamp_ms, stored.body, EntryKind.KAFKA, ledger_id, entry_id
    )


def run(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """The tests are coroutines."""

    @wraps(test)
    def runner(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return runner


async def settle() -> None:
    """Let everything run that does not wait for the disk."""
    for _ in range(60):
        await asyncio.sleep(0)


@dataclass
class Chain:
    """One log and everything under it."""

    store: MemoryLedgerStore
    metadata: MemoryMetadataStore = field(default_factory=MemoryMetadataStore)
    clock: FakeClock = field(default_factory=FakeClock)
    limits: LedgerLimits = field(default_factory=LedgerLimits)
    cache_bytes: int = 1 << 20
    outcomes: dict[int, Exception | None] = field(
        default_factory=dict
    )  # by base offset, the last append there
    on_advance: Callable[[], None] = no_owner
    on_reset: Callable[[], None] = no_owner
    owned: Sequence[Check] = ()

    def __post_init__(self) -> None:
        self.log = self._new_log()

    def _new_log(self) -> ManagedLedger:
        environment = LedgerEnvironment(
            self.store, self.metadata, EntryCache(self.cache_bytes), self.clock, decode
        )
        self.environment = environment
        return ManagedLedger(
            NAME,
            environment,
            self.limits,
            owned=self.owned,
            on_advance=self.on_advance,
            on_reset=self.on_reset,
        )

    def append(
        self,
        count: int = 1,
        timestamp_ms: int | None = None,
        size: int = 100,
        done: Callable[[], None] | None = None,
    ) -> Entry:
        """Append one entry of `count` records; its outcome will be in `outcomes`."""
        entry = self.entry(count, self.clock.now_ms() if timestamp_ms is None else timestamp_ms, size)
        self.send(entry, done)
        return entry

    def entry(self, count: int, timestamp_ms: int, size: int) -> Entry:
        """The next entry of the log, to be sent at once."""
        base = self.log.next_offset
        body = str(base).zfill(20).encode().ljust(size, b".")
        return Entry(base, base + count - 1, timestamp_ms, memoryview(body))

    def send(self, entry: Entry, done: Callable[[], None] | None = None) -> None:
        def on_done(error: Exception | None) -> None:
            self.outcomes[entry.base_offset] = error
            if done is not None:
                done()

        self.log.append(entry, [entry.payload], len(entry.payload), on_done)

    async def written(self, *counts: int) -> None:
        """Append entries of so many records each and see them durable."""
        for count in counts:
            self.append(count)
        await self.flush()

    async def flush(self) -> None:
        """Write until nothing waits any more."""
        await settle()
        while len(self.store):
            self.store.write()
            await settle()

    async def restart(self) -> None:
        """What a crash leaves, opened again."""
        for task in list(self.environment.tasks):
            task.cancel()
        self.store = self.store.crash()
        self.log = self._new_log()
        stored = await self.metadata.get(METADATA_ROOT + NAME)
        if stored is not None:
            stats = {stat.ledger_id: stat for stat in await self.store.list_ledgers()}
            self.log.restore(stored.value, stored.version, stats)

    async def compact(self, count: int, bases: Sequence[int]) -> None:
        """Put a ledger with the entries that begin at `bases` in the place of the first `count` ledgers."""
        old = list(self.log.ledgers)[:count]
        writer = await self.environment.tombstones.make()
        for base in bases:
            (entry,) = await self.log.read(base, 1)
            where = f"{entry.base_offset:020}{entry.ledger_id:020}{entry.entry_id:020}"
            body = where.encode().ljust(100, b".")
            writer.append([body], len(body), entry.last_offset, entry.max_timestamp_ms, lambda error: None)
        assert await self.log.replace(old, writer, old[-1].end_offset)
        await self.flush()

    async def entries(self) -> list[Entry]:
        """All that are readable, from the store."""
        found: list[Entry] = []
        while (
            offset := found[-1].last_offset + 1 if found else self.log.log_start
        ) < self.log.high_watermark:
            found += await self.log.read(offset, 250)
        return found

    async def read_all(self) -> list[tuple[int, int]]:
        """(base, last) of every entry, from the store, from the log's start to its end."""
        return [(entry.base_offset, entry.last_offset) for entry in await self.entries()]

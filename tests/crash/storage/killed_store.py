"""A store that is killed somewhere, with what it had acknowledged and where the rounds lie in its journal."""

import asyncio
import errno
import random
import re
from pathlib import Path

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.findings import Finding
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local import doctor
from magnetar.storage.local.catalogue import Catalogue
from magnetar.storage.local.format import ROUND_BYTES
from magnetar.storage.local.replay import Whole, survey, walk
from magnetar.storage.local.salvage import examine
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerWriter
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate

DATA = Path("/data")
JOURNAL = DATA / "journal"
FOLDER = DATA / "damaged"
"""Where a repair puts what it replaces."""

KIB = 1024
TINY = LocalStoreSettings(
    journal_file_bytes=64 * KIB,
    journal_file_count=4,
    round_bytes_max=16 * KIB,
    flush_bytes=8 * KIB,
    read_step_bytes=16 * KIB,
    checkpoint_entries_max=60,
)


async def start(disk: CrashDisk, settings: LocalStoreSettings = TINY) -> LocalLedgerStore:
    """The store, with all files of its ring: while some are missing, it makes checkpoints earlier."""
    store = await LocalLedgerStore.start(DATA, settings=settings, clock=FakeClock(), disk=disk)
    if store._preparing is not None:
        await store._preparing
    return store


def body_of(ledger_id: int, number: int) -> bytes:
    return (ledger_id.to_bytes(4, "big") + number.to_bytes(4, "big")) * (40 + number * 37 % 300)


def repaired(disk: CrashDisk) -> list[Finding]:
    """What `magnetar doctor --repair` did."""
    examined = examine(disk, DATA)
    done = list(doctor.repair(examined, FOLDER))
    examined.close()
    return done


class Load:
    """Appends to some ledgers, and keeps in mind what was acknowledged."""

    def __init__(self, store: LocalLedgerStore) -> None:
        self.store = store
        self.acknowledged: dict[int, int] = {}
        self.ledgers: list[LedgerWriter] = []

    async def create(self) -> None:
        ledger = await self.store.create()
        self.ledgers.append(ledger)
        self.acknowledged[ledger.stat.ledger_id] = 0

    async def append(self, *counts: int) -> None:
        waiting = []
        for ledger, count in zip(self.ledgers, counts, strict=False):
            ledger_id = ledger.stat.ledger_id
            first = self.acknowledged[ledger_id]
            for number in range(first, first + count):
                answered = asyncio.get_running_loop().create_future()

                def done(
                    error: Exception | None,
                    ledger_id: int = ledger_id,
                    answered: "asyncio.Future[None]" = answered,
                ) -> None:
                    self.acknowledged[ledger_id] += error is None
                    answered.set_result(None)

                body = body_of(ledger_id, number)
                ledger.append([body], len(body), number, number, done)
                waiting.append(answered)
        if waiting:
            await asyncio.wait(waiting)


class Killed:
    """A store that ended without a word, and where the rounds lie in its journal."""

    def __init__(self, disk: CrashDisk, acknowledged: dict[int, int]) -> None:
        self._disk = disk
        self.acknowledged = dict(acknowledged)
        self.rounds: list[tuple[Path, int, int, int]] = []
        """File, position, end, sequence of those behind the checkpoint."""
        self.covered: list[tuple[Path, int, int, int]] = []
        catalogue = Catalogue(self.disk(), DATA / "catalogue")
        catalogue.load()
        self.checkpoint = catalogue.known.journal_sequence
        found = survey(self.disk(), JOURNAL, catalogue.known)
        position: dict[Path, int] = {}
        for item in walk(found, catalogue.known):
            assert isinstance(item, Whole)
            path = item.use.file.path
            at = position.get(path, 0)
            end = at + ROUND_BYTES + item.head.length
            position[path] = -(-end // BLOCK_BYTES) * BLOCK_BYTES
            is_needed = item.head.sequence > self.checkpoint
            (self.rounds if is_needed else self.covered).append((path, at, end, item.head.sequence))

    def disk(self) -> CrashDisk:
        return self._disk.after_power_loss(Fate.DROPPED)

    def flipped(self, path: Path, position: int, bit: int = 0) -> CrashDisk:
        disk = self.disk()
        disk.content(path)[position] ^= 1 << bit
        return disk

    def spoiled(self, path: Path, position: int) -> CrashDisk:
        """With a wrong byte: no single bit explains that."""
        disk = self.disk()
        disk.content(path)[position] ^= 0xFF
        return disk

    async def found(self, disk: CrashDisk) -> dict[int, int]:
        """Entries of each ledger, all of them read and compared."""
        store = await start(disk)
        try:
            counts = {}
            for stat in await store.list_ledgers():
                reader = await store.open(stat.ledger_id)
                entries = 0
                while more := await reader.read(EntryId(entries), 30 * KIB):
                    for entry in more:
                        assert bytes(entry.body) == body_of(stat.ledger_id, entry.entry_id)
                    entries += len(more)
                counts[int(stat.ledger_id)] = entries
            return counts
        finally:
            await store.close()

    async def is_refused(self, disk: CrashDisk, path: Path, position: int, sequence: int) -> None:
        named = re.escape(f"{path.name} at byte {position}, round")
        with pytest.raises(StorageError, match=f"the journal is damaged: {named}s? {sequence}") as refused:
            await start(disk)
        assert "magnetar doctor --data-dir /data shows" in str(refused.value)
        assert "\n" not in str(refused.value)


async def killed(seed: int, settings: LocalStoreSettings = TINY, *, failing: bool = False) -> Killed:
    """A store killed somewhere: with checkpoints, several files in use and used again, and what failed in between."""
    chance = random.Random(seed)
    disk = CrashDisk()
    store = await start(disk, settings)
    load = Load(store)
    for _ in range(3):
        await load.create()
    for turn in range(chance.randint(10, 60)):
        await load.append(chance.randint(0, 4), chance.randint(0, 2), turn % 2)
        if chance.random() < 0.05:
            await store.checkpoint()
        if chance.random() < 0.05:
            await load.create()
            load.ledgers.pop(0)
        if failing and turn == 8:
            disk.fail_path = "journal"
            disk.calls.clear()
            disk.failures["write"] = {1: errno.EIO}
            await load.append(2, 2, 2)
            for _ in range(3):
                await load.create()
            del load.ledgers[:-3]
    dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
    await store.close()
    return dead


async def one_by_one(settings: LocalStoreSettings = TINY, count: int = 30) -> Killed:
    """One ledger, a round for each entry: round 1 makes it, entry n is in round n + 2."""
    disk = CrashDisk()
    store = await start(disk, settings)
    load = Load(store)
    await load.create()
    for _ in range(count):
        await load.append(1)
    dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
    await store.close()
    return dead

"""A data folder with two halves, metadata and ledgers, of which a test puts older copies back."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.ledger.chain_rows import METADATA_ROOT, ids_in
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.server import doctor
from magnetar.server.binding import bind
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import LedgerWriter
from magnetar.testing.clock import FakeClock

SMALL = LocalStoreSettings(journal_file_bytes=1 << 20, round_bytes_max=1 << 19)
METADATA = ("metadata.sqlite", "metadata.sqlite-commits")
LEDGERS = ("journal", "segments", "catalogue", "store-id", "binding", "leases")


class Folder:
    """A data folder whose server is started, used, stopped and copied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[tuple[SqliteMetadataStore, LocalLedgerStore]]:
        metadata = SqliteMetadataStore(self.path / "metadata.sqlite")
        try:
            store = await LocalLedgerStore.start(self.path, settings=SMALL, clock=FakeClock())
            try:
                yield metadata, store
            finally:
                await store.close()
        finally:
            await metadata.close()

    async def run(self, writes: int = 2) -> None:
        """One life of a server: some ledgers are made and recorded."""
        async with self.stores() as (metadata, store):
            bound = await bind(metadata, store)
            await use(metadata, store, writes)
            await bound.close()

    async def doctor(self, *, repair: bool = False) -> doctor.Report:
        return await asyncio.to_thread(doctor.run, self.path, deep=False, repair=repair)

    def save(self, where: str, names: tuple[str, ...]) -> Path:
        """A copy of some of the folder, as it is now."""
        target = self.path.with_name(where)
        target.mkdir()
        for name in names:
            source = self.path / name
            if source.is_dir():
                shutil.copytree(source, target / name)
            elif source.exists():
                shutil.copy(source, target / name)
        return target

    def put_back(self, saved: Path, names: tuple[str, ...]) -> None:
        """Replace what is there by what was saved; what was not saved is missing then."""
        for name in names:
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
            if (saved / name).is_dir():
                shutil.copytree(saved / name, target)
            elif (saved / name).exists():
                shutil.copy(saved / name, target)


async def append(writer: LedgerWriter, offset: int) -> None:
    durable = asyncio.get_running_loop().create_future()
    writer.append([b"entry"], 5, offset, 0, durable.set_result)
    assert await durable is None


async def use(metadata: SqliteMetadataStore, store: LocalLedgerStore, writes: int) -> list[LedgerWriter]:
    writers: list[LedgerWriter] = []
    for number in range(writes):
        writer = await store.create()
        writers.append(writer)
        ledger_id = writer.stat.ledger_id
        path = f"{METADATA_ROOT}t-{metadata.commits}"
        await metadata.put(path, b'{"ledgers": [[%d, 0, 0]]}' % ledger_id)
        await append(writer, number)
    return writers


async def named_ledgers(metadata: SqliteMetadataStore) -> list[int]:
    chains = await metadata.scan(METADATA_ROOT)
    return [ledger_id for _, chain in chains for ledger_id in ids_in(chain.value)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def refuses(folder: Folder, sentence: str) -> None:
    """It says so, again and again, and changes nothing that could be put right."""
    for _ in range(2):
        async with folder.stores() as (metadata, store):
            before = await metadata.scan("/")
            with pytest.raises(ConfigError, match=sentence) as caught:
                await bind(metadata, store)
            assert "magnetar doctor" in str(caught.value)
            assert await metadata.scan("/") == before

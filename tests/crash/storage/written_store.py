"""A small store, and a producer that counts what the store has acknowledged."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerReader, LedgerWriter
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk

DATA = Path("/data")
KIB = 1024
TINY = LocalStoreSettings(
    journal_file_bytes=64 * KIB,
    journal_file_count=4,
    round_bytes_max=16 * KIB,
    flush_bytes=8 * KIB,
    read_step_bytes=16 * KIB,
    checkpoint_entries_max=40,
)
SOON_S = 20.0


async def start(disk: CrashDisk, clock: FakeClock | None = None) -> LocalLedgerStore:
    return await LocalLedgerStore.start(DATA, settings=TINY, clock=clock or FakeClock(), disk=disk)


class Producer:
    def __init__(self, ledger: LedgerWriter) -> None:
        self.ledger = ledger
        self.sent = 0
        self.acknowledged = 0

    def send(self) -> "asyncio.Future[None]":
        answered = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if error is None:
                self.acknowledged += 1
            answered.set_result(None)

        body = self.sent.to_bytes(4, "big") * 300
        self.ledger.append([body], len(body), self.sent, self.sent, done)
        self.sent += 1
        return answered


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - a thread makes it so, and sets no event
        await asyncio.sleep(0)


async def numbers(ledger: LedgerReader) -> list[int]:
    found: list[int] = []
    while entries := await ledger.read(EntryId(len(found)), 20 * KIB):
        for entry in entries:
            assert bytes(entry.body) == entry.last_offset.to_bytes(4, "big") * 300
            found.append(entry.last_offset)
    return found

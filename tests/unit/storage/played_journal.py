"""A journal over files whose disk the test plays."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.format import ROUND_BYTES, Control, control_record
from magnetar.storage.local.journal import Journal
from magnetar.storage.local.ledger import Queued
from magnetar.storage.local.ring import Ring, RingFile
from magnetar.storage.local.rounds import Record, RoundHead, parse_head, parse_round
from magnetar.storage.store import Buffer
from magnetar.testing.clock import FakeClock
from magnetar.wire.stored import RECORD

ROUND_MAX = 2 * BLOCK_BYTES
SALT = 77


class PlayedFile:
    """Takes what is written while its gate is open; `fails` are the next writes' errors."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.calls: list[str] = []
        self.fails: list[BaseException] = []
        self.sync_fails: OSError | None = None
        self.close_fails: OSError | None = None
        self.takes_s: Callable[[], None] = lambda: None
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()

    @property
    def descriptor(self) -> None:
        return None

    def write(self, data: Buffer, position: int) -> None:
        self.waits.set()
        self.gate.wait()
        self.takes_s()
        if self.fails:
            raise self.fails.pop(0)
        self.calls.append("write")
        self.content[position : position + len(data)] = data

    def read(self, buffer: memoryview, position: int) -> int:
        raise AssertionError("a journal does not read what it writes")

    def sync(self) -> None:
        self.calls.append("sync")
        if self.sync_fails is not None:
            raise self.sync_fails

    def truncate(self, size: int) -> None:
        raise AssertionError("journal files keep their size")

    def size(self) -> int:
        return len(self.content)

    def close(self) -> None:
        self.calls.append("close")
        if self.close_fails is not None:
            raise self.close_fails


class Played:
    """A journal and everything around it."""

    def __init__(
        self,
        files: int = 3,
        blocks: int = 8,
        *,
        is_synced: bool = True,
        sync_after_write: bool = False,
        clock: FakeClock | None = None,
    ) -> None:
        self.files = [PlayedFile(blocks * BLOCK_BYTES) for _ in range(files)]
        self.ring = Ring(1)
        self.ring.add(*(self.ring_file(file) for file in self.files))
        self.clock = clock or FakeClock()
        self.counters = StoreCounters()
        self.told: list[tuple[int, int, StorageError | None]] = []
        self.told_at_once: list[int] = []
        """How many rounds had been reported at each end of a report."""
        self.full = 0
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()
        self.journal = Journal(
            self.ring,
            round_bytes_max=ROUND_MAX,
            next_sequence=1,
            salt=SALT,
            is_synced=is_synced,
            sync_after_write=sync_after_write,
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            counters=self.counters,
            on_round=self._on_round,
            on_reported=self._on_reported,
            on_full=self._on_full,
            on_failure=self._on_failure,
        )

    def ring_file(self, file: PlayedFile) -> RingFile:
        return RingFile(Path("x.journal"), file, file.size())

    def _on_reported(self) -> None:
        self.told_at_once.append(len(self.told))

    def _on_round(self, entries: list[Queued], sequence: int, error: StorageError | None) -> None:
        self.told.append((len(entries), sequence, error))
        self._changed.set()

    def _on_full(self) -> None:
        self.full += 1
        self._changed.set()

    def _on_failure(self, what: str, failure: BaseException) -> None:
        self.failures.append(failure)
        self._changed.set()

    def append(self, size: int, number: int = 0, ledger_id: int = 1) -> None:
        body = bytes([number % 251]) * size
        rest = RECORD.pack(0, 0, ledger_id, number, number, 0)[8:]
        header = RECORD.pack(size, crc32c(body, crc32c(rest)), ledger_id, number, number, 0)
        self.journal.append(Queued(object(), header, (body,), size, number, 0, _ignore))  # type: ignore[arg-type]

    def control(self) -> None:
        """A fact about a ledger."""
        header = control_record(5, Control.CREATE, 0)
        self.journal.append(Queued(None, header, (), 0, 0, 0, _ignore))

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def rounds_told(self, count: int) -> None:
        await self.until(lambda: len(self.told) >= count)

    def written(self, file: int = 0) -> list[tuple[RoundHead, list[Record]]]:
        """The rounds in a file."""
        return rounds_in(self.files[file].content)

    def numbers(self, file: int = 0) -> list[list[int]]:
        return self.numbers_in(self.files[file].content)

    def numbers_in(self, content: bytes | bytearray) -> list[list[int]]:
        return [[record.entry_id for record in records] for _, records in rounds_in(content)]


def rounds_in(whole: bytes | bytearray) -> list[tuple[RoundHead, list[Record]]]:
    content = memoryview(whole)
    found, position = [], 0
    while position < len(content) and (head := parse_head(content[position:])) is not None:
        body = position + ROUND_BYTES
        records = parse_round(head, content[body : body + head.length])
        assert records is not None
        found.append((head, records))
        position = align_up(body + head.length)
    return found


def _ignore(_: Exception | None) -> None:
    return None

"""The two passes over a log, piece by piece: where they read, what they write, and where they end."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.compaction.entries import Entries
from magnetar.broker.compaction.run import Progress, Readable, note, rewrite
from magnetar.ledger.entry_format import decode_entry
from magnetar.storage.store import LedgerId, StoredEntry
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedger
from magnetar.wire.compaction import latest_offsets
from magnetar.wire.kafka.records import read_header

from .world import CompactedLog

EPOCH = 7


class Pieces:
    """A log whose reads return so many entries; `read_at` has their offsets."""

    def __init__(self, log: Readable, count: int) -> None:
        self.read_at: list[int] = []
        self._log = log
        self._count = count

    async def read_stored(self, offset: int, bytes_max: int) -> tuple[LedgerId, list[StoredEntry]]:
        assert [offset] > self.read_at[-1:], "each piece lies behind the one before"
        self.read_at.append(offset)
        ledger_id, stored = await self._log.read_stored(offset, bytes_max)
        assert stored, "a pass does not read at the end of the log"
        return ledger_id, stored[: self._count]


class SeenProgress(Progress):
    """`waits` has the bytes that were noted, read and written when the pass asked whether it may go on."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), 1.0)
        self.waits: list[tuple[int, int, int]] = []

    async def wait(self) -> None:
        self.waits.append((self.noted_bytes, self.read_bytes, self.written_bytes))


class World(CompactedLog):
    """A log of one ledger."""

    def __init__(self) -> None:
        super().__init__(random.Random(1), entries_max=100)
        self.thread = self.compactor.thread
        self.rests = 0
        self.thread.rest = self._rest  # type: ignore[method-assign]
        self.kept = Entries(latest_offsets(100, 1 << 20), [], self.clock.now_ms(), None)
        self.progress = SeenProgress()

    def _rest(self) -> None:
        self.rests += 1

    async def fill(self, keys: str) -> list[int]:
        """Write an entry of one record for each letter, which is its key; returns the sizes of their bodies."""
        for key in keys:
            await self.send([(key.encode(), b"v")])
        _, stored = await self.log.read_stored(0, 1 << 20)
        assert len(stored) == len(keys)
        return [len(one.body) for one in stored]

    async def note_all(self) -> None:
        source = Pieces(self.log, 100)
        await note(source, 0, self.log.high_watermark, self.kept, self.thread, self.progress)
        self.progress = SeenProgress()
        self.rests = 0

    async def rewritten(self, source: Pieces, end: int, leader_epoch: int | None) -> MemoryLedger:
        """The ledger to which the entries below `end` were rewritten."""
        ledger = await self.store.create()
        assert isinstance(ledger, MemoryLedger)
        await rewrite(source, 0, end, self.kept, ledger, self.thread, self.progress, leader_epoch)
        return ledger


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_keys_are_noted_from_the_beginning_to_the_end_and_each_piece_waits_for_the_limit() -> None:
    async def scenario() -> None:
        world = World()
        sizes = await world.fill("abcdef")
        source = Pieces(world.log, 2)
        await note(source, 1, 5, world.kept, world.thread, world.progress)
        assert source.read_at == [1, 3]
        assert world.kept.end == 5
        assert world.progress.waits == [(sum(sizes[1:3]), 0, 0), (sum(sizes[1:5]), 0, 0)]
        assert world.rests == 4
        world.compactor.close()

    play(scenario())


def test_an_entry_that_lies_at_the_end_is_not_noted() -> None:
    async def scenario() -> None:
        world = World()
        await world.fill("abcdef")
        source = Pieces(world.log, 6)
        await note(source, 1, 4, world.kept, world.thread, world.progress)
        assert source.read_at == [1]
        assert world.kept.end == 4
        world.compactor.close()

    play(scenario())


def test_what_stays_is_written_piece_by_piece_and_each_piece_waits_for_the_limit() -> None:
    async def scenario() -> None:
        world = World()
        sizes = await world.fill("abacbd")
        await world.note_all()
        source = Pieces(world.log, 2)
        ledger = await world.rewritten(source, 5, EPOCH)
        assert source.read_at == [0, 2, 4]
        assert [one.last_offset for one in ledger.entries] == [2, 3, 4], "the last entry lies at the end"
        written = [len(one.body) for one in ledger.entries]
        assert world.progress.waits == [
            (0, sum(sizes[:2]), 0),
            (0, sum(sizes[:4]), sum(written[:2])),
            (0, sum(sizes[:5]), sum(written)),
        ]
        assert world.rests == 5
        world.compactor.close()

    play(scenario())


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        ("abc", [(0, False), (1, False), (2, False)]),
        ("abcc", [(0, False), (1, False), (2, True)]),
        ("abca", [(1, False), (2, False)]),
        ("abcabc", [(2, True)]),
    ],
)
def test_a_ledger_ends_where_those_end_that_it_replaces(keys: str, left: list[tuple[int, bool]]) -> None:
    """If the last entry does not stay, an empty batch of the ledger's epoch stands in its place."""

    async def scenario() -> None:
        world = World()
        await world.fill(keys)
        await world.note_all()
        ledger = await world.rewritten(Pieces(world.log, 3), 3, EPOCH)
        found = []
        for one in ledger.entries:
            entry = decode_entry(ledger.ledger_id, one)
            header = read_header(entry.payload)
            assert entry.last_offset == entry.base_offset == header.base_offset
            assert (header.partition_leader_epoch == EPOCH) is header.is_control
            found.append((entry.last_offset, header.is_control))
        assert found == left
        world.compactor.close()

    play(scenario())


def test_without_an_epoch_nothing_stands_for_what_does_not_stay() -> None:
    async def scenario() -> None:
        world = World()
        await world.fill("abcabc")
        await world.note_all()
        ledger = await world.rewritten(Pieces(world.log, 3), 3, None)
        assert ledger.entries == []
        world.compactor.close()

    play(scenario())

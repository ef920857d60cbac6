"""A log that Pulsar's compaction leaves as it is, and what it has left beside it, against the list of what was sent."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from magnetar.broker.compaction.beside import SUBSCRIPTION, CompactorBeside
from magnetar.broker.log.model import CompactionState
from magnetar.broker.log.partition import Partition
from magnetar.ledger.compacted_view import CompactedView
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import EntryId, LedgerId
from magnetar.wire.kafka.records import read_header

from .keyed import records_of
from .world import CompactedLog, Row


class LogBeside(CompactedLog):
    def __init__(self, chance: random.Random, **fields: Any) -> None:
        self.held = 0
        self.holds: list[int] = []  # where the subscription was wanted, in that order
        super().__init__(chance, config={"cleanup.policy": "delete"}, **fields)

    def _open(self) -> None:
        super()._open()
        self.beside = CompactorBeside(self.clock, self.compactor, self._hold)

    async def _hold(self, name: str, positions: Mapping[Partition, int]) -> None:
        assert name == SUBSCRIPTION
        assert list(positions) == [self.partition]
        self.holds.append(positions[self.partition])
        self.held = max(self.held, positions[self.partition])

    async def run(self) -> CompactionState:
        """Compact, and wait for the end of that."""
        await asyncio.wait([self.beside.start(self.partition)])
        await self.settle()
        return self.partition.compaction.state

    async def crash(self) -> None:
        self.beside._tasks.cancel()
        await asyncio.wait_for(self.beside.close(), 10)
        await super().crash()

    @property
    def horizon(self) -> int:
        return 0 if self.log.compacted is None else self.log.compacted.end

    def expected(self) -> list[Row]:
        """What a reader of what is compacted gets."""
        last: dict[bytes, Row] = {}
        behind = []
        for row in self.rows:
            if row.offset >= self.horizon:
                if row.offset >= self.log.log_start and not row.aborted:
                    behind.append(row)
            elif row.key is not None and not row.aborted:
                last[row.key] = row
        return sorted([row for row in last.values() if row.value], key=lambda row: row.offset) + behind

    async def view_entries(self, view: CompactedView) -> list[Entry]:
        found: list[Entry] = []
        offset = view.log_start
        while offset < view.high_watermark:
            cached = view.read_cached(offset, self.chance.randint(1, 3000), view.high_watermark)
            some = cached or await view.read(offset, self.chance.randint(1, 3000))
            found += some
            offset = some[-1].last_offset + 1
        return found

    async def check(self) -> None:
        """Records, offsets and positions are what the list says, the log is whole, and no ledger is left over."""
        view = CompactedView(self.log)
        entries = await self.view_entries(view)
        aborted = {row.offset for row in self.rows if row.aborted}
        shown = [
            (one.offset, one.key, one.value or None, one.timestamp_ms)
            for entry in entries
            for one in records_of(entry)
            if one.offset not in aborted
        ]
        assert shown == [
            (row.offset, row.key, row.value or None, row.timestamp_ms) for row in self.expected()
        ]
        for entry in entries:
            if entry.kind is EntryKind.KAFKA and entry.last_offset < self.horizon - 1:
                assert not read_header(entry.payload).is_control, "what is left has no markers"
        await self._check_view(view, entries)
        whole = [one.offset for entry in await self.entries() for one in records_of(entry)]
        assert whole == [row.offset for row in self.rows if row.offset >= self.log.log_start]
        kept = {one.ledger_id for one in await self.store.list_ledgers() if one.entry_count}
        assert kept <= set(self.log.stored_ids)
        assert not set(await self.environment.tombstones.load()) & set(self.log.stored_ids)
        assert self.held <= max(self.horizon, self.log.log_start)

    async def _check_view(self, view: CompactedView, entries: list[Entry]) -> None:
        for base, (ledger_id, entry_id) in self.positions.items():
            if self.chance.random() < 0.7 or (base < self.log.log_start and base >= self.horizon):
                continue
            left = [one for one in entries if one.base_offset >= base]
            located = await view.locate(LedgerId(ledger_id), EntryId(entry_id))
            assert (located and located.base_offset) == (left[0].base_offset if left else None)
            at = await view.entry_at(base)
            assert (at and at.base_offset) == (left[0].base_offset if left else None)
            offset = base + self.chance.randint(0, 3)
            before = [one for one in entries if one.last_offset < offset]
            earlier = await view.entry_before(offset)
            assert (earlier and earlier.base_offset) == (before[-1].base_offset if before else None)
            assert earlier is None or bytes(earlier.payload) == bytes(before[-1].payload)
            time_ms = self.clock.now_ms() - self.chance.randint(0, 200)
            late = [one for one in left if one.max_timestamp_ms >= time_ms]
            found = await view.entry_for_timestamp(time_ms, base)
            assert (found and found.base_offset) == (late[0].base_offset if late else None)
        for one in entries:
            known = self.positions.get(one.base_offset)
            assert known in (None, (one.ledger_id, one.entry_id))

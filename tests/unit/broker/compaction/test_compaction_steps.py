"""The process dies at every step of a compaction; what its next start finds is whole, and can be compacted on."""

import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.compaction import compactor, run
from magnetar.broker.compaction.entries import Entries
from magnetar.broker.compaction.plan import plan
from magnetar.broker.log.model import AbortedRange
from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.entry import Entry
from magnetar.metadata.store import CommitStep
from magnetar.storage.store import EntryId, LedgerId, LedgerReader
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.compaction import latest
from magnetar.wire.kafka.records import read_header

from .keyed import records_of
from .world import CompactedLog, Row


class Life:
    """So many writes are made until the end; `is_last_made` says whether the one after them is, unheard of."""

    def __init__(self) -> None:
        self.steps_left = 1 << 30
        self.is_last_made = False
        self.over = asyncio.Event()

    def take(self) -> tuple[bool, bool]:
        """Whether a write is made, and whether it is answered."""
        self.steps_left -= 1
        if self.steps_left >= 0:
            return True, True
        self.over.set()
        return self.steps_left == -1 and self.is_last_made, False


class MortalLedgerStore(MemoryLedgerStore):
    def __init__(self, life: Life) -> None:
        super().__init__()
        self.life = life

    def write(self, count: int | None = None) -> None:
        due, self._queue = self._queue, []
        for one in due:
            is_made, is_answered = self.life.take()
            if is_made:
                one.apply()
            if is_answered:
                one.report(None)
        self._wake()


class MortalMetadataStore(MemoryMetadataStore):
    def __init__(self, life: Life) -> None:
        super().__init__()
        self.life = life

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        is_made, is_answered = self.life.take()
        if is_made:
            await super().commit(operations)
        if not is_answered:
            await asyncio.Event().wait()


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


async def filled(life: Life, seed: int) -> CompactedLog:
    """A log of many ledgers, a part of which was compacted before."""
    world = CompactedLog(
        random.Random(seed),
        store=MortalLedgerStore(life),
        metadata=MortalMetadataStore(life),
        entries_max=3,
        config={"segment.bytes": "1048576"},
    )
    for _ in range(12):
        await world.send()
        await world.publish()
    await world.send_in_transaction(3)
    await world.end(3, commit=False)
    while not await world.compact():
        pass
    for _ in range(8):
        await world.send()
        await world.publish()
    return world


def last_rows(rows: list[Row]) -> set[int]:
    """Offsets of the last record of each key."""
    return set({row.key: row.offset for row in rows if row.key is not None and not row.aborted}.values())


async def check_whole(world: CompactedLog) -> None:
    """Nothing that must be there is missing, and nothing is there that was not produced."""
    produced = {row.offset: row for row in world.rows}
    shown = set()
    for entry in await world.entries():
        for one in records_of(entry):
            row = produced[one.offset]
            assert (one.key, one.value, one.timestamp_ms) == (row.key, row.value, row.timestamp_ms)
            shown.add(one.offset)
    assert last_rows(world.rows) <= shown
    kept = {one.ledger_id for one in await world.store.list_ledgers() if one.entry_count}
    assert kept <= set(world.log.stored_ids), "what a run had begun to write is gone"


@pytest.mark.parametrize("is_last_made", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing(is_last_made: bool, groups: int) -> None:
    async def die_after(steps: int) -> bool:
        """Whether the process died before the compaction was over."""
        life = Life()
        world = await filled(life, seed=5)
        world.log.limits.size_bytes_max = 1 << 30
        world.snapshot = world.partition.snapshot()
        world.partition.stored_snapshot.note(world.snapshot)
        wanted = plan(world.partition, world.clock.now_ms(), world.partition.recovers_from)
        assert wanted is not None
        size = sum(info.size_bytes for info in wanted.ledgers)
        object.__setattr__(
            world.partition.topic.config, "segment_bytes", size if groups == 1 else size // groups
        )
        life.steps_left, life.is_last_made = steps, is_last_made

        async def compact() -> None:
            await world.compactor.run(world.partition, wanted, world.clock.now_ms())
            await world.settle()  # the old ledgers go

        running = asyncio.ensure_future(compact())
        over = asyncio.ensure_future(life.over.wait())
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        is_over = running.done() and life.steps_left >= 0
        while not running.done():  # cleaning up waits for a disk that does not write any more
            running.cancel()
            await asyncio.sleep(0)
        life.steps_left = 1 << 30
        world.store.life = Life()
        world.store.life.steps_left = 0  # the dead process writes no more
        await world.crash()
        await check_whole(world)
        while await world.compact() or world.log.cleaned < wanted.end:
            pass
        world.compacted(wanted.begin, world.log.cleaned, world.clock.now_ms())
        await world.check()
        world.compactor.close()
        return not is_over

    steps = 0
    while asyncio.run(die_after(steps)):
        steps += 1
    assert steps > 8 + 3 * groups


@pytest.mark.parametrize("error", [StorageError("the disk is full"), asyncio.CancelledError()])
def test_a_run_that_ends_early_leaves_no_ledger(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world = await filled(Life(), seed=6)
        before = world.log.stored_ids
        wanted = plan(world.partition, world.clock.now_ms(), world.log.high_watermark)
        assert wanted is not None

        async def broken(*arguments: object) -> None:
            await run.rewrite(*arguments)  # type: ignore[arg-type]
            raise error

        monkeypatch.setattr(compactor, "rewrite", broken)
        with pytest.raises(type(error)):
            await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        await world.settle()
        assert world.log.stored_ids == before
        assert {number for number, ledger in world.store.ledgers.items() if ledger.entries} <= set(before)
        assert not await world.environment.tombstones.load()
        world.compactor.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["read", "locate", "entry_before", "entry_for_timestamp"])
def test_a_read_whose_ledger_is_replaced_meanwhile_begins_anew(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world = await filled(Life(), seed=8)
        log, reader_of = world.log, world.log._reader
        is_first = True

        async def slow(info: LedgerInfo) -> LedgerReader:
            nonlocal is_first
            reader = await reader_of(info)
            if is_first:
                is_first = False
                while not await world.compact():
                    pass
            return reader

        monkeypatch.setattr(log, "_reader", slow)
        log._run.drop_below(log.high_watermark)
        found: Entry | None
        match how:
            case "read":
                found = (await log.read(1, 1))[0]
            case "locate":
                found = await log.locate(LedgerId(-1), EntryId(-1))
            case "entry_before":
                found = await log.entry_before(log.high_watermark - 1)
            case _:
                found = await log.entry_for_timestamp(0, 0)
        assert log.rewrite_count >= 2
        assert found is not None
        assert found.base_offset in {entry.base_offset for entry in await world.entries()}
        world.compactor.close()

    asyncio.run(scenario())


def test_a_ledger_that_retention_takes_meanwhile_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = await filled(Life(), seed=7)
        first = next(iter(world.log.ledgers))
        wanted = plan(world.partition, world.clock.now_ms(), world.log.high_watermark)
        assert wanted is not None

        async def trimmed(*arguments: object) -> None:
            await run.rewrite(*arguments)  # type: ignore[arg-type]
            await world.log.trim(log_start=first.end_offset)

        monkeypatch.setattr(compactor, "rewrite", trimmed)
        await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        await world.settle()
        assert world.log.log_start == first.end_offset
        assert world.log.rewrite_count == 1, "not again, as a ledger was missing"
        await check_whole(world)
        world.compactor.close()

    asyncio.run(scenario())


def test_ledgers_of_which_nothing_goes_stay_as_they_are() -> None:
    async def scenario() -> None:
        world = CompactedLog(random.Random(4), entries_max=1, config={"segment.bytes": "1048576"})
        world.pairs = lambda count, **_: [(b"%d" % len(world.rows), b"v")]  # type: ignore[method-assign]
        for _ in range(4):
            await world.send()
        await world.settle()
        object.__setattr__(world.partition.topic.config, "segment_bytes", 1)
        before = world.log.stored_ids
        while not await world.compact():
            pass
        assert world.log.stored_ids == before
        assert world.log.rewrite_count == 0
        assert world.log.cleaned == len(world.rows)
        object.__setattr__(world.partition.topic.config, "segment_bytes", 1 << 20)
        world.log.cleaned = 0
        await world.compact()
        assert len(world.log.stored_ids) < len(before), "neighbours are put together all the same"
        await world.check()
        world.compactor.close()

    asyncio.run(scenario())


def test_what_stands_for_the_end_of_a_ledger_has_the_epoch_of_that_end() -> None:
    async def scenario() -> None:
        world = CompactedLog(random.Random(4), entries_max=2)
        world.pairs = lambda count, **_: [(b"k", b"v")]  # type: ignore[method-assign]
        for _ in range(2):
            await world.send()
        await world.crash()
        for _ in range(2):
            await world.send()
        await world.crash()
        await world.send()
        await world.send()
        await world.send()
        epochs = []
        object.__setattr__(world.partition.topic.config, "segment_bytes", 1)
        while world.log.cleaned < 6:
            await world.compact()
        for entry in await world.entries():
            header = read_header(entry.payload)
            epochs.append((entry.base_offset, header.partition_leader_epoch, header.is_control))
        assert epochs == [(1, 0, True), (3, 1, True), (6, 2, False)]
        world.compactor.close()

    asyncio.run(scenario())


def test_what_was_done_is_counted_and_what_is_left_comes_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = await filled(Life(), seed=5)
        counts = world.compactor.counts
        before = dict(vars(counts))
        world.partition.stored_snapshot.note(world.partition.snapshot())
        wanted = plan(world.partition, world.clock.now_ms(), world.partition.recovers_from)
        assert wanted is not None
        assert wanted.clean_bytes
        object.__setattr__(world.partition.topic.config, "segment_bytes", 1)
        left: list[int] = []

        async def seen(*arguments: object) -> None:
            left.append(world.compactor.left_bytes)
            await run.rewrite(*arguments)  # type: ignore[arg-type]
            world.clock.advance(2)

        monkeypatch.setattr(compactor, "rewrite", seen)
        sizes = [info.size_bytes for info in wanted.ledgers if info.size_bytes]
        stored = world.log.size_bytes
        await world.compactor.run(world.partition, wanted, world.clock.now_ms())
        total = 2 * wanted.dirty_bytes + wanted.clean_bytes
        assert left == [total - sum(sizes[:number]) for number in range(len(sizes))]
        assert world.compactor.left_bytes == 0
        assert counts.seconds - before["seconds"] == 2 * len(sizes)
        assert counts.runs - before["runs"] == 1
        assert counts.failures == 0
        read = counts.read_bytes - before["read_bytes"]
        assert read >= wanted.dirty_bytes + sum(sizes) - 100 * len(sizes)
        assert read <= wanted.dirty_bytes + sum(sizes)
        assert counts.won_bytes - before["won_bytes"] == stored - world.log.size_bytes
        assert counts.removed_records > before["removed_records"]
        assert 0 < counts.written_bytes - before["written_bytes"] < read
        world.compactor.close()
        with pytest.raises(StorageError):
            await world.compactor.thread.run(list)

    asyncio.run(scenario())


def test_keys_and_transactions_are_looked_at_beside_the_loop_and_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = await filled(Life(), seed=12)
        for number in range(20):
            await world.send_in_transaction(number)
            await world.end(number, commit=False)
        asked: list[tuple[int, int]] = []
        found_between = world.partition.transactions.aborted_between

        def between(offset: int, end: int) -> list[AbortedRange]:
            asked.append((offset, end))
            return found_between(offset, end)

        class SeenEntries(Entries):
            def __init__(self, *arguments: Any) -> None:
                names.append(threading.current_thread().name)
                super().__init__(*arguments)

        names: list[str] = []
        monkeypatch.setattr(
            type(world.partition.transactions), "aborted_between", lambda _, *what: between(*what)
        )
        monkeypatch.setattr(compactor, "Entries", SeenEntries)
        ledgers = list(world.log.ledgers)
        while not await world.compact():
            pass
        await world.check()
        assert names[0].startswith("magnetar-compact")
        assert set(asked) <= {(info.first_offset, info.end_offset) for info in ledgers}
        world.compactor.close()

    asyncio.run(scenario())


def test_what_is_left_of_a_batch_still_tells_its_last_sequence() -> None:
    """Where the snapshot of producers is lost, a start reads what compaction has left."""

    async def scenario() -> None:
        world = CompactedLog(random.Random(9), entries_max=1)
        rows: list[Row] = []
        while {row.gone for row in rows} != {False, True}:  # a batch of which some is left
            await world.send(producer=7)
            last = world.rows[-1].entry
            await world.publish()  # closes its ledger
            await world.compact()
            rows = [row for row in world.rows if row.entry == last]
        before = [one._replace(last_timestamp_ms=0) for one in world.partition.known_producers]
        world.snapshot = {}
        await world.crash()
        assert [one._replace(last_timestamp_ms=0) for one in world.partition.known_producers] == before
        world.compactor.close()

    asyncio.run(scenario())

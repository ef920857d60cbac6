"""What a partition knows of its transactions after a start, with a damaged snapshot or a damaged log."""

import asyncio
import random
import struct
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt, StorageError
from magnetar.broker.log import partition_recovery
from magnetar.broker.log.aborted_index import BLOCK_ROWS, AbortedIndex
from magnetar.broker.log.model import AbortedRange
from magnetar.broker.log.partition import Partition
from magnetar.metadata.store import VALUE_BYTES_MAX
from magnetar.testing.ledgers import MemoryLedger

from .pulsar_entries import sent
from .test_producer_state import Bench, batch

ABORTED, COMMITTED, OPEN = 7, 8, 9
TRANSACTIONAL = 0x10


def in_transaction(plain: memoryview) -> memoryview:
    """The batch as one of a transaction."""
    struct.pack_into(">h", plain, 21, TRANSACTIONAL)
    struct.pack_into(">I", plain, 17, crc32c(plain[21:]))
    return plain


class TransactionBench(Bench):
    """Every producer is in a transaction with this partition whenever it says so."""

    def _open(self) -> Partition:
        partition = super()._open()
        topic: Any = partition.topic
        topic.is_in_transaction = lambda *_: True
        topic.is_deleted = False
        return partition

    def write(self, producer_id: int, sequence: int = 0) -> list[Exception | None]:
        outcome: list[Exception | None] = []
        now_ms = self.clock.now_ms()
        data = in_transaction(batch(1, producer_id, 0, sequence, now_ms))
        self.partition.append(data, now_ms, outcome.append)
        return outcome

    def end(self, producer_id: int, *, commit: bool) -> list[Exception | None]:
        outcome: list[Exception | None] = []
        self.partition.end_transaction(producer_id, 0, commit, 0, outcome.append)
        return outcome

    async def history(self) -> None:
        """Offsets 0 to 5: an aborted and a committed record, their markers, an open transaction, a plain record."""
        self.write(ABORTED)
        self.write(COMMITTED)
        self.end(ABORTED, commit=False)
        self.end(COMMITTED, commit=True)
        self.write(OPEN)
        self.produce(-1, -1, -1)
        await self.flush()

    def damage(self, offset: int) -> MemoryLedger:
        """The entry at `offset` cannot be read any more, from the next start on."""
        for ledger in self.store.ledgers.values():
            for entry in ledger.entries:
                if entry.last_offset == offset:
                    entry.body = memoryview(b"not an entry of ours")
                    return ledger
        raise AssertionError(offset)

    def knows_all(self) -> None:
        partition = self.partition
        assert partition.problem is None
        assert partition.last_stable_offset == 4, "where the open transaction begins"
        assert partition.transactions.aborted_between(0, 6) == [AbortedRange(ABORTED, 0, 2)]
        assert {producer_id for producer_id, _ in partition.producers.items()} == {ABORTED, COMMITTED, OPEN}
        partition.check_committed(6)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_damaged_snapshot_costs_a_replay_and_shows_no_aborted_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Transaction memory once failed open: a bad snapshot made aborted and open records visible."""

    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        good = bench.partition.snapshot()
        random_bits = random.Random(5)
        for suffix, value in good.items():
            for damaged in (value[:-1], b"", bytes([value[0] ^ 1 << random_bits.randrange(8)]) + value[1:]):
                await bench.crash(good | {suffix: damaged})
                bench.knows_all()
                assert bench.partition.bytes_since_snapshot, "it is due to be replaced"
                puts, gone = bench.partition.stored_snapshot.unstored(bench.partition.snapshot())
                assert (suffix in puts, gone) == (True, [])
        await bench.crash({suffix: value for suffix, value in good.items() if suffix})
        bench.knows_all()
        await bench.crash({})
        bench.knows_all()
        caplog.clear()
        await bench.crash(good)
        bench.knows_all()
        assert bench.partition.bytes_since_snapshot == 0
        assert bench.partition.stored_snapshot.unstored(bench.partition.snapshot()) == ({}, [])
        assert not caplog.records

    run(scenario())


@pytest.mark.parametrize("damaged_at", [0, 1, 2, 3, 4])
def test_where_an_entry_cannot_be_read_readers_of_committed_records_are_refused_behind_what_is_certain(
    damaged_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        bench.damage(damaged_at)
        caplog.clear()
        await bench.crash({})
        assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1
        partition = bench.partition
        # Below an entry that is damaged: the first record of what was open there.
        stable = {0: 0, 1: 0, 2: 0, 3: 1, 4: 4}[damaged_at]
        assert partition.last_stable_offset == stable
        for offset in range(stable):
            partition.check_committed(offset)
        for offset in range(stable, 7):
            with pytest.raises(EntryCorrupt):
                partition.check_committed(offset)
        assert partition.problem is not None
        assert f"offset {damaged_at} cannot be read" in partition.problem
        with pytest.raises(StorageError):
            bench.produce(5, 0, 0)
        with pytest.raises(StorageError):
            bench.write(OPEN, 1)
        _, plain = bench.produce(-1, -1, -1)
        await bench.flush()
        assert plain == [None]
        assert partition.last_stable_offset == stable
        caplog.clear()
        await partition_recovery.resume(partition, bench.clock.now_ms())
        assert partition.problem is not None, "nothing has changed"
        assert not caplog.records

    run(scenario())


def test_an_abort_behind_a_damaged_entry_gets_its_marker_and_counts_once_the_damage_is_deleted() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        bench.damage(0)
        await bench.crash({})
        late = bench.end(OPEN, commit=False)
        await bench.flush()
        assert late == [None]
        partition = bench.partition
        assert partition.log.high_watermark == 7, "the marker was written"
        woken: list[int] = []
        partition.waiters.add(lambda _: woken.append(1))
        await partition.log.trim(log_start=1)
        await partition_recovery.resume(partition, bench.clock.now_ms())
        assert partition.problem is None
        assert woken
        assert partition.last_stable_offset == 7
        assert partition.transactions.aborted_between(0, 7) == [AbortedRange(OPEN, 4, 6)]
        assert bench.produce(5, 0, 0)[0] == 7

    run(scenario())


def test_a_marker_on_its_way_when_the_memory_is_completed_counts() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        bench.damage(0)
        await bench.crash({})
        await bench.partition.log.trim(log_start=1)
        bench.end(OPEN, commit=True)
        completed = asyncio.ensure_future(partition_recovery.resume(bench.partition, bench.clock.now_ms()))
        await bench.flush()
        await completed
        assert bench.partition.last_stable_offset == bench.partition.log.high_watermark == 7

    run(scenario())


def test_what_was_open_before_deleted_damage_is_not_open_for_ever() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        bench.damage(3)
        await bench.crash({})
        assert bench.partition.last_stable_offset == 1
        await bench.partition.log.trim(log_start=4)
        await partition_recovery.resume(bench.partition, bench.clock.now_ms())
        assert bench.partition.last_stable_offset == 4

    run(scenario())


def test_while_a_long_log_is_replayed_committed_readers_sequences_and_markers_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_recovery, "REPLAY_AT_START_BYTES", 0)

    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        await bench.crash({})
        partition = bench.partition
        assert partition.last_stable_offset == 0
        with pytest.raises(StorageError) as refused:
            partition.check_committed(0)
        assert not isinstance(refused.value, EntryCorrupt), "it will be known soon"
        with pytest.raises(StorageError):
            bench.write(OPEN, 1)
        with pytest.raises(StorageError):
            bench.end(OPEN, commit=True)
        replayed = asyncio.ensure_future(partition_recovery.resume(partition, bench.clock.now_ms()))
        assert bench.produce(-1, -1, -1)[0] == 6
        await bench.flush()
        await replayed
        bench.knows_all()
        marked = bench.end(OPEN, commit=True)
        await bench.flush()
        assert marked == [None]
        assert partition.last_stable_offset == 8

    run(scenario())


def test_a_read_that_fails_for_now_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        read = MemoryLedger.read

        async def broken(*_: object) -> Any:
            raise StorageError("the disk does not answer")

        monkeypatch.setattr(MemoryLedger, "read", broken)
        await bench.crash({})
        with pytest.raises(StorageError):
            bench.partition.check_committed(0)
        monkeypatch.setattr(MemoryLedger, "read", read)
        await partition_recovery.resume(bench.partition, bench.clock.now_ms())
        bench.knows_all()

    run(scenario())


def test_records_deleted_behind_the_snapshot_leave_no_transaction_open() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        snapshot = bench.partition.snapshot()
        bench.end(OPEN, commit=True)
        bench.produce(-1, -1, -1)
        await bench.flush()
        await bench.partition.log.trim(log_start=7)
        await bench.crash(snapshot)
        assert bench.partition.last_stable_offset == 8

    run(scenario())


def test_pulsar_producers_are_refused_where_what_they_have_sent_is_not_known() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        bench.deduplicates = True
        bench.partition.deduplicate(True)
        view = sent(sequence_id=1)
        bench.partition.publish(view.data, view, bench.clock.now_ms(), lambda _: None)
        await bench.flush()
        bench.damage(0)
        await bench.crash({})
        with pytest.raises(StorageError):
            bench.partition.publish(view.data, view, bench.clock.now_ms(), lambda _: None)
        with pytest.raises(StorageError):
            bench.partition.last_sequence_id("p")
        bench.partition.deduplicate(False)
        assert bench.partition.publish(view.data, view, bench.clock.now_ms(), lambda _: None).base_offset == 1

    run(scenario())


# --- tens of thousands of aborted transactions ------------------------------------------------------------------------


def many(count: int, begin: int = 0) -> list[AbortedRange]:
    """Transactions of 1,000 producers, with others between their records and their markers."""
    draw = random.Random(count)
    return [
        AbortedRange(
            1 << 40 | number % 1000, 3 * number - draw.randrange(min(3 * number, 2000) + 1), 3 * number + 2
        )
        for number in range(begin, begin + count)
    ]


def test_200_000_aborted_transactions_are_found_and_stored_and_written_once() -> None:
    """They made a snapshot that no value of the metadata store could hold, and then no partition had one."""

    async def scenario() -> None:
        bench = TransactionBench()
        await bench.history()
        index = bench.partition.transactions._aborted
        known = many(200_000, begin=10)
        for one in known:
            index.add(one)
        first = bench.partition.snapshot()
        assert max(map(len, first.values())) <= VALUE_BYTES_MAX
        assert sum(map(len, first.values())) < 10 * len(known)
        assert len(bench.partition.stored_snapshot.unstored(first)[0]) == len(first)
        bench.partition.stored_snapshot.note(first)
        index.add(AbortedRange(3, 600_101, 600_104))
        second = bench.partition.snapshot()
        puts, gone = bench.partition.stored_snapshot.unstored(second)
        assert (len(puts), gone) == (1, []), "the block that has grown"
        bench.partition.stored_snapshot.note(second)
        read = AbortedIndex.decode(*_blocks(second))
        assert len(read) == 200_002
        for begin in (0, 1, 299_999, 599_990, 600_003):
            end = begin + 700
            expected = [one for one in known if one.last_offset >= begin and one.first_offset < end]
            assert [one for one in read.between(begin, end) if one in expected] == expected
        # Retention: what the log does not have is in no memory, and in no store.
        bench.partition.transactions.forget_below(3 * 150_000)
        assert bench.partition.transactions.aborted_count == 50_011
        puts, gone = bench.partition.stored_snapshot.unstored(bench.partition.snapshot())
        assert len(gone) == 150_000 // BLOCK_ROWS

    run(scenario())


def _blocks(snapshot: Mapping[str, bytes]) -> tuple[list[int], dict[int, bytes]]:
    seal_bytes = 6
    found = {
        int(suffix[len("/aborted-") :], 16): value[seal_bytes:]
        for suffix, value in snapshot.items()
        if suffix.startswith("/aborted-")
    }
    return list(found), found


def test_aborted_transactions_whose_markers_were_not_stored_are_forgotten_block_by_block() -> None:
    index, known = AbortedIndex(), many(3 * BLOCK_ROWS)
    for one in known:
        index.add(one)
    stored = index.encode()
    for kept in (2 * BLOCK_ROWS + 7, 2 * BLOCK_ROWS, BLOCK_ROWS + 1, 0):
        index.forget_from(known[kept].last_offset)
        assert len(index) == kept
        encoded = index.encode()
        assert len(encoded) == -(-kept // BLOCK_ROWS)
        assert AbortedIndex.decode(encoded, encoded).between(0, 1 << 40) == known[:kept]
    for one in known:
        index.add(one)
    assert index.encode() == stored

"""What a partition's log promises, one claim at a time."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError, StorageError
from magnetar.ledger.chain import EpochEnd
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import NO_ENTRY, NO_LEDGER
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.ledger.tombstones import ROOT as TOMBSTONES_ROOT
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import NAME, Chain, run, settle


@run
async def test_readers_see_nothing_before_it_is_durable() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    chain.append(2)
    await settle()
    assert (chain.log.high_watermark, chain.log.next_offset) == (0, 2)
    assert chain.log.read_cached(0, 1000, chain.log.high_watermark) == []
    assert await chain.log.read(0, 1000) == []
    await chain.flush()
    assert chain.log.high_watermark == 2


@run
async def test_a_trim_keeps_a_ledger_whose_first_entries_are_on_their_way() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=100))
    chain.append()
    await settle()
    chain.store.write()  # the first ledger is there
    await settle()
    chain.append()
    await settle()
    # The first ledger is full and has nothing durable; let its successor be created but its entries wait.
    waiting = chain.store._queue
    creations = [one for one in waiting if one.ledger is None]
    entries = [one for one in waiting if one.ledger is not None]
    assert creations
    assert entries
    chain.store._queue = creations
    chain.store.write()
    await settle()
    chain.store._queue = entries
    trim = asyncio.ensure_future(chain.log.trim(retention_ms=0))
    await settle()
    await chain.flush()
    await trim
    await chain.flush()
    assert chain.outcomes == {0: None, 1: None}
    assert await chain.read_all() == [(0, 0), (1, 1)]
    await chain.restart()
    assert await chain.read_all() == [(0, 0), (1, 1)]


@run
async def test_deleting_records_up_to_the_end_keeps_what_is_in_flight_in_the_ledger_before() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=300))
    await chain.written(1)
    chain.append()
    chain.append()  # rolls
    await settle()
    waiting = chain.store._queue
    chain.store._queue = [one for one in waiting if one.ledger is None]
    chain.store.write()
    await settle()
    chain.store._queue = [one for one in waiting if one.ledger is not None]
    trim = asyncio.ensure_future(chain.log.trim(log_start=1))
    await settle()
    await chain.flush()
    assert await trim == 1
    assert chain.log.high_watermark == 3
    assert await chain.read_all() == [(1, 1), (2, 2)]


@run
async def test_a_log_goes_on_when_only_the_end_of_what_was_queued_failed() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    for _ in range(3):
        chain.append()
    await settle()
    original = chain.store.enqueue

    def third_is_refused(one: object) -> None:
        original(one)  # type: ignore[arg-type]
        if len(chain.store) == 2:
            chain.store.full = True

    chain.store.enqueue = third_is_refused  # type: ignore[method-assign]
    chain.store.write()
    await settle()
    chain.store.full = False
    chain.store.enqueue = original  # type: ignore[method-assign]
    assert isinstance(chain.outcomes[2], StorageError)
    await chain.flush()
    assert chain.outcomes[0] is None
    assert chain.outcomes[1] is None
    assert chain.log.next_offset == chain.log.high_watermark == 2
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]


@run
async def test_after_a_failed_write_the_log_goes_on_at_its_durable_end_in_a_new_ledger() -> None:
    resets: list[int] = []
    chain = Chain(MemoryLedgerStore(automatic=False), on_reset=lambda: resets.append(chain.log.next_offset))
    await chain.written(1, 1)
    chain.append(5)
    chain.append(5)
    chain.store.fail()
    await settle()
    assert resets == [2]
    assert chain.log.next_offset == 2
    assert chain.log.read_cached(2, 100, chain.log.high_watermark) is None
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]
    assert chain.log.size_bytes == 300
    await chain.restart()
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]


@run
async def test_closing_while_the_first_ledger_is_being_made_answers_every_append() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    chain.append()
    chain.append()
    await settle()
    chain.log.close()
    await chain.flush()
    assert all(isinstance(chain.outcomes[base], StorageError) for base in (0, 1))
    assert chain.log.next_offset == 0
    with pytest.raises(StorageError):
        chain.append()


@run
async def test_a_log_that_is_deleted_while_a_ledger_is_being_made_leaves_nothing_behind() -> None:
    for had_data in (False, True):
        chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=100))
        if had_data:
            await chain.written(1)
        chain.append()
        await settle()
        deletion = asyncio.ensure_future(chain.log.erase())
        await chain.flush()
        await deletion
        await chain.flush()
        assert chain.store.ledgers == {}
        assert await chain.metadata.scan(METADATA_ROOT) == []
        assert not chain.environment.tasks


@run
async def test_a_log_takes_no_appends_once_its_deletion_has_begun() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    deletion = asyncio.ensure_future(chain.log.erase())
    await settle()
    with pytest.raises(StorageError, match="is being closed"):
        chain.append()
    await chain.flush()
    await deletion


@run
async def test_a_start_that_is_moved_while_the_log_is_deleted_leaves_nothing_behind() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(3)
    chain.metadata.hold()
    first = asyncio.ensure_future(chain.log.trim(log_start=1))
    await settle()
    deletion = asyncio.ensure_future(chain.log.erase())
    await settle()
    second = asyncio.ensure_future(chain.log.trim(log_start=2))  # it waits, and comes behind the deletion
    await settle()
    chain.metadata.release()
    await asyncio.gather(first, deletion)
    with pytest.raises(StorageError):
        await second
    assert await chain.metadata.scan(METADATA_ROOT) == []


@run
async def test_a_ledger_that_cannot_be_recorded_is_kept_for_the_next_append_that_tries_again() -> None:
    """Whether the commit that names it is on the disk all the same is not known, so it is not deleted."""
    chain = Chain(MemoryLedgerStore())
    chain.metadata.fail_next = 1
    chain.append()
    await chain.flush()
    assert isinstance(chain.outcomes[0], StorageError)
    assert list(chain.store.ledgers) == [1]
    await chain.written(1)
    assert chain.outcomes[0] is None
    assert chain.log.stored_ids == list(chain.store.ledgers) == [1]


@run
async def test_a_roll_that_fails_stays_in_the_open_ledger() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=100))
    await chain.written(1)
    chain.metadata.fail_next = 1
    await chain.written(1)
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]
    assert len(chain.log.stored_ids) == 1, "it does not try again at each append"
    assert len(chain.store.ledgers) == 2
    chain.clock.advance(60)
    await chain.written(1, 1)
    assert chain.log.stored_ids == list(chain.store.ledgers) == [1, 2], "the one that was made is taken"


@run
async def test_a_fenced_ledger_is_replaced() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(1)
    for ledger in chain.store.ledgers.values():
        ledger.sealed = True  # another process took it over
    with pytest.raises(StorageError):
        chain.append()
    await settle()
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1)]


# --- restarts and epochs ----------------------------------------------------------------------------------------------


@run
async def test_offsets_and_epochs_go_on_after_everything_has_expired() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(10)
    for expected in (1, 2, 3):
        await chain.restart()
        assert chain.log.leader_epoch == expected
        await chain.written(10)
    chain.clock.advance(10)
    await chain.log.trim(retention_ms=1000)
    await chain.flush()
    assert chain.log.log_start == chain.log.high_watermark == 40
    assert chain.store.ledgers == {}
    await chain.restart()
    assert chain.log.log_start == chain.log.next_offset == 40
    assert chain.log.leader_epoch == 4
    await chain.written(1)
    assert await chain.read_all() == [(40, 40)]


@run
async def test_the_end_of_an_epoch_is_where_kafka_says_it_is() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(10)  # epoch 0: 0-9
    await chain.restart()
    await chain.written(10)  # epoch 1: 10-19
    await chain.restart()
    assert chain.log.epoch_end(0) == EpochEnd(0, 10)
    assert chain.log.epoch_end(1) == EpochEnd(1, 20)
    assert chain.log.epoch_end(2) == EpochEnd(2, 20)
    assert chain.log.epoch_end(3) is None
    assert chain.log.epoch_end(-1) is None
    chain.clock.advance(1)
    await chain.log.trim(log_start=15)
    await chain.flush()
    # A cut into epoch 1 makes 15 the first offset that is known of it.
    assert chain.log.epoch_end(0) == EpochEnd(0, 15)
    assert chain.log.epoch_end(1) == EpochEnd(1, 20)


@run
async def test_an_epoch_without_records_is_not_an_epoch_that_a_reader_can_have() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(10)
    await chain.restart()
    chain.append()  # epoch 1 gets a ledger, and nothing in it
    await settle()
    chain.store.write(1)
    await settle()
    await chain.restart()
    assert chain.log.leader_epoch == 2
    assert chain.log.epoch_end(1) == EpochEnd(0, 10)
    await chain.written(1)
    assert chain.log.epoch_end(1) == EpochEnd(0, 10)
    assert chain.log.epoch_at(9) == 0
    assert chain.log.epoch_at(10) == 2


# --- retention --------------------------------------------------------------------------------------------------------


@run
async def test_retention_by_size_counts_what_was_stored_not_what_failed() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=200))
    await chain.written(1, 1)
    await chain.written(1)
    for _ in range(5):
        chain.append(size=1000)
        await settle()
        chain.store.fail()
        await chain.flush()
    await chain.written(1)
    assert chain.log.size_bytes == 400
    chain.store.automatic = True
    await chain.log.trim(retention_bytes=400)
    assert chain.log.log_start == 0


@run
async def test_records_without_a_timestamp_are_as_old_as_their_ledger() -> None:
    chain = Chain(MemoryLedgerStore())
    chain.append(timestamp_ms=-1)
    await chain.flush()
    await chain.log.trim(retention_ms=60_000)
    assert chain.log.log_start == 0
    chain.clock.advance(61)
    await chain.log.trim(retention_ms=60_000)
    assert chain.log.log_start == 1


@run
async def test_a_trim_that_cannot_be_stored_changes_nothing() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=100))
    await chain.written(1)
    await chain.written(1)
    chain.metadata.fail_next = 1
    with pytest.raises(MetadataError):
        await chain.log.trim(log_start=1)
    assert chain.log.log_start == 0
    assert await chain.read_all() == [(0, 0), (1, 1)]
    await chain.written(1)
    assert await chain.log.trim(log_start=1) == 1


@run
async def test_the_log_start_may_lie_inside_an_entry() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(10, 10)
    await chain.log.trim(log_start=5)
    assert (await chain.log.read(5, 1))[0].base_offset == 0
    await chain.restart()
    assert chain.log.log_start == 5
    assert (await chain.log.read(5, 1))[0].base_offset == 0


# --- timestamps -------------------------------------------------------------------------------------------------------


@run
async def test_the_first_entry_as_new_as_asked_is_found_whatever_the_order_of_timestamps() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=400))
    stamps = [50, 90, 20, 70, 95, 10, 99, 5, 5, 5]
    for stamp in stamps:
        chain.append(timestamp_ms=stamp)
        await chain.flush()
    for start in range(len(stamps) + 1):
        await chain.log.trim(log_start=start)
        for wanted in range(0, 102):
            expected = next((at for at in range(start, len(stamps)) if stamps[at] >= wanted), None)
            found = await chain.log.entry_for_timestamp(wanted, 0)
            assert (None if found is None else found.base_offset) == expected, (start, wanted)


@run
async def test_the_search_for_a_timestamp_can_go_on_behind_an_entry() -> None:
    chain = Chain(MemoryLedgerStore())
    for stamp in (10, 50, 20, 60):
        chain.append(timestamp_ms=stamp)
    await chain.flush()
    found = await chain.log.entry_for_timestamp(40, 2)
    assert found is not None
    assert found.base_offset == 3


@run
async def test_names_in_the_metadata_are_the_log_s() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(1)
    assert [path for path, _ in await chain.metadata.scan(METADATA_ROOT)] == [METADATA_ROOT + NAME]


@run
async def test_an_entry_that_is_not_durable_is_behind_the_end_for_every_lookup() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(2)
    first = chain.log.read_cached(0, 1, 2)
    assert first is not None
    waiting = chain.append(3)
    assert (waiting.ledger_id, waiting.entry_id) == (first[0].ledger_id, first[0].entry_id + 1)
    assert await chain.log.locate(waiting.ledger_id, waiting.entry_id) is None
    assert chain.log.locate_cached(waiting.ledger_id, waiting.entry_id) is None
    assert await chain.log.entry_at(waiting.base_offset) is None
    await chain.flush()
    assert await chain.log.locate(waiting.ledger_id, waiting.entry_id) is waiting
    assert await chain.log.entry_at(waiting.last_offset) is waiting


@run
async def test_entries_that_waited_for_their_ledger_have_a_position_when_they_are_durable() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    entries = [chain.append() for _ in range(3)]
    assert {(entry.ledger_id, entry.entry_id) for entry in entries} == {(NO_LEDGER, NO_ENTRY)}
    await chain.flush()
    (ledger_id,) = chain.log.stored_ids
    assert [(entry.ledger_id, entry.entry_id) for entry in entries] == [(ledger_id, n) for n in range(3)]
    assert [info.entry_count for info in chain.log.ledgers] == [3]


@run
async def test_a_chain_whose_ledger_is_missing_is_refused_and_not_renumbered() -> None:
    """An older ledger directory beside newer metadata: what was taken for an empty ledger gave its offsets away."""
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2))
    await chain.written(1, 1)
    await chain.written(1, 1)
    stored = await chain.metadata.scan(METADATA_ROOT)
    lost = chain.log.stored_ids[-1]
    del chain.store.ledgers[lost]
    await chain.restart()
    assert chain.log.problem is not None
    assert f"its ledgers {lost} are not in the data folder" in chain.log.problem
    with pytest.raises(StorageError, match="not in the data folder"):
        chain.append()
    with pytest.raises(StorageError, match="not in the data folder"):
        await chain.log.trim(retention_ms=0)
    chain.log.close()
    with pytest.raises(StorageError, match="not in the data folder"):
        chain.append()
    assert await chain.metadata.scan(METADATA_ROOT) == stored


@run
async def test_a_trimmed_ledger_is_named_before_it_is_deleted_and_a_start_goes_on_from_there() -> None:
    """Killed between any two of: the commit of the trim, the ledger's deletion, the removal of its tombstone."""
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=1))
    for _ in range(6):
        await chain.written(1)
    before = chain.log.stored_ids
    assert await chain.log.trim(log_start=4) == 4
    await settle()
    trimmed = [ledger_id for ledger_id in before if ledger_id not in chain.log.stored_ids]
    assert len(trimmed) > 1
    names = [f"/deleted-ledgers/{ledger_id:016x}" for ledger_id in trimmed]
    assert [path for path, _ in await chain.metadata.scan(TOMBSTONES_ROOT)] == names
    assert set(trimmed) < set(chain.store.ledgers), "the store has been asked, and has not written"
    chain.metadata.hold()
    await chain.flush()
    assert not set(trimmed) & set(chain.store.ledgers)
    assert [path for path, _ in await chain.metadata.scan(TOMBSTONES_ROOT)] == names
    await chain.restart()
    chain.metadata.release()
    tombstones = chain.environment.tombstones
    named = await tombstones.load()
    assert named == trimmed
    tombstones.carry_out(named)  # what is gone already is deleted once more
    await chain.flush()
    assert await chain.metadata.scan(TOMBSTONES_ROOT) == []
    assert chain.log.problem is None


@run
async def test_ledgers_that_cannot_be_deleted_now_keep_their_tombstones_and_are_tried_again() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=1))
    for _ in range(4):
        await chain.written(1)
    first = chain.log.stored_ids[0]
    chain.store.full = True
    assert await chain.log.trim(log_start=2) == 2
    await settle()
    assert first in chain.store.ledgers
    assert len(await chain.metadata.scan(TOMBSTONES_ROOT)) == 1
    chain.store.full = False
    chain.clock.advance(30)
    await settle()
    assert first not in chain.store.ledgers
    assert await chain.metadata.scan(TOMBSTONES_ROOT) == []

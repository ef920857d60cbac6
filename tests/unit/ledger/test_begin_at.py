"""A log without entries can begin at any offset, and only such a log."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError, StorageError
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import Chain, run, settle

FAR = 10**12


@run
async def test_a_new_log_begins_at_any_offset_and_keeps_it_over_restarts() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.log.begin_at(FAR)
    log = chain.log
    assert (log.log_start, log.next_offset, log.high_watermark, log.opened_at) == (FAR, FAR, FAR, FAR)
    await chain.restart()
    log = chain.log
    assert (log.log_start, log.next_offset, log.high_watermark, log.opened_at) == (FAR, FAR, FAR, FAR)
    await chain.written(3)
    assert await chain.read_all() == [(FAR, FAR + 2)]
    await chain.restart()
    assert await chain.read_all() == [(FAR, FAR + 2)]
    assert chain.log.log_start == FAR


@run
async def test_a_log_that_has_begun_stays_where_it_is() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(2)
    await chain.log.begin_at(FAR)
    assert (chain.log.log_start, chain.log.next_offset) == (0, 2)
    other = Chain(MemoryLedgerStore())
    await other.log.begin_at(7)
    await other.log.begin_at(FAR)
    assert (other.log.log_start, other.log.next_offset) == (7, 7)


@run
async def test_a_log_whose_entries_are_all_deleted_does_not_begin_anew() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(2)
    await chain.log.trim(log_start=2)
    await chain.log.begin_at(FAR)
    assert (chain.log.log_start, chain.log.next_offset) == (2, 2)


@run
async def test_a_log_with_a_ledger_in_which_nothing_was_stored_stays_where_it_is() -> None:
    """The chain would lose the ledger, and the store would keep it."""
    chain = Chain(MemoryLedgerStore(automatic=False))
    chain.append()
    await settle()
    chain.store.write()  # which creates the ledger
    await settle()
    chain.store.fail()
    await settle()
    assert chain.log.next_offset == 0
    (ledger,) = chain.log.ledgers
    await chain.log.begin_at(FAR)
    assert (chain.log.log_start, chain.log.next_offset) == (0, 0)
    assert list(chain.log.ledgers) == [ledger]


@run
async def test_a_beginning_that_is_not_stored_changes_nothing() -> None:
    chain = Chain(MemoryLedgerStore())
    chain.metadata.fail_next = 1
    with pytest.raises(MetadataError):
        await chain.log.begin_at(FAR)
    assert (chain.log.log_start, chain.log.next_offset) == (0, 0)
    await chain.written(1)
    assert await chain.read_all() == [(0, 0)]


@run
async def test_a_closed_log_does_not_begin() -> None:
    chain = Chain(MemoryLedgerStore())
    chain.log.close()
    with pytest.raises(StorageError):
        await chain.log.begin_at(FAR)


@run
async def test_readers_that_wait_hear_of_the_beginning() -> None:
    heard = asyncio.Event()
    chain = Chain(MemoryLedgerStore(), on_advance=heard.set)
    await chain.log.begin_at(FAR)
    await settle()
    assert heard.is_set()


@run
async def test_a_log_takes_no_appends_while_its_beginning_is_stored() -> None:
    """A topic may be cut loose in that time: what its producers were told is stored would lie before the beginning."""
    chain = Chain(MemoryLedgerStore())
    chain.metadata.hold()
    beginning = asyncio.ensure_future(chain.log.begin_at(FAR))
    await settle()
    with pytest.raises(StorageError, match="try again"):
        chain.append()
    chain.metadata.release()
    await beginning
    await chain.written(1)
    await chain.restart()
    assert await chain.read_all() == [(FAR, FAR)]

"""A log that another broker has taken over, and commits whose answers were lost."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from magnetar.base.errors import LedgerNotFound, LogLost, MetadataError, MetadataLost, StorageError
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.ledger.state import State
from magnetar.ledger.tombstones import ROOT as TOMBSTONES_ROOT
from magnetar.metadata.store import Check, CommitStep
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import NAME, Chain, run, settle

OWNER = "/owner"
DOCUMENT = METADATA_ROOT + NAME


async def owned(limits: LedgerLimits | None = None) -> Chain:
    """A log that its broker owns by version 0 of `OWNER`, with one entry."""
    chain = Chain(
        MemoryLedgerStore(automatic=False), limits=limits or LedgerLimits(), owned=[Check(OWNER, 0)]
    )
    await chain.metadata.put(OWNER, b"a")
    await chain.written(1)
    return chain


@run
async def test_a_fenced_owner_without_its_ownership_gets_no_new_ledger_and_says_who_leads() -> None:
    """Who takes a log over need not write anything to its chain: the owner before cannot."""
    chain = await owned()
    stored = await chain.metadata.get(DOCUMENT)
    await chain.metadata.put(OWNER, b"b")
    (ledger,) = chain.store.ledgers.values()
    ledger.sealed = True
    with pytest.raises(StorageError):
        chain.append()
    await settle()
    chain.append()
    chain.append()
    await chain.flush()
    assert [type(chain.outcomes[base]) for base in (1, 2)] == [LogLost, LogLost]
    assert chain.log.state is State.LOST
    with pytest.raises(LogLost, match="another broker has taken"):
        chain.append()
    assert chain.log.next_offset == chain.log.high_watermark == 1
    assert await chain.metadata.get(DOCUMENT) == stored


@run
async def test_a_chain_that_another_broker_has_written_is_not_written_again() -> None:
    chain = await owned()
    await chain.metadata.put(DOCUMENT, b"{}")
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=1)
    assert chain.log.log_start == 0
    for change in (chain.log.trim(log_start=1), chain.log.begin_at(7), chain.log.keep_beside(None)):
        with pytest.raises(LogLost):
            await change
    stored = await chain.metadata.get(DOCUMENT)
    assert stored is not None
    assert (stored.value, stored.version) == (b"{}", 1)


@run
async def test_a_lost_log_acknowledges_what_its_open_ledger_still_takes() -> None:
    """The ledger is not fenced yet, so whoever takes the log over finds these entries."""
    chain = await owned()
    chain.append()
    await chain.metadata.put(OWNER, b"b")
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=1)
    with pytest.raises(LogLost):
        chain.append()
    await chain.flush()
    assert chain.outcomes[1] is None
    assert chain.log.high_watermark == 2


@run
async def test_what_a_lost_log_had_in_flight_and_was_fenced_has_failed_as_lost() -> None:
    chain = await owned()
    chain.append()
    await chain.metadata.put(OWNER, b"b")
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=1)
    chain.store.fail()
    await settle()
    assert isinstance(chain.outcomes[1], LogLost)
    assert chain.log.state is State.LOST


@run
async def test_a_roll_of_a_lost_log_ends_it_and_keeps_the_new_ledger() -> None:
    chain = await owned(limits=LedgerLimits(entry_count_max=1))
    await chain.metadata.put(OWNER, b"b")
    chain.append()
    await chain.flush()
    assert chain.log.state is State.LOST
    assert len(chain.store.ledgers) > len(chain.log.stored_ids), "it is not for this broker to delete it"


@run
async def test_appends_that_wait_for_a_ledger_hear_that_a_trim_has_found_the_log_lost() -> None:
    chain = await owned()
    await chain.restart()
    await chain.metadata.put(OWNER, b"b")
    trim = asyncio.ensure_future(chain.log.trim(log_start=1))
    chain.append()
    await chain.flush()
    with pytest.raises(LogLost):
        await trim
    assert isinstance(chain.outcomes[1], LogLost)


@run
async def test_a_closed_log_stays_closed_whoever_owns_it() -> None:
    chain = await owned()
    await chain.metadata.put(OWNER, b"b")
    chain.metadata.hold()
    trim = asyncio.ensure_future(chain.log.trim(log_start=1))
    await settle()
    chain.log.close()
    chain.metadata.release()
    with pytest.raises(LogLost):
        await trim
    assert chain.log.state is State.CLOSED


@run
async def test_a_log_of_which_another_broker_has_deleted_a_ledger_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker did not hear that it was deposed.  The simulation of brokers found this (seed 2570)."""
    chain = await owned()
    chain.append()
    (ledger,) = chain.store.ledgers.values()

    async def seal() -> None:
        raise LedgerNotFound("ledger 1 was deleted")

    monkeypatch.setattr(ledger, "seal", seal)
    chain.store.fail()
    await settle()
    assert isinstance(chain.outcomes[1], LogLost)
    assert chain.log.state is State.LOST


@run
async def test_a_ledger_that_a_trim_has_deleted_is_no_sign_of_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = await owned(limits=LedgerLimits(entry_count_max=2))
    (ledger,) = chain.store.ledgers.values()

    async def seal() -> None:
        chain.log._chain.replace(list(chain.log.ledgers)[1:])
        raise LedgerNotFound("ledger 1 was deleted")

    monkeypatch.setattr(ledger, "seal", seal)
    await chain.written(1)
    assert chain.log.stored_ids == [2]
    await chain.written(1)
    assert chain.outcomes[2] is None
    assert chain.log.state is State.WRITING


@run
async def test_a_lost_log_is_not_trimmed_even_where_nothing_would_change() -> None:
    chain = await owned()
    await chain.metadata.put(OWNER, b"b")
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=1)
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=0)


# --- lost answers -----------------------------------------------------------------------------------------------------


@run
async def test_a_commit_whose_answer_was_lost_does_not_lose_the_log() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=1))
    chain.metadata.lose_answers = 1
    await chain.written(1)
    assert isinstance(chain.outcomes[0], StorageError)
    await chain.written(1)
    assert chain.outcomes[0] is None
    chain.metadata.lose_answers = 1
    with pytest.raises(MetadataLost):
        await chain.log.trim(log_start=1)
    assert await chain.log.trim(log_start=1) == 1
    await chain.written(1)
    assert await chain.read_all() == [(1, 1)]
    await chain.restart()
    assert await chain.read_all() == [(1, 1)]


@run
async def test_what_an_unanswered_trim_gave_up_is_taken_back_by_the_next_commit() -> None:
    """Its ledgers are in the chain once more, so no later start may take them for deleted."""
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=1))
    for _ in range(4):
        await chain.written(1)
    before = chain.log.stored_ids
    chain.metadata.lose_answers = 1
    with pytest.raises(MetadataLost):
        await chain.log.trim(log_start=2)
    assert len(await chain.metadata.scan(TOMBSTONES_ROOT)) > 0
    chain.metadata.fail_next = 1
    with pytest.raises(MetadataError):
        await chain.log.trim(log_start=1)
    assert await chain.log.trim(log_start=1) == 1
    await chain.flush()
    assert await chain.metadata.scan(TOMBSTONES_ROOT) == []
    assert chain.log.stored_ids == before
    assert await chain.read_all() == [(1, 1), (2, 2), (3, 3)]
    await chain.restart()
    assert await chain.read_all() == [(1, 1), (2, 2), (3, 3)]


@run
async def test_a_commit_that_did_not_arrive_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = await owned()
    document = await chain.metadata.get(DOCUMENT)

    async def lost(operations: Sequence[CommitStep]) -> None:
        raise MetadataLost("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(chain.metadata, "commit", lost)
        with pytest.raises(MetadataLost):
            await chain.log.trim(log_start=1)
    assert await chain.metadata.get(DOCUMENT) == document
    assert await chain.log.trim(log_start=1) == 1


@run
async def test_a_commit_that_was_carried_out_twice_was_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of ZooKeeper that asks again after a lost answer is told that the version is another one."""
    chain = await owned()
    commit = chain.metadata.commit

    async def twice(operations: Sequence[CommitStep]) -> None:
        await commit(operations)
        await commit(operations)

    monkeypatch.setattr(chain.metadata, "commit", twice)
    assert await chain.log.trim(log_start=1) == 1
    assert chain.log.state is not State.LOST
    stored = await chain.metadata.get(DOCUMENT)
    assert stored is not None
    assert json.loads(stored.value)["log_start"] == 1


@run
async def test_what_a_commit_that_was_carried_out_twice_gave_up_stays_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=1))
    for _ in range(4):
        await chain.written(1)
    commit = chain.metadata.commit

    async def twice(operations: Sequence[CommitStep]) -> None:
        await commit(operations)
        await commit(operations)

    monkeypatch.setattr(chain.metadata, "commit", twice)
    await chain.log.trim(log_start=2)
    monkeypatch.setattr(chain.metadata, "commit", commit)
    named = await chain.metadata.scan(TOMBSTONES_ROOT)
    assert named
    await chain.log.trim(log_start=3)
    assert set(named) <= set(await chain.metadata.scan(TOMBSTONES_ROOT))


@run
async def test_what_was_taken_back_once_can_be_given_up_for_good() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=1))
    for _ in range(4):
        await chain.written(1)
    chain.metadata.lose_answers = 1
    with pytest.raises(MetadataLost):
        await chain.log.trim(log_start=2)
    await chain.log.trim(log_start=1)  # takes it back
    assert await chain.metadata.scan(TOMBSTONES_ROOT) == []
    await chain.log.trim(log_start=2)
    named = await chain.metadata.scan(TOMBSTONES_ROOT)
    assert named
    await chain.log.trim(log_start=3)
    assert set(named) <= set(await chain.metadata.scan(TOMBSTONES_ROOT))


@run
async def test_a_caller_that_was_cancelled_leaves_a_commit_that_is_read_before_the_next_one() -> None:
    chain = await owned()
    chain.metadata.hold()
    trim = asyncio.ensure_future(chain.log.trim(log_start=1))
    await settle()
    trim.cancel()
    await settle()
    document = chain.log._unanswered
    assert document is not None
    chain.metadata.release()
    await chain.metadata.put(DOCUMENT, document)  # the store has carried it out all the same
    assert await chain.log.trim(log_start=1) == 1
    assert chain.log.state is not State.LOST


@run
async def test_an_unanswered_commit_and_another_one_behind_it_lose_the_log() -> None:
    chain = await owned()
    chain.metadata.lose_answers = 1
    with pytest.raises(MetadataLost):
        await chain.log.trim(log_start=1)
    await chain.metadata.put(DOCUMENT, b"{}")
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=1)
    assert chain.log.state is State.LOST


@run
async def test_a_document_that_cannot_be_read_leaves_it_open_who_owns_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = await owned()
    await chain.metadata.put(OWNER, b"b")

    async def unreadable(path: str) -> None:
        raise MetadataError("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(chain.metadata, "get", unreadable)
        with pytest.raises(MetadataError, match="no connection"):
            await chain.log.trim(log_start=1)
    assert chain.log.state is State.WRITING
    with pytest.raises(LogLost):
        await chain.log.trim(log_start=1)


@pytest.mark.parametrize("is_tried_again", [False, True])
@run
async def test_a_log_that_is_closed_meanwhile_leaves_the_ledger_of_an_unanswered_commit(
    is_tried_again: bool,
) -> None:
    """The chain may name it.  The simulation of brokers found this (`tests/models/cluster.py`, seed 10)."""
    chain = Chain(MemoryLedgerStore(automatic=False))
    chain.metadata.lose_answers = 1
    if is_tried_again:
        await chain.written(1)
        chain.metadata.fail_next = 1
    chain.metadata.hold()
    chain.append()
    await settle()
    chain.store.write()  # the ledger is there, and its commit under way
    await settle()
    chain.log.close()
    chain.metadata.release()
    await chain.flush()
    await chain.restart()
    assert chain.log.problem is None
    assert chain.log.stored_ids == list(chain.store.ledgers) == [1]

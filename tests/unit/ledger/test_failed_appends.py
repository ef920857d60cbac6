"""What becomes of appends that failed: the ledger that got them is sealed first, and what it has kept has happened."""

import asyncio
import logging

import pytest

from magnetar.base.errors import LedgerFenced, StorageError
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.ledger.state import State
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import Chain, run, settle


@run
async def test_what_a_sealed_ledger_has_kept_has_succeeded_and_its_offsets_are_not_used_again() -> None:
    resets: list[int] = []
    advances: list[int] = []
    chain = Chain(
        MemoryLedgerStore(automatic=False),
        on_reset=lambda: resets.append(chain.log.next_offset),
        on_advance=lambda: advances.append(chain.log.high_watermark),
    )
    await chain.written(1)
    for _ in range(4):
        chain.append(2)
    chain.store.fail(kept=2)
    await settle()
    assert [chain.outcomes[base] for base in (1, 3)] == [None, None]
    assert all(isinstance(chain.outcomes[base], StorageError) for base in (5, 7))
    assert chain.log.next_offset == chain.log.high_watermark == 5
    assert (resets, advances) == ([5], [1, 5])
    assert chain.log.size_bytes == 300
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 2), (3, 4), (5, 5)]
    await chain.restart()
    assert await chain.read_all() == [(0, 0), (1, 2), (3, 4), (5, 5)]


@run
async def test_where_nothing_was_kept_the_log_does_not_advance() -> None:
    advances: list[int] = []
    chain = Chain(
        MemoryLedgerStore(automatic=False), on_advance=lambda: advances.append(chain.log.high_watermark)
    )
    await chain.written(1)
    chain.append()
    chain.store.fail()
    await settle()
    assert advances == [1]


@run
async def test_an_append_that_failed_is_answered_only_when_its_ledger_is_sealed() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append()
    chain.store.fail()
    assert 1 not in chain.outcomes
    with pytest.raises(StorageError, match="clean-up is under way"):
        chain.append()
    await settle()
    assert isinstance(chain.outcomes[1], StorageError)
    assert next(iter(chain.store.ledgers.values())).sealed


@run
async def test_kept_entries_are_found_where_they_were_appended() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    kept = chain.append()
    chain.store.fail(kept=1)
    await settle()
    assert (kept.ledger_id, kept.entry_id) == (chain.log.stored_ids[0], 1)
    assert chain.log.read_cached(1, 100, 2) == [kept]
    (stored,) = await chain.log.read(1, 100)
    assert (stored.base_offset, stored.ledger_id, stored.entry_id) == (1, kept.ledger_id, 1)
    assert await chain.log.locate(kept.ledger_id, kept.entry_id) is kept


@run
async def test_a_ledger_that_another_process_has_sealed_may_end_behind_what_was_acknowledged() -> None:
    """BookKeeper's replication recovers a ledger whose writer is alive, after the loss of a bookie."""
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append(3)
    (ledger,) = chain.store.ledgers.values()
    chain.store.fail(LedgerFenced("ledger 1 was recovered"), kept=1)
    await ledger.seal()
    await settle()
    assert chain.outcomes[1] is None
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 3), (4, 4)]


@run
async def test_a_log_whose_ledger_cannot_be_sealed_takes_no_appends_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resets: list[int] = []
    chain = Chain(MemoryLedgerStore(automatic=False), on_reset=lambda: resets.append(chain.log.next_offset))
    await chain.written(1)
    chain.append()
    chain.append()
    chain.store.refuses_seals = True
    chain.store.fail(kept=1)
    await settle()
    assert all(isinstance(chain.outcomes[base], StorageError) for base in (1, 2))
    for _ in range(3):
        chain.clock.advance(1)
        await settle()
        with pytest.raises(StorageError, match="clean-up is under way"):
            chain.append()
    assert resets == []
    chain.store.refuses_seals = False
    chain.clock.advance(1)
    await settle()
    assert (resets, chain.log.high_watermark) == ([2], 2)
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]
    assert "ledger 1 cannot be sealed now" in caplog.text
    assert not any(record.exc_info for record in caplog.records)


@run
async def test_a_closed_log_tries_no_more_to_seal() -> None:
    resets: list[int] = []
    chain = Chain(MemoryLedgerStore(automatic=False), on_reset=lambda: resets.append(chain.log.next_offset))
    await chain.written(1)
    chain.append()
    chain.store.refuses_seals = True
    chain.store.fail()
    await settle()
    chain.log.close()
    chain.clock.advance(60)
    assert not chain.environment.tasks
    assert resets == []
    assert chain.log.state is State.CLOSED


@run
async def test_an_unforeseen_failure_of_a_seal_is_logged_whole_and_answers_every_append(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append()
    (ledger,) = chain.store.ledgers.values()

    async def seal() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ledger, "seal", seal)
    chain.store.fail()
    await settle()
    assert isinstance(chain.outcomes[1], StorageError)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.exc_info
    monkeypatch.undo()
    chain.clock.advance(1)
    await settle()
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1)]


@run
async def test_a_trim_leaves_a_ledger_that_may_have_kept_failed_appends() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append()
    chain.store.refuses_seals = True
    chain.store.fail(kept=1)
    await settle()
    chain.clock.advance(0.5)
    assert await chain.log.trim(retention_ms=0, drops_open=True) == 0
    chain.store.refuses_seals = False
    chain.clock.advance(0.5)
    await settle()
    assert await chain.read_all() == [(0, 0), (1, 1)]


def write_controls(chain: Chain) -> None:
    """Creations and deletions of ledgers are carried out, and appends wait on."""
    waiting = chain.store._queue
    chain.store._queue = [one for one in waiting if one.ledger is None]
    chain.store.write()
    chain.store._queue = [one for one in waiting if one.ledger is not None]


async def in_two_ledgers(*, written: int) -> Chain:
    """Two appends to a ledger, of which `written` are durable, and one to the next ledger, which is on its way."""
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=2), cache_bytes=0)
    await chain.written(*[1] * written)
    for _ in range(2 - written):
        chain.append()
        await settle()
        write_controls(chain)
        await settle()
    chain.append()
    return chain


@run
async def test_kept_appends_of_two_ledgers_are_one_log() -> None:
    """The log has rolled over while appends to the ledger before were on their way."""
    chain = await in_two_ledgers(written=1)
    chain.append()
    chain.store.fail(kept=2)
    await chain.flush()
    assert [base for base, error in sorted(chain.outcomes.items()) if error is None] == [0, 1, 2]
    assert [info.entry_count for info in chain.log.ledgers if info.entry_count] == [2, 1]
    assert not any(info.writer for info in chain.log.ledgers if info.entry_count), "each is sealed once"
    await chain.written(1)
    expected = [(offset, offset) for offset in range(4)]
    assert await chain.read_all() == expected
    await chain.restart()
    assert await chain.read_all() == expected


@pytest.mark.parametrize("kept", [0, 1])
@run
async def test_the_roll_seals_a_ledger_that_has_failed_before_the_next_one_is_answered(kept: int) -> None:
    chain = await in_two_ledgers(written=1)
    waiting, chain.store._queue = chain.store._queue[1:], chain.store._queue[:1]
    chain.store.fail(kept=kept)
    await settle()
    chain.store._queue = waiting
    chain.store.fail(kept=kept)
    await chain.flush()
    assert [chain.outcomes[base] is None for base in (1, 2)] == [bool(kept)] * 2
    assert chain.log.size_bytes == 100 + 200 * kept
    expected = [(offset, offset) for offset in range(1 + 2 * kept)]
    assert await chain.read_all() == expected


@run
async def test_a_ledger_whose_predecessor_has_kept_nothing_begins_where_the_log_ends() -> None:
    """The simulation of brokers found this (`tests/models/cluster.py`, seed 2931): ledgers are found by where they
    begin, in ascending order.
    """
    chain = await in_two_ledgers(written=1)
    chain.store.fail()
    await settle()
    assert chain.log.size_bytes == 100
    await chain.written(1, 1, 1)
    expected = [(offset, offset) for offset in range(4)]
    assert await chain.read_all() == expected
    begins = [info.first_offset for info in chain.log.ledgers]
    assert begins == sorted(begins)
    await chain.restart()
    assert await chain.read_all() == expected


@run
async def test_a_ledger_that_is_recorded_when_the_log_has_failed_begins_where_the_log_ends() -> None:
    """The same simulation, seed 5436: the log ended earlier when the commit began."""
    chain = await in_two_ledgers(written=1)
    chain.metadata.hold()
    chain.append()  # rolls
    await settle()
    write_controls(chain)
    await settle()
    chain.store.fail(kept=3)
    await settle()
    assert chain.log.high_watermark == 4
    chain.metadata.release()
    await chain.flush()
    await chain.written(1)
    assert await chain.read_all() == [(offset, offset) for offset in range(5)]
    begins = [info.first_offset for info in chain.log.ledgers]
    assert begins == sorted(begins)


@run
async def test_offsets_of_failed_appends_are_given_out_also_when_their_ledger_has_left_the_log() -> None:
    chain = await in_two_ledgers(written=0)
    chain.store.fail()
    await settle()
    _, following = chain.log.stored_ids
    await chain.log.trim(log_start=0)
    await chain.flush()
    assert chain.log.stored_ids == [following]
    await chain.restart()
    assert chain.log.next_offset == 0
    await chain.written(1)
    assert await chain.read_all() == [(0, 0)]


@run
async def test_offsets_of_failed_appends_are_given_out_after_a_kill_before_all_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = await in_two_ledgers(written=0)
    _, following = chain.log.stored_ids
    chain.store.fail()

    async def seal() -> None:
        raise StorageError("not now")

    monkeypatch.setattr(chain.store.ledgers[following], "seal", seal)
    await settle()
    assert chain.log.state is State.FAILED
    await chain.log.trim(log_start=0)
    await chain.flush()
    assert chain.log.stored_ids == [following]
    await chain.restart()
    assert chain.log.next_offset == 0


@run
async def test_a_ledger_that_was_recorded_while_an_append_failed_begins_where_the_log_ends_then() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=3), cache_bytes=0)
    await chain.written(1)
    chain.metadata.hold()
    chain.append()
    chain.append()  # rolls; the ledger is there, and is to begin at offset 1 as the log ends there now
    await settle()
    waiting = chain.store._queue
    chain.store._queue = [one for one in waiting if one.ledger is None]
    chain.store.write()
    await settle()
    chain.store._queue = [one for one in waiting if one.ledger is not None]
    chain.store.write(1)
    chain.store.fail()
    await settle()
    chain.append()
    chain.metadata.release()
    await chain.flush()
    assert chain.outcomes[2] is None
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]
    assert [(info.first_offset, info.last_offset) for info in chain.log.ledgers] == [(0, 1), (2, 2)]


@run
async def test_a_callback_that_appends_again_at_once_is_refused_for_now() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    refused: list[bool] = []

    def again() -> None:
        try:
            chain.append()
        except StorageError:
            refused.append(True)

    await chain.written(1)
    chain.append(done=again)
    chain.store.fail()
    await settle()
    assert refused == [True]
    await asyncio.sleep(0)
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1)]


@run
async def test_what_was_kept_is_said_before_the_rest_is_forgotten() -> None:
    """A batch that repeats a kept one waits for it: it has to hear of the high watermark first."""
    heard: list[str] = []
    chain = Chain(
        MemoryLedgerStore(automatic=False),
        on_advance=lambda: heard.append(f"advance {chain.log.high_watermark}"),
        on_reset=lambda: heard.append(f"reset {chain.log.next_offset}"),
    )
    await chain.written(1)
    for _ in range(2):
        chain.append(done=lambda: heard.append("answer"))
    chain.store.fail(kept=1)
    await settle()
    assert heard == ["advance 1", "answer", "answer", "advance 2", "reset 2"]

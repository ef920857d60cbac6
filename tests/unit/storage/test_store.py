"""The store between its start and its end: what a round does to its ledgers, and facts about them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.errors import LedgerFenced, LedgerNotFound, StorageError
from magnetar.base.turn_end import TurnEnd
from magnetar.storage.local import store as module
from magnetar.storage.local.ledger import LocalLedger, State
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.local.writebehind import WriteBehind
from magnetar.storage.store import LedgerId

from .behind import Rig, held, sent, settled, until
from .helpers import append, in_a_loop, read_all


@pytest.fixture
def rig() -> Rig:
    return Rig()


def broken(*_: Any, **__: Any) -> None:
    raise RuntimeError("injected")


# --- ledgers ----------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_ids_are_given_in_order_and_unknown_ones_are_not_found(rig: Rig) -> None:
    async with rig.store() as store:
        assert [(await store.create()).ledger_id for _ in range(3)] == [1, 2, 3]
        assert [stat.ledger_id for stat in await store.list_ledgers()] == [1, 2, 3]
        with pytest.raises(LedgerNotFound):
            await store.open(LedgerId(4))
        await store.delete(LedgerId(4))
        assert store.durable_sequence == 3, "nothing was to be noted"


@in_a_loop
async def test_answers_to_what_became_durable_leave_before_the_loop_does_anything_else(
    tmp_path: Path,
) -> None:
    end = TurnEnd()
    store = await LocalLedgerStore.start(
        tmp_path, settings=LocalStoreSettings(), clock=SystemClock(), on_reported=end.now
    )
    order: list[str] = []
    called = asyncio.Event()

    def next_turn() -> None:
        order.append("next turn")
        called.set()

    def durable(_: Exception | None) -> None:
        order.append("durable")
        asyncio.get_running_loop().call_soon(next_turn)
        end.soon(lambda: order.append("answer"))

    ledger = await store.create()
    for offset in range(2):
        ledger.append([b"x"], 1, offset, 0, durable)
    await called.wait()
    await store.close()
    assert order[:4] == ["durable", "durable", "answer", "answer"]
    assert order[4:] == ["next turn"] * 2


@in_a_loop
async def test_opening_a_ledger_seals_it_once(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        assert (await store.open(ledger.ledger_id)).stat.sealed
        await store.checkpoint()
        await store.open(ledger.ledger_id)
        assert store.behind.touched == []
        with pytest.raises(LedgerFenced):
            await sent(ledger, 100)


@in_a_loop
async def test_nothing_is_left_of_a_deleted_ledger_however_often_it_is_deleted(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, *[20_000] * 3)
        await ledger.seal()
        await store.checkpoint()
        assert list(store._indexes) == [1]
        await read_all(ledger)
        assert store.reads.files._open
        await asyncio.gather(*[store.delete(ledger.ledger_id) for _ in range(3)])
        assert not store.reads.files._open, "nobody will read it"
        assert store.behind._deleted == [1]
        assert (ledger.state, ledger.index, store._indexes, store.ledgers) == (State.DELETED, None, {}, {})
        other = await store.create()
        await sent(other, 100)
        await store.delete(other.ledger_id)
        assert (other.dirty, other.dirty_bytes) == ([], 0)
        with pytest.raises(LedgerNotFound):
            await read_all(other)


@in_a_loop
async def test_a_ledger_that_is_sealed_while_it_is_deleted_holds_up_nobody(rig: Rig) -> None:
    """What was appended behind the deletion is of a ledger that is gone."""
    async with rig.store() as store:
        ledger = await store.create()
        with rig.disk._lock:  # no round is written
            deletion = asyncio.ensure_future(store.delete(ledger.ledger_id))
            await asyncio.sleep(0)
            late = append(ledger, b"x", 0)
            sealing = asyncio.ensure_future(ledger.seal())
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(deletion, late, sealing), 20)
        assert ledger.durable_count == 0


@in_a_loop
async def test_sealing_waits_for_what_is_on_its_way(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        with rig.disk._lock:
            waiting = [append(ledger, b"x", number) for number in range(3)]
            sealing = [asyncio.ensure_future(ledger.seal()) for _ in range(2)]
            await asyncio.sleep(0)
            assert not any(one.done() for one in sealing)
        assert [stat.entry_count for stat in await asyncio.gather(*sealing)] == [3, 3]
        await asyncio.gather(*waiting)


@in_a_loop
async def test_a_ledger_is_on_the_next_checkpoint_s_list_once(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        assert store.behind.touched == [ledger]
        await sent(ledger, 100, 100)
        await ledger.seal()
        assert store.behind.touched == [ledger]
        await store.checkpoint()
        for _ in range(2):
            store.touch(ledger)
        assert store.behind.touched == [ledger]


@in_a_loop
async def test_indexes_of_finished_ledgers_are_kept_for_those_read_last(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INDEXES_MAX", 2)
    async with rig.store() as store:
        ledgers = [await store.create() for _ in range(3)]
        for ledger in ledgers:
            await sent(ledger, 100)
            await ledger.seal()
            await store.checkpoint()

        def kept() -> list[int]:
            assert list(store._indexes.values()) == [store.find(number) for number in store._indexes]
            assert {int(ledger.ledger_id) for ledger in ledgers if ledger.index is not None} == set(
                store._indexes
            )
            return list(store._indexes)

        assert kept() == [2, 3]
        index = await store.index_of(ledgers[0])
        assert kept() == [3, 1]
        assert await store.index_of(ledgers[0]) is index
        store.on_finished(ledgers[2])
        assert kept() == [1, 3], "it is the last one again"
        loading = asyncio.ensure_future(store.index_of(ledgers[1]))
        await asyncio.sleep(0)
        await store.delete(ledgers[1].ledger_id)
        await asyncio.wait([loading])
        assert 2 not in kept()
        assert ledgers[1].index is None


@in_a_loop
async def test_an_index_that_two_read_at_once_is_kept_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INDEXES_MAX", 0)
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await ledger.seal()
        await store.checkpoint()
        monkeypatch.setattr(module, "INDEXES_MAX", 2)
        kept: list[LocalLedger] = []
        monkeypatch.setattr(store, "_keep_index", kept.append)
        assert ledger.index is None
        one, other = await asyncio.gather(store.index_of(ledger), store.index_of(ledger))
        assert one is not other
        assert ledger.index in (one, other)
        assert kept == [ledger]


@in_a_loop
async def test_an_entry_may_be_as_large_as_a_file_of_the_journal_allows(rig: Rig) -> None:
    """A larger one would wait for a file that it fits into, and all behind it with it."""
    async with rig.store(journal_file_bytes=64 << 10, round_bytes_max=16 << 10) as store:
        ledger = await store.create()
        largest = (64 << 10) - 128
        await sent(ledger, largest)
        with pytest.raises(StorageError, match="larger than the journal's files allow"):
            append(ledger, bytes(largest + 1), 10)
        assert [len(entry.body) for entry in await read_all(ledger)] == [largest]


# --- rounds -----------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_what_a_round_carries_is_readable_counted_and_answered(rig: Rig) -> None:
    async with rig.store() as store:
        ledger, gone = await store.create(), await store.create()
        deletion = asyncio.ensure_future(store.delete(gone.ledger_id))
        await asyncio.sleep(0)
        answers = [append(gone, b"x" * 9, 0), append(ledger, b"x" * 100, 0), append(ledger, b"x" * 50, 1)]
        await asyncio.gather(deletion, *answers)
        assert (store.counters.appended_entries, store.counters.appended_bytes) == (2, 150)
        assert store.entries_since_checkpoint == 2
        assert [len(entry.body) for entry in await read_all(ledger)] == [100, 50]
        assert (gone.durable_count, store.counters.failed_entries) == (0, 0)


@pytest.mark.parametrize(("size", "flushes"), [(4096 - 40, 1), (4096 - 41, 0)])
@in_a_loop
async def test_a_ledger_is_written_behind_when_enough_has_come(rig: Rig, size: int, flushes: int) -> None:
    async with rig.store(flush_bytes=4096) as store:
        ledger = await store.create()
        await sent(ledger, size)
        await settled(store)
        assert store.counters.flushes == flushes


@in_a_loop
async def test_a_ledger_that_is_being_written_is_not_written_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[LocalLedger]] = []
    flush = WriteBehind.flush

    def noting(behind: WriteBehind, ledgers: list[LocalLedger]) -> Any:
        asked.append(ledgers)
        return flush(behind, ledgers)

    async with rig.store(flush_bytes=4096) as store:
        ledger = await store.create()
        with held(store):
            monkeypatch.setattr(WriteBehind, "flush", noting)
            await sent(ledger, 5000)
            await sent(ledger, 5000)
            assert asked == [[ledger]]


@pytest.mark.parametrize("entries", [9, 10])
@in_a_loop
async def test_a_checkpoint_begins_behind_so_many_entries(rig: Rig, entries: int) -> None:
    async with rig.store(checkpoint_entries_max=10) as store:
        ledger = await store.create()
        await sent(ledger, *[10] * entries)
        assert (store.behind._checkpoint is not None) == (entries == 10)


@in_a_loop
async def test_a_checkpoint_begins_when_half_of_the_journal_is_used(rig: Rig) -> None:
    async with rig.store(journal_file_count=2, checkpoint_entries_max=10_000) as store:
        ledger = await store.create()
        with held(store):
            while not store.journal.wants_checkpoint():
                assert store.behind._checkpoint is None
                await sent(ledger, 20_000)
            assert store.behind._checkpoint is not None
            assert (store.counters.rounds, store.counters.ring_waits) == (14, 0)


@pytest.mark.parametrize("stuck", [False, True])
@in_a_loop
async def test_a_checkpoint_begins_when_the_journal_is_full_unless_they_fail(rig: Rig, stuck: bool) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        await store.checkpoint()
        with held(store):
            store.behind.stuck = stuck
            store._on_ring_full()
            assert (store.behind._checkpoint is not None) == (not stuck)
            store.behind.stuck = False


@pytest.mark.parametrize("fails", [False, True])
@in_a_loop
async def test_an_answer_that_raises_takes_none_from_the_others(rig: Rig, fails: bool) -> None:
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with rig.store() as store:
        ledger = await store.create()
        if fails:
            rig.fail("journal", "write", 1)
        with rig.disk._lock:
            before = append(ledger, b"x", 0)
            ledger.append([b"x"], 1, 1, 0, broken)
            behind = append(ledger, b"x", 2)
            await asyncio.sleep(0)
        await asyncio.wait([before, behind])
        assert [one.exception() is not None for one in (before, behind)] == [fails, fails]
        assert [context["message"] for context in raised] == ["done() raised"]


@in_a_loop
async def test_when_the_first_producer_hears_of_a_failed_round_all_its_ledgers_are_fenced(rig: Rig) -> None:
    async with rig.store() as store:
        first, second = await store.create(), await store.create()
        rig.fail("journal", "write", 1)
        heard: list[tuple[bool, State]] = []
        first.append([b"x"], 1, 0, 0, lambda error: heard.append((error is None, second.state)))
        with pytest.raises(StorageError):
            await append(second, b"y", 0)
        assert heard == [(False, State.FAILED)]


@in_a_loop
async def test_a_round_that_fails_fences_its_ledgers_at_what_is_durable(rig: Rig) -> None:
    async with rig.store() as store:
        ledger, other = await store.create(), await store.create()
        await sent(ledger, 100)
        rig.fail("journal", "write", 1)
        with rig.disk._lock:
            failing = append(ledger, b"x", 20)
            creation = asyncio.ensure_future(store.create())
            sealing = asyncio.ensure_future(ledger.seal())
            await asyncio.sleep(0)
        await asyncio.gather(failing, creation, sealing, return_exceptions=True)
        assert isinstance(failing.exception(), StorageError)
        assert isinstance(creation.exception(), StorageError)
        assert sealing.result().entry_count == 1
        assert (ledger.next_entry, store.counters.failed_entries) == (1, 1)
        assert sorted(store.ledgers) == [1, 2]
        await sent(other, 100)
        fresh = await store.create()
        assert fresh.ledger_id == 4, "the third may be on disk"


@in_a_loop
async def test_a_fault_in_a_round_answers_all_behind_it_with_an_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        on_durable = LocalLedger.on_durable
        good = [True, True]

        def second(ledger: LocalLedger, entry: Any) -> None:
            if not good:
                raise RuntimeError("injected")
            good.pop()
            on_durable(ledger, entry)

        monkeypatch.setattr(LocalLedger, "on_durable", second)
        last = store.durable_sequence
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        answers = [append(ledger, b"x", number) for number in range(5)]
        await asyncio.wait(answers)
        assert [one.exception() is None for one in answers] == [True, True, False, False, False]
        assert {str(one.exception()) for one in answers[2:]} == {str(store.failure)}
        assert raised == [], "nobody is answered twice"
        assert "applying a journal round" in str(store.failure)
        assert store.durable_sequence == last
        assert ledger.next_entry == 2


@in_a_loop
async def test_a_fault_when_writing_behind_begins_ends_writing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.store(flush_bytes=4096) as store:
        ledger = await store.create()
        monkeypatch.setattr(WriteBehind, "flush", broken)
        await sent(ledger, 5000)
        assert "beginning to write behind" in str(store.failure)
        monkeypatch.undo()


@pytest.mark.parametrize("what", ["create", "delete"])
@in_a_loop
async def test_a_fault_when_a_fact_is_applied_ends_writing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        monkeypatch.setattr(LocalLedgerStore, "touch", broken)
        monkeypatch.setattr(WriteBehind, "on_deleted", broken)
        with pytest.raises(StorageError, match=f"applying a {what}"):
            await (store.create() if what == "create" else store.delete(ledger.ledger_id))
        monkeypatch.undo()


@in_a_loop
async def test_a_caller_that_gives_up_leaves_a_ledger_that_is_known(rig: Rig) -> None:
    async with rig.store() as store:
        with rig.disk._lock:
            creation = asyncio.ensure_future(store.create())
            await asyncio.sleep(0)
            creation.cancel()
            await asyncio.wait([creation])
        await until(lambda: len(store.ledgers) == 1)
        assert store.failure is None
        assert store.behind.touched == list(store.ledgers.values())


@in_a_loop
async def test_the_first_fault_counts_and_ends_all_appends(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        for number in range(2):
            store.fail_stop(f"step {number}", RuntimeError("injected"))
        assert "a fault in step 0" in str(store.failure)
        assert len([record for record in caplog.records if record.exc_info]) == 1
        with pytest.raises(StorageError, match="step 0"):
            append(ledger, b"x", 0)

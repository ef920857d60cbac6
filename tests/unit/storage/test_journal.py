"""The journal over files whose disk the test plays: what is written when, and what is reported of it."""

import asyncio
import logging
import threading

import pytest

from magnetar.base.errors import StorageError, StorageFull
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.format import ROUND_BYTES, Control
from magnetar.storage.local.rounds import Round
from magnetar.wire.stored import RECORD_BYTES

from .helpers import in_a_loop
from .played_journal import ROUND_MAX, SALT, Played, PlayedFile

# --- rounds -----------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_what_comes_in_one_turn_of_the_loop_shares_a_round_as_the_format_has_it() -> None:
    on = Played()
    assert on.journal.epoch == 0, "no file is in use"
    on.journal.start()
    for number in range(3):
        on.append(1000, number)
    await on.rounds_told(1)
    on.append(10, 3)
    await on.rounds_told(2)
    assert on.told == [(3, 1, None), (1, 2, None)]
    assert on.numbers() == [[0, 1, 2], [3]]
    heads = [head for head, _ in on.written()]
    assert [(head.epoch, head.sequence, head.salt, head.is_synced) for head in heads] == [
        (1, 1, SALT, True),
        (1, 2, SALT, True),
    ]
    on.append(10, 4)
    await on.rounds_told(3)
    for begin in (BLOCK_BYTES, 2 * BLOCK_BYTES):
        end = begin + ROUND_BYTES + RECORD_BYTES + 10
        assert not any(on.files[0].content[end : begin + BLOCK_BYTES]), "the padding is zero"
    assert on.journal.queued_bytes == 0
    assert (on.counters.rounds, on.counters.round_bytes) == (3, 3 * BLOCK_BYTES)
    assert on.journal.epoch == 1
    await on.journal.stop()


@in_a_loop
async def test_it_says_when_all_that_became_durable_has_been_reported() -> None:
    on = Played()
    on.journal.start()
    on.append(1000, 0)
    await on.rounds_told(1)
    assert on.told_at_once == [1]
    on.append(10, 1)
    await on.rounds_told(2)
    assert on.told_at_once == [1, 2]
    await on.journal.stop()


@in_a_loop
async def test_what_was_appended_before_the_thread_began_is_written_and_what_was_before_the_stop() -> None:
    on = Played()
    on.append(100, 0)
    assert on.journal.queued_bytes == 100 + RECORD_BYTES
    on.journal.start()
    await on.rounds_told(1)
    on.append(100, 1)
    await on.journal.stop()
    assert on.numbers() == [[0], [1]]


@in_a_loop
async def test_records_that_do_not_fit_a_round_keep_their_order() -> None:
    on = Played(blocks=32)
    on.files[0].gate.clear()
    on.journal.start()
    large = 3 * BLOCK_BYTES - ROUND_BYTES - RECORD_BYTES + 1
    sizes = [100, 3000, 3000, 3000, large, 50, 50]
    for number, size in enumerate(sizes):
        on.append(size, number)
    on.files[0].gate.set()
    await on.until(lambda: sum(count for count, _, _ in on.told) == len(sizes))
    assert [number for round_ in on.numbers() for number in round_] == list(range(len(sizes)))
    assert [len(round_) for round_ in on.numbers()] == [3, 1, 1, 2]
    on.append(ROUND_MAX - ROUND_BYTES - RECORD_BYTES, 7)
    await on.until(lambda: on.told[-1][1] == 5)
    assert on.numbers()[-1] == [7]
    await on.journal.stop()


@in_a_loop
async def test_what_comes_while_a_round_is_written_is_not_in_it_also_behind_a_large_one() -> None:
    on = Played(blocks=32)
    on.journal.start()
    on.append(3 * BLOCK_BYTES, 0)
    await on.rounds_told(1)
    for number in (1, 3):
        on.files[0].gate.clear()
        on.files[0].waits.clear()
        on.append(100, number)
        await asyncio.sleep(0)
        await asyncio.to_thread(on.files[0].waits.wait)
        on.append(100, number + 1)
        on.files[0].gate.set()
        await on.rounds_told(number + 2)
    assert on.numbers() == [[0], [1], [2], [3], [4]]
    await on.journal.stop()


@in_a_loop
async def test_a_round_goes_into_the_next_file_when_it_does_not_fit() -> None:
    on = Played(blocks=2)
    on.journal.start()
    for number in range(3):
        on.append(100, number)
        await on.rounds_told(number + 1)
    assert (on.numbers(0), on.numbers(1)) == ([[0], [1]], [[2]])
    assert [head.epoch for head, _ in on.written(1)] == [2]
    assert on.journal.wants_checkpoint()
    (full,) = on.ring.full
    assert full.last_sequence == 2
    on.journal.recycle(1)
    assert on.ring.full
    on.journal.recycle(2)
    assert not on.ring.full
    await on.journal.stop()


# --- syncs ------------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_without_direct_writes_each_round_is_synced() -> None:
    on = Played(sync_after_write=True)
    on.journal.start()
    on.append(100)
    await on.rounds_told(1)
    assert on.files[0].calls == ["write", "sync"]
    await on.journal.stop()


@in_a_loop
async def test_without_syncing_only_rounds_with_facts_about_ledgers_are_synced_and_all_before_them() -> None:
    on = Played(blocks=1, is_synced=False)
    on.journal.start()
    on.append(100, 0)
    await on.rounds_told(1)
    on.append(100, 1)
    await on.rounds_told(2)
    assert [file.calls for file in on.files] == [["write"], ["write"], []]
    on.control()
    await on.rounds_told(3)
    assert [file.calls for file in on.files] == [["write", "sync"]] * 3
    assert [head.is_synced for head, _ in on.written()] == [False]
    assert on.journal.epoch == 0, "nothing proves that what was written is there"
    on.journal.recycle(3)
    on.append(100, 3)
    await on.rounds_told(4)
    assert sum(file.calls.count("sync") for file in on.files) == 3
    on.control()
    await on.rounds_told(5)
    assert sum(file.calls.count("sync") for file in on.files) == 5, "only what was written since"
    await on.journal.stop()


# --- marks ------------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_round_that_nothing_follows_for_a_second_is_followed_by_an_empty_one() -> None:
    on = Played()
    on.journal.start()
    on.append(100, 0)
    await on.rounds_told(1)
    on.clock.advance(0.5)
    on.append(100, 1)
    await on.rounds_told(2)
    on.clock.advance(0.5)
    await asyncio.sleep(0)
    assert on.numbers() == [[0], [1]]
    on.clock.advance(0.999)
    assert on.numbers() == [[0], [1]]
    on.clock.advance(0.001)
    await on.rounds_told(3)
    assert on.told[2] == (0, 3, None)
    assert on.numbers() == [[0], [1], []]
    on.clock.advance(60)
    on.append(100, 2)
    await on.rounds_told(4)
    assert on.numbers() == [[0], [1], [], [2]]
    on.clock.advance(1)
    await on.rounds_told(5)
    assert on.numbers() == [[0], [1], [], [2], []]
    await on.journal.stop()


@pytest.mark.parametrize("is_needed", [True, False])
def test_the_last_round_is_followed_by_an_empty_one_when_the_next_start_needs_it(is_needed: bool) -> None:
    async def scenario() -> None:
        on = Played()
        on.journal.start()
        on.append(100)
        await on.rounds_told(1)
        await on.journal.stop(is_needed=is_needed)
        assert on.numbers() == [[0], []] if is_needed else [[0]]
        on.clock.advance(5)  # the timer of the mark, after the end
        assert on.files[0].calls[-1] == "close"

    asyncio.run(scenario())


@pytest.mark.parametrize(("blocks", "marked"), [(1, False), (2, True)])
def test_an_empty_round_takes_no_other_file(blocks: int, marked: bool) -> None:
    async def scenario() -> None:
        on = Played(blocks=blocks)
        on.journal.start()
        on.append(100)
        await on.rounds_told(1)
        await on.journal.stop(is_needed=True)
        assert on.numbers(0) == ([[0], []] if marked else [[0]])
        assert on.numbers(1) == []

    asyncio.run(scenario())


# --- no room ----------------------------------------------------------------------------------------------------------


async def without_room() -> Played:
    """A journal with a round that finds every file in use."""
    on = Played(files=1, blocks=1)
    on.journal.start()
    on.append(100, 0)
    await on.rounds_told(1)
    on.append(100, 1)
    on.append(100, 2)
    await on.until(lambda: on.full == 1)
    assert on.counters.ring_waits == 1
    assert on.journal.full_since_s is not None
    return on


@pytest.mark.parametrize("by", ["a file", "a checkpoint"])
def test_a_round_without_room_waits_for_it(by: str) -> None:
    async def scenario() -> None:
        on = await without_room()
        if by == "a file":
            more = PlayedFile(BLOCK_BYTES)
            on.files.append(more)
            on.journal.add_file(on.ring_file(more))
        else:
            on.journal.recycle(1)
        await on.rounds_told(2)
        assert on.told[1] == (2, 2, None)
        assert on.numbers(-1) == [[1, 2]]
        assert on.journal.full_since_s is None
        assert (on.full, on.counters.ring_waits) == (1, 1)
        await on.journal.stop()

    asyncio.run(scenario())


@in_a_loop
async def test_while_checkpoints_fail_a_round_without_room_fails_with_all_behind_it_and_nothing_is_cut() -> (
    None
):
    on = await without_room()
    on.journal.refuse_when_full(True)
    await on.rounds_told(2)
    count, _, error = on.told[1]
    assert count == 2
    assert isinstance(error, StorageFull)
    assert on.journal.full_since_s is None
    on.journal.refuse_when_full(False)
    on.journal.recycle(1)
    on.append(100, 1)
    await on.rounds_told(3)
    assert on.told[2] == (1, 2, None)
    assert on.numbers() == [[1]]
    assert on.journal.broken is None
    await on.journal.stop()


@in_a_loop
async def test_a_round_without_room_hears_that_the_journal_was_broken_off() -> None:
    on = await without_room()
    why = StorageError("a bug")
    on.journal.break_off(why)
    on.journal.break_off(StorageError("another one"))
    await on.rounds_told(2)
    assert on.told[1][0] == 2
    assert on.told[1][2] is why
    assert on.journal.full_since_s is None
    with pytest.raises(StorageError, match="cannot be written: a bug"):
        on.append(1)
    await on.journal.stop(is_needed=True)
    assert on.numbers() == [[0]]


# --- failures ---------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_write_that_fails_takes_what_is_queued_with_it_and_cuts_their_ledgers_in_another_file() -> (
    None
):
    on = Played()
    on.journal.start()
    on.append(100, 0)
    await on.rounds_told(1)
    on.files[0].gate.clear()
    on.files[0].waits.clear()
    on.files[0].fails.append(OSError(5, "Input/output error"))
    on.append(100, 1)
    on.append(100, 8, ledger_id=2)
    on.control()
    await asyncio.sleep(0)
    await asyncio.to_thread(on.files[0].waits.wait)
    on.append(100, 2)
    on.append(3 * BLOCK_BYTES, 3)
    began = on.journal.write_began_s
    assert began is not None
    on.files[1].gate.clear()
    on.files[0].gate.set()
    await asyncio.to_thread(on.files[1].waits.wait)  # the cut: nothing has been told yet
    assert len(on.told) == 1
    with pytest.raises(StorageError, match="has just failed"):
        on.append(100, 4)
    on.files[1].gate.set()
    await on.rounds_told(2)
    count, _, error = on.told[1]
    assert count == 5
    assert "Input/output error" in str(error)
    assert on.counters.journal_errors == 1
    assert on.journal.write_began_s is None
    assert on.journal.queued_bytes == 0
    assert on.numbers(0) == [[0]]
    ((head, records),) = on.written(1)
    assert head.sequence == 2
    assert [(record.ledger_id, record.entry_id, record.last_offset) for record in records] == [
        (1, Control.CUT, 1),
        (2, Control.CUT, 8),
    ]
    on.append(100, 1)
    await on.rounds_told(3)
    assert on.told[2] == (1, 3, None)
    assert [len(round_) for round_ in on.numbers(1)] == [2, 1]
    on.journal.recycle(9)
    assert [file.file for file in on.ring.failed] == [on.files[0]], "it is never written again"
    await on.journal.stop()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_journal_of_which_no_file_can_be_written_is_given_up(failing: int) -> None:
    async def scenario() -> None:
        on = Played()
        on.journal.start()
        for file in on.files[:failing]:
            file.fails += [OSError(5, "Input/output error")] * 9
        on.append(100, 0)
        await on.rounds_told(1)
        assert isinstance(on.told[0][2], StorageError)
        assert (on.journal.broken is not None) == (failing == 3)
        if failing == 3:
            with pytest.raises(StorageError, match="no journal file is left"):
                on.append(100, 0)
        else:
            on.append(100, 0)
            await on.rounds_told(2)
            assert [len(on.written(file)) for file in range(3)] == [2 * (n == failing) for n in range(3)]
        await on.journal.stop()

    asyncio.run(scenario())


@in_a_loop
async def test_an_unforeseen_exception_ends_the_journal_and_fails_all_that_waits() -> None:
    on = Played()
    on.journal.start()
    on.files[0].gate.clear()
    bug = RuntimeError("a bug")
    on.files[0].fails.append(bug)
    on.append(100, 0)
    await asyncio.sleep(0)
    await asyncio.to_thread(on.files[0].waits.wait)
    on.append(100, 1)
    on.files[0].gate.set()
    await on.rounds_told(1)
    assert on.failures == [bug]
    assert on.told[0][0] == 2
    assert "a bug" in str(on.told[0][2])
    assert on.journal.broken is on.told[0][2]
    assert on.journal.write_began_s is None
    assert on.journal.queued_bytes == 0
    with pytest.raises(StorageError, match="cannot be written"):
        on.append(100, 0)
    await on.journal.stop(is_needed=True)
    assert on.numbers() == []


@pytest.mark.parametrize("failure", [None, OSError(5, "Input/output error")])
def test_what_was_answered_is_not_answered_again_when_the_steps_fail_behind_it(
    failure: OSError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear = Round.clear

    def broken(round_: Round) -> None:
        if round_.entries:
            monkeypatch.undo()
            raise RuntimeError("a bug")
        clear(round_)

    async def scenario() -> None:
        on = Played()
        if failure is not None:
            on.files[0].fails.append(failure)
        on.journal.start()
        on.append(100, 0)
        await on.rounds_told(2)
        count, sequence, error = on.told[0]
        assert (count, sequence, error is None) == (1, 1, failure is None)
        assert on.told[1][0] == 0
        assert on.journal.queued_bytes == 0
        await on.journal.stop()

    monkeypatch.setattr(Round, "clear", broken)
    asyncio.run(scenario())


@in_a_loop
async def test_a_journal_that_failed_waits_for_no_room() -> None:
    on = await without_room()

    def broken(size: int) -> None:
        raise RuntimeError("a bug")

    on.ring.reserve = broken  # type: ignore[method-assign]
    on.journal.recycle(0)
    await on.rounds_told(2)
    assert isinstance(on.told[1][2], StorageError)
    assert on.journal.full_since_s is None
    await on.journal.stop()


# --- time, and the end ------------------------------------------------------------------------------------------------


def test_a_disk_that_stalls_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        on = Played(files=1, blocks=64)
        on.journal.start()
        for number, (takes_s, waits_s) in enumerate([(0.999, 0), (1.0, 0), (2.0, 0), (1.0, 57), (1.0, 0)]):
            on.clock._elapsed_s += waits_s  # without the timers
            on.files[0].takes_s = lambda takes_s=takes_s: setattr(  # type: ignore[misc]
                on.clock, "_elapsed_s", on.clock._elapsed_s + takes_s
            )
            on.append(100, number)
            await on.rounds_told(number + 1)
        await on.journal.stop()
        times = on.counters.journal_write_s
        assert sum(times.counts) == 5
        assert times.sum == pytest.approx(5.999)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert [record.getMessage()[:33] for record in caplog.records] == [
        "the disk took 1.0 s for a journal"
    ] * 2


@pytest.mark.parametrize("is_started", [True, False])
def test_at_the_end_the_thread_is_gone_and_the_files_are_closed(is_started: bool) -> None:
    async def scenario() -> None:
        on = Played(blocks=1)
        if is_started:
            on.journal.start()
            on.append(100, 0)
            await on.rounds_told(1)
            on.append(100, 1)
            await on.rounds_told(2)
        await on.journal.stop()
        assert [thread for thread in threading.enumerate() if thread.name == "magnetar-journal"] == []
        assert [file.calls[-1] for file in on.files] == ["close"] * 3

    asyncio.run(scenario())

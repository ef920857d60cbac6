"""When a log goes on in another ledger, what it knows of its ledgers, and how it lets go of them."""

import asyncio
import json

import pytest

from magnetar.base.errors import StorageError
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.managed_ledger import LedgerLimits
from magnetar.storage.store import LedgerStat
from magnetar.testing.ledgers import MemoryLedger, MemoryLedgerStore

from .chain import NAME, Chain, run, settle


def counts(chain: Chain) -> list[int]:
    return [info.entry_count for info in chain.log.ledgers]


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size_bytes_max", "expected"), [(200, [2, 2, 1]), (201, [3, 2]), (300, [3, 2])])
@run
async def test_a_ledger_that_has_reached_its_size_takes_no_more(
    size_bytes_max: int, expected: list[int]
) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(size_bytes_max=size_bytes_max))
    for _ in range(5):
        await chain.written(1)
    assert counts(chain) == expected


@pytest.mark.parametrize("waiting", [1, 2, 3])
@run
async def test_a_ledger_takes_as_many_entries_as_it_may_also_those_that_waited_for_it(waiting: int) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=4))
    await chain.written(*[1] * waiting)
    for _ in range(10 - waiting):
        await chain.written(1)
    assert counts(chain) == [4, 4, 2]
    assert [ledger.sealed for ledger in chain.store.ledgers.values()] == [True, True, False]


@run
async def test_a_ledger_with_entries_is_followed_by_another_one_at_its_age() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(age_ms_max=5000))

    async def after(seconds: float) -> int:
        chain.clock.advance(seconds)
        chain.log.roll_if_old()
        await chain.flush()
        return len(chain.log.stored_ids)

    chain.log.roll_if_old()
    await chain.written(1)
    assert await after(4.999) == 1
    assert await after(0.001) == 2
    assert await after(60) == 2, "there is nothing in it"
    await chain.written(1)
    chain.log.roll_if_old()
    await chain.flush()
    assert len(chain.log.stored_ids) == 3


@run
async def test_appends_go_on_while_the_ledger_before_finishes_and_then_it_is_sealed() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=100))
    chain.append()
    await settle()
    chain.store.write()  # the first ledger is there; its entry is on its way and has filled it
    await settle()
    chain.append()  # rolls
    await settle()
    waiting = chain.store._queue
    chain.store._queue = [one for one in waiting if one.ledger is None]
    chain.store.write()
    await settle()
    chain.store._queue = [one for one in waiting if one.ledger is not None]
    entry = chain.append()
    await settle()
    first, second, *_ = chain.log.ledgers
    assert entry.ledger_id == second.ledger_id
    assert first.is_empty
    await chain.flush()
    assert chain.store.ledgers[first.ledger_id].sealed
    assert first.writer is None
    assert (first.entry_count, first.end_offset) == (2, 2)
    assert second.first_offset == 2
    assert not chain.store.ledgers[chain.log.stored_ids[-1]].sealed


# --- failures ---------------------------------------------------------------------------------------------------------


@run
async def test_what_was_on_its_way_when_a_ledger_was_fenced_arrives_and_the_log_goes_on_behind_it() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append()
    chain.store.ledgers[chain.log.stored_ids[0]].sealed = True
    with pytest.raises(StorageError, match="takes no more"):
        chain.append()
    with pytest.raises(StorageError, match="clean-up"):
        chain.append()
    await chain.flush()
    assert chain.outcomes == {0: None, 1: None}
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]
    assert counts(chain) == [2, 1]


@run
async def test_what_was_on_its_way_when_a_ledger_was_fenced_is_not_its_successor_s() -> None:
    """The successor was being made: it begins where the log ended then, with nothing in it."""
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=300))
    await chain.written(1)
    chain.append()
    chain.metadata.hold()
    chain.append()  # rolls
    await settle()
    waiting = chain.store._queue
    chain.store._queue = [one for one in waiting if one.ledger is None]
    chain.store.write()  # the successor is there, and is not in the chain yet
    await settle()
    chain.store._queue = [one for one in waiting if one.ledger is not None]
    chain.store.ledgers[chain.log.stored_ids[0]].sealed = True
    with pytest.raises(StorageError):
        chain.append()
    chain.metadata.release()
    await settle()
    assert len(chain.log.stored_ids) == 2
    await chain.flush()
    assert counts(chain) == [3, 0]
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2)]
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("rolls", [False, True])
@run
async def test_a_ledger_whose_append_failed_is_sealed_before_its_offsets_are_given_again(rolls: bool) -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(size_bytes_max=200))
    await chain.written(1)
    (first,) = chain.store.ledgers.values()
    chain.metadata.hold()
    if rolls:
        chain.append()
        await settle()
        chain.store.write()
        await settle()
    first.failed = True
    with pytest.raises(StorageError):
        chain.append()
    with pytest.raises(StorageError, match="clean-up"):
        chain.append()
    assert not first.sealed
    await settle()
    assert first.sealed
    chain.append()
    await settle()
    chain.store.write()
    await settle()
    chain.metadata.release()
    await settle()
    assert [one.ledger is first for one in chain.store._queue] == [False]
    await chain.flush()
    assert None in chain.outcomes.values()
    assert counts(chain) == [1 + rolls, 1]


@run
async def test_no_ledger_is_made_while_one_with_failed_appends_cannot_be_sealed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(1)
    (first,) = chain.store.ledgers.values()
    first.failed = True
    with pytest.raises(StorageError):
        chain.append()

    async def fails() -> LedgerStat:
        raise StorageError("the device is gone")

    seal, first.seal = first.seal, fails  # type: ignore[method-assign]
    for _ in range(3):
        await settle()
        with pytest.raises(StorageError, match="clean-up"):
            chain.append()
        chain.clock.advance(1)
    assert "the device is gone" in caplog.text
    assert len(chain.store.ledgers) == len(chain.log.stored_ids) == 1
    first.seal = seal  # type: ignore[method-assign]
    await settle()
    await chain.written(1)
    assert await chain.read_all() == [(0, 0), (1, 1)]


@run
async def test_an_append_that_failed_is_told_why() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    told = []
    chain.append(done=lambda: told.append(chain.log.state.name))
    chain.append(done=lambda: told.append(chain.log.state.name))
    why = StorageError("no such device")
    chain.store.fail(why)
    await settle()
    assert chain.outcomes == {0: None, 1: why, 2: why}
    assert told == ["FAILED", "FAILED"]


@run
async def test_every_durable_entry_moves_the_high_watermark_and_says_so() -> None:
    moved: list[int] = []
    resets: list[int] = []
    chain = Chain(
        MemoryLedgerStore(automatic=False),
        on_advance=lambda: moved.append(chain.log.high_watermark),
        on_reset=lambda: resets.append(chain.log.high_watermark),
    )
    await chain.written(2, 3)
    await chain.written(1)
    assert moved == [2, 5, 6]
    assert resets == []


@run
async def test_a_ledger_that_cannot_be_sealed_after_a_roll_is_sealed_by_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2))
    await chain.written(1)
    (first,) = chain.store.ledgers.values()
    chain.store.refuses_seals = True
    await chain.written(1)  # rolls
    await chain.written(1)
    assert not first.sealed
    assert "ledger 1 cannot be sealed now" in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    chain.store.refuses_seals = False
    await chain.written(1)  # rolls
    assert first.sealed
    assert await chain.read_all() == [(offset, offset) for offset in range(4)]


@run
async def test_a_closed_log_hears_calmly_that_its_next_ledger_cannot_be_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    chain.append()
    await settle()
    chain.log.close()
    chain.store.fail()
    await settle()
    assert isinstance(chain.outcomes[0], StorageError)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# --- restarts ---------------------------------------------------------------------------------------------------------


@run
async def test_a_start_knows_of_its_ledgers_what_was_known_before() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2))
    for number in range(5):
        chain.append(3, timestamp_ms=1000 - number)
        await chain.flush()

    names = ("ledger_id", "first_offset", "last_offset", "entry_count", "size_bytes", "max_timestamp_ms")

    def known() -> list[tuple[int, ...]]:
        return [tuple(getattr(info, name) for name in names) for info in chain.log.ledgers]

    before = known()
    assert before[0] == (1, 0, 5, 2, 200, 1000)
    assert (chain.log.opened_at, chain.log.appended_bytes) == (0, 500)
    await chain.restart()
    assert known() == before
    assert (chain.log.opened_at, chain.log.appended_bytes) == (15, 0)
    await chain.written(1)
    assert (chain.log.opened_at, chain.log.appended_bytes) == (15, 100)


@run
async def test_the_chain_is_stored_as_the_format_says() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(4)
    stored = await chain.metadata.get(METADATA_ROOT + NAME)
    assert stored is not None
    assert json.loads(stored.value) == {
        "v": 1,
        "epoch": 0,
        "first": 0,
        "log_start": 0,
        "ledgers": [[1, 0, chain.clock.now_ms()]],
    }


@pytest.mark.parametrize(
    ("missing", "said"),
    [(8, "1, 2, 3, 4, 5, 6, 7, 8 are"), (9, "7, 8 and 1 more are"), (10, "7, 8 and 2 more are")],
)
@run
async def test_of_ledgers_that_are_missing_eight_are_named(missing: int, said: str) -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=1))
    for _ in range(missing):
        await chain.written(1)
    for ledger_id in chain.log.stored_ids[:missing]:
        del chain.store.ledgers[ledger_id]
    await chain.restart()
    assert chain.log.problem is not None
    assert said in chain.log.problem


# --- retention --------------------------------------------------------------------------------------------------------


@run
async def test_a_limit_of_nothing_keeps_nothing_but_the_open_ledger() -> None:
    for retention_ms, retention_bytes, left in ((0, -1, 0), (-1, 0, 1), (-1, -1, 3)):
        chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=2))
        for _ in range(3):
            await chain.written(1, 1)
        await chain.written(1)
        chain.clock.advance(0.001)
        await chain.log.trim(retention_ms=retention_ms, retention_bytes=retention_bytes)
        assert sum(counts(chain)) == (7 if left == 3 else left)


@run
async def test_a_trim_that_changes_nothing_writes_nothing() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(5)
    before = chain.metadata.commit_count
    assert await chain.log.trim(retention_ms=60_000, retention_bytes=1000) == 0
    assert chain.metadata.commit_count == before
    before_ids = chain.log.stored_ids
    assert await chain.log.trim(log_start=2) == 2
    assert chain.metadata.commit_count == before + 1
    await chain.written(1)
    assert chain.log.stored_ids == before_ids, "the open ledger stayed open"


@run
async def test_a_trim_removes_ledgers_that_never_got_an_entry() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append()
    chain.store.fail()
    await settle()
    for _ in range(2):  # ledgers that are made and fail before their first entry is durable
        chain.append()
        await settle()
        chain.store.write()
        await settle()
        chain.store.fail()
        await settle()
    await chain.written(1)
    assert counts(chain) == [1, 0, 0, 1]
    chain.store.automatic = True
    assert await chain.log.trim() == 0
    await chain.flush()
    assert counts(chain) == [1, 1]
    assert len(chain.store.ledgers) == 2


@run
async def test_behind_an_open_ledger_that_was_too_old_the_log_goes_on_in_another_one() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(age_ms_max=5000))
    await chain.written(1)
    (old,) = chain.store.ledgers.values()
    chain.clock.advance(10)
    assert await chain.log.trim(retention_ms=1000) == 1
    assert old.sealed
    chain.log.roll_if_old()
    await chain.flush()
    assert chain.log.stored_ids == [], "there is none that could be old"
    await chain.written(1)
    assert chain.outcomes[1] is None
    assert await chain.read_all() == [(1, 1)]


@run
async def test_a_sealed_ledger_goes_while_entries_are_on_their_way_into_the_open_one() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), limits=LedgerLimits(entry_count_max=1))
    await chain.written(1)
    await chain.written(1)
    chain.append()
    await settle()
    first = chain.log.stored_ids[0]
    assert await chain.log.trim(log_start=2) == 2
    assert first not in chain.log.stored_ids
    await chain.flush()


# --- the end ----------------------------------------------------------------------------------------------------------


@run
async def test_a_closed_log_takes_nothing_and_keeps_its_ledger_as_it_is() -> None:
    chain = Chain(MemoryLedgerStore())
    await chain.written(1)
    chain.log.close()
    with pytest.raises(StorageError, match="being closed"):
        chain.append()
    chain.clock.advance(1e9)
    chain.log.roll_if_old()
    await chain.flush()
    assert [ledger.sealed for ledger in chain.store.ledgers.values()] == [False]


@run
async def test_closing_answers_what_waits_for_a_ledger_at_once() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    chain.append()
    await settle()
    chain.log.close()
    assert isinstance(chain.outcomes[0], StorageError)
    await chain.flush()


@run
async def test_deleting_a_log_twice_is_harmless_and_it_is_empty_then() -> None:
    chain = Chain(MemoryLedgerStore(), limits=LedgerLimits(entry_count_max=1))
    await chain.written(1)
    chain.metadata.fail_next = 1
    await chain.written(1)  # a ledger was made for a roll-over that could not be recorded
    assert len(chain.store.ledgers) == 2
    await chain.log.erase()
    await chain.flush()
    assert chain.store.ledgers == {}
    assert chain.log.stored_ids == []
    assert not chain.log.read_cached(0, 1000, 2)
    assert await chain.metadata.scan("/") == []
    before = chain.metadata.commit_count
    await chain.log.erase()
    assert chain.metadata.commit_count == before


@run
async def test_a_log_is_deleted_behind_what_is_on_its_way() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    await chain.written(1)
    chain.append()
    deletion = asyncio.ensure_future(chain.log.erase())
    await settle()
    (ledger,) = chain.store.ledgers.values()
    assert isinstance(ledger, MemoryLedger)
    assert ledger.sealed
    assert len(chain.store) == 1, "the deletion waits"
    await chain.flush()
    await deletion
    assert chain.outcomes[1] is None
    assert chain.store.ledgers == {}

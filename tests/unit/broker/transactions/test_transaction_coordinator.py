"""Fencing, endings that are cut short, time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.transactions import coordinator, model
from magnetar.broker.transactions.endings import ENDING_WAIT_S
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import EPOCH_GIVEN_MAX, Producer, TransactionState
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.testing.transactions import TransactionDriver

S = TransactionState
E = TransactionError
T0, T1 = ("t", 0), ("t", 1)


def opened(driver: TransactionDriver, name: str = "x") -> Producer:
    """A producer with an open transaction over t-0 and t-1, and offset 42 of u-0 for the group g."""
    producer = driver.init(name)
    assert driver.add(name, producer, T0, T1) is E.NONE
    assert driver.add_group(name, producer, "g") is E.NONE
    assert driver.commit_offsets(name, producer, "g", OffsetToCommit("u", 0, 42)) == [GroupError.NONE]
    return producer


# endings


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_answered_when_every_marker_is_written(driver: TransactionDriver, commit: bool) -> None:
    producer = opened(driver)
    driver.partition(*T1).held = True
    asked = driver.start(driver.coordinator.end("x", producer, commit=commit))
    assert not asked.done()
    assert driver.committed("g", "u", 0) is None
    driver.partition(*T1).release()
    driver.settle()
    assert asked.result() is E.NONE
    assert driver.markers(*T0) == driver.markers(*T1) == [(*producer, commit)]
    assert driver.committed("g", "u", 0) == (42 if commit else None)
    assert driver.coordinator.pending_offsets("g") == set()


def test_markers_of_very_many_partitions_leave_turns_to_others(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    assert driver.add("x", producer, *(("t", number) for number in range(1000))) is E.NONE
    asked: list[int] = []
    driver.partitions.clear()

    async def scenario() -> None:
        ending = asyncio.ensure_future(driver.coordinator.end("x", producer, commit=True))
        while not ending.done():
            before = len(driver.partitions)
            await asyncio.sleep(0)
            asked.append(len(driver.partitions) - before)
        assert ending.result() is E.NONE

    driver.wait(scenario())
    assert sum(asked) == 1000
    assert max(asked) <= 100


def test_offsets_of_very_many_partitions_leave_turns_to_others(
    driver: TransactionDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of the two requests took the event loop 90 to 190 ms.
    work: Counter[str] = Counter()  # in this turn
    most: Counter[str] = Counter()

    def counts(owner: object, name: str, count: Callable[..., int] = lambda *_: 1) -> None:
        plain = getattr(owner, name)

        def counted(*values: Any) -> Any:
            work[name] += count(*values)
            return plain(*values)

        monkeypatch.setattr(owner, name, counted)

    async def watched(asked: Coroutine[Any, Any, Any]) -> Any:
        asking = asyncio.ensure_future(asked)
        while not asking.done():
            work.clear()
            await asyncio.sleep(0)
            most.update({name: max(count - most[name], 0) for name, count in work.items()})
        return asking.result()

    driver.catalogue.partitions["t"] = 4000
    counts(driver.groups.offsets, "_check_offset")
    counts(driver.cursors, "put_of")
    counts(model, "_text", lambda value: len(value) if isinstance(value, list) else 0)
    producer = driver.init("x")
    request = CommitRequest("g", [OffsetToCommit("t", number, 7) for number in range(4000)])
    answers = driver.wait(watched(driver.coordinator.commit_offsets("x", producer, request, adds_group=True)))
    assert list(answers) == [GroupError.NONE] * 4000
    assert driver.wait(watched(driver.coordinator.end("x", producer, commit=True))) is E.NONE
    assert driver.committed("g", "t", 3999) == 7
    assert set(most) == {"_check_offset", "put_of", "_text"}
    assert max(most.values()) <= 500, most


def test_the_decision_is_durable_before_any_marker_is_written(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.store.hold()
    asked = driver.start(driver.coordinator.end("x", producer, commit=True))
    assert driver.markers(*T0) == []
    driver.store.release()
    driver.settle()
    assert asked.result() is E.NONE
    assert driver.markers(*T0) == [(*producer, True)]


def test_an_end_that_cannot_be_written_is_no_decision(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.store.fail_next = 1
    assert driver.end("x", producer, commit=True) is E.COORDINATOR_NOT_AVAILABLE
    assert driver.state("x") is S.ONGOING
    assert driver.markers(*T0) == []
    assert driver.end("x", producer, commit=True) is E.NONE


@pytest.mark.parametrize("trouble", ["refusals", "failures"])
def test_a_marker_that_cannot_be_written_is_tried_again(driver: TransactionDriver, trouble: str) -> None:
    producer = opened(driver)
    setattr(driver.partition(*T0), trouble, 3)
    asked = driver.start(driver.coordinator.end("x", producer, commit=True))
    assert not asked.done()
    driver.advance(0.1)
    driver.advance(0.2)
    assert not asked.done()
    driver.advance(0.4)
    assert asked.result() is E.NONE
    assert driver.markers(*T0) == driver.markers(*T1) == [(*producer, True)]


def test_an_end_that_takes_long_is_answered_and_goes_on(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.partition(*T0).held = True
    asked = driver.start(driver.coordinator.end("x", producer, commit=True))
    driver.advance(ENDING_WAIT_S)
    assert asked.result() is E.NONE
    assert driver.state("x") is S.PREPARE_COMMIT
    assert driver.add("x", producer, T0) is E.CONCURRENT_TRANSACTIONS
    driver.partition(*T0).release()
    driver.settle()
    assert driver.state("x") is S.COMPLETE_COMMIT
    assert driver.add("x", producer, T0) is E.NONE


def test_a_producer_that_waits_too_long_for_the_end_before_it_tries_again(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.partition(*T0).held = True
    asked = driver.start(driver.coordinator.init_producer("x", 60_000))
    driver.advance(ENDING_WAIT_S)
    assert asked.result().error is E.CONCURRENT_TRANSACTIONS
    driver.partition(*T0).release()
    driver.settle()
    assert driver.init("x") == (producer.producer_id, producer.epoch + 2)


def test_an_end_that_fails_inside_the_broker_keeps_the_id_and_nothing_else_from_going_on(
    driver: TransactionDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next producer with the id was let look again at once and for ever, and nobody else was served.
    async def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    producer = opened(driver)
    monkeypatch.setattr(coordinator, "write_markers", fail)
    assert driver.end("x", producer, commit=True) is E.NONE, "it was decided"
    assert driver.state("x") is S.PREPARE_COMMIT
    assert driver.ask_init("x").error is E.CONCURRENT_TRANSACTIONS
    monkeypatch.undo()
    driver.restart()
    driver.settle()
    assert driver.state("x") is S.COMPLETE_COMMIT


def test_a_topic_that_was_deleted_meanwhile_needs_no_marker(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.deleted.add(T0)
    driver.catalogue.partitions = {"t": 8}
    assert driver.end("x", producer, commit=True) is E.NONE
    assert driver.markers(*T0) == []
    assert driver.markers(*T1) == [(*producer, True)]
    assert driver.committed("g", "u", 0) is None  # its topic is gone too


def test_offsets_and_the_end_are_one_write(driver: TransactionDriver) -> None:
    producer = opened(driver)
    before = driver.store.commit_count
    assert driver.end("x", producer, commit=True) is E.NONE
    assert driver.store.commit_count == before + 2  # the decision, then everything else


def test_a_completion_that_cannot_be_written_is_tried_again(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.partition(*T0).held = True
    asked = driver.start(driver.coordinator.end("x", producer, commit=True))
    driver.store.fail_next = 1
    driver.partition(*T0).release()
    driver.settle()
    assert driver.state("x") is S.PREPARE_COMMIT
    assert driver.committed("g", "u", 0) is None
    driver.advance(5.0)
    assert asked.result() is E.NONE
    assert driver.committed("g", "u", 0) == 42


# crashes


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_is_finished_after_a_crash(driver: TransactionDriver, commit: bool) -> None:
    producer = opened(driver)
    driver.partition(*T0).held = True  # the marker of t-1 is written, that of t-0 is not known to be
    driver.start(driver.coordinator.end("x", producer, commit=commit))
    del driver.partitions[T0]
    driver.restart()
    assert driver.state("x") is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert driver.markers(*T0) == [(*producer, commit)]
    assert driver.committed("g", "u", 0) == (42 if commit else None)
    assert driver.end("x", producer, commit=commit) is E.NONE


def test_an_open_transaction_goes_on_after_a_crash(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.restart()
    assert driver.coordinator.is_in_transaction(*producer, *T0, "x")
    assert driver.coordinator.pending_offsets("g") == {("u", 0)}
    assert driver.end("x", producer, commit=True) is E.NONE
    assert driver.committed("g", "u", 0) == 42


def test_an_open_transaction_times_out_after_a_crash_counted_from_its_start(
    driver: TransactionDriver,
) -> None:
    producer = opened(driver)
    driver.advance(40.0)
    driver.restart()
    driver.advance(21.0)
    assert driver.state("x") is S.COMPLETE_ABORT
    assert driver.markers(*T0) == [(producer.producer_id, producer.epoch + 1, False)]


async def _ordinary_commit(driver: TransactionDriver, *offsets: OffsetToCommit) -> list[GroupError]:
    return await driver.groups.offsets.commit(CommitRequest("g", offsets))


def test_a_crash_after_the_end_does_not_move_offsets_back(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.end("x", producer, commit=True)
    later = driver.start(_ordinary_commit(driver, OffsetToCommit("u", 0, 50)))
    assert later.result() == [GroupError.NONE]
    driver.restart()
    assert driver.committed("g", "u", 0) == 50
    assert driver.markers(*T0) == [(*producer, True)]


# fencing


def test_the_second_of_two_producers_with_one_id_fences_the_first(driver: TransactionDriver) -> None:
    first = opened(driver)
    second = driver.init("x")
    assert driver.markers(*T0) == [(first.producer_id, first.epoch + 1, False)]
    assert second.producer_id == first.producer_id
    assert second.epoch > first.epoch + 1
    assert driver.add("x", first, T0) is E.PRODUCER_FENCED
    assert driver.add_group("x", first, "g") is E.PRODUCER_FENCED
    assert driver.commit_offsets("x", first, "g", OffsetToCommit("u", 0, 1)) == [E.PRODUCER_FENCED]
    assert driver.end("x", first, commit=True) is E.PRODUCER_FENCED
    assert driver.committed("g", "u", 0) is None
    assert driver.add("x", second, T0) is E.NONE


def test_a_producer_may_ask_for_the_next_epoch_and_ask_again(driver: TransactionDriver) -> None:
    first = driver.init("x")
    next_one = driver.init("x", first)
    assert next_one == (first.producer_id, first.epoch + 1)
    assert driver.init("x", first) == next_one  # the answer was lost
    assert driver.init("x", next_one) == (first.producer_id, first.epoch + 2)
    assert driver.ask_init("x", first).error is E.PRODUCER_FENCED
    assert driver.ask_init("x", Producer(first.producer_id + 1, 0)).error is E.PRODUCER_FENCED


def test_a_new_instance_fences_the_one_that_asks_for_the_next_epoch(driver: TransactionDriver) -> None:
    first = driver.init("x")
    driver.init("x")
    assert driver.ask_init("x", first).error is E.PRODUCER_FENCED


def test_a_producer_that_asks_for_the_next_epoch_aborts_its_own_transaction(
    driver: TransactionDriver,
) -> None:
    first = opened(driver)
    next_one = driver.init("x", first)
    assert next_one == (first.producer_id, first.epoch + 1)
    assert driver.markers(*T0) == [(*next_one, False)]


def test_an_exhausted_epoch_gives_a_new_producer_id(driver: TransactionDriver) -> None:
    first = driver.init("x")
    producer = first
    while producer.epoch < EPOCH_GIVEN_MAX:
        producer = driver.init("x", producer)
    assert producer.producer_id == first.producer_id
    rotated = driver.init("x", producer)
    assert rotated.producer_id != first.producer_id
    assert rotated.epoch == 0
    assert driver.init("x", producer) == rotated  # the answer was lost
    assert driver.end("x", producer, commit=True) is E.INVALID_PRODUCER_ID_MAPPING


def test_two_new_producers_at_once_get_different_epochs(driver: TransactionDriver) -> None:
    opened(driver)
    driver.partition(*T0).held = True
    asked = [driver.start(driver.coordinator.init_producer("x", 60_000)) for _ in range(3)]
    driver.partition(*T0).release()
    driver.settle()
    answers = [task.result() for task in asked]
    assert {answer.error for answer in answers} == {E.NONE}
    assert len({answer.epoch for answer in answers}) == 3


def test_an_id_that_could_not_be_written_is_not_there(driver: TransactionDriver) -> None:
    driver.init("other")  # takes a block of producer ids
    driver.store.fail_next = 1
    assert driver.ask_init("x").error is E.COORDINATOR_NOT_AVAILABLE
    assert driver.coordinator.describe("x") is None
    assert driver.init("x").epoch == 0


# time


def test_a_transaction_times_out_and_its_producer_is_fenced(driver: TransactionDriver) -> None:
    producer = opened(driver)
    driver.advance(60.0)
    assert driver.state("x") is S.ONGOING
    driver.advance(1.0)
    assert driver.state("x") is S.COMPLETE_ABORT
    assert driver.markers(*T0) == [(producer.producer_id, producer.epoch + 1, False)]
    assert driver.end("x", producer, commit=True) is E.PRODUCER_FENCED
    assert not driver.coordinator.is_in_transaction(*producer, *T0, "x")


def test_transactions_that_are_late_together_are_aborted_by_few_writes(driver: TransactionDriver) -> None:
    """A client may leave thousands behind, and readers of committed records wait for the last of them."""
    for number in range(50):
        name = f"x{number}"
        assert driver.add(name, driver.init(name), T0) is E.NONE
    before = driver.store.commit_count
    driver.advance(61.0)
    assert {driver.state(f"x{number}") for number in range(50)} == {S.COMPLETE_ABORT}
    assert driver.store.commit_count - before < 10


def test_a_time_out_that_cannot_be_written_is_tried_again(driver: TransactionDriver) -> None:
    opened(driver)
    driver.store.fail_next = 1
    driver.advance(61.0)
    assert driver.state("x") is S.ONGOING
    driver.advance(1.0)
    assert driver.state("x") is S.COMPLETE_ABORT


def test_an_idle_id_is_forgotten_and_one_in_use_is_not(driver: TransactionDriver) -> None:
    driver.init("idle")
    week_s = driver.settings.transactional_id_expiration_ms / 1000
    driver.advance(week_s - 60.0)
    fresh = driver.init("fresh")
    driver.advance(180.0)
    assert [name for name, _ in driver.coordinator.listed()] == ["fresh"]
    driver.restart()
    assert [name for name, _ in driver.coordinator.listed()] == ["fresh"]
    assert driver.init("fresh") == (fresh.producer_id, 1)
    assert driver.init("idle").epoch == 0


def listed(driver: TransactionDriver) -> list[str]:
    return sorted(name for name, _ in driver.coordinator.listed())


def test_a_new_id_takes_the_place_of_the_one_that_has_not_been_used_for_longest() -> None:
    with TransactionDriver(TransactionSettings(max_transactions_per_coordinator=3)) as driver:
        producers = {name: driver.init(name) for name in "abc"}
        driver.init("a")
        driver.init("d")
        assert listed(driver) == ["a", "c", "d"]
        assert driver.add("b", producers["b"], T0) is E.INVALID_PRODUCER_ID_MAPPING, "as one that has expired"
        assert driver.init("b").producer_id != producers["b"].producer_id
        driver.restart()
        assert listed(driver) == ["a", "b", "d"]


def test_an_id_with_an_open_transaction_keeps_its_place_and_a_new_one_may_try_again() -> None:
    with TransactionDriver(TransactionSettings(max_transactions_per_coordinator=2)) as driver:
        first, second = opened(driver, "x"), opened(driver, "y")
        refused = driver.wait(driver.coordinator.init_producer("z", 60_000))
        assert refused.error is E.COORDINATOR_NOT_AVAILABLE
        assert listed(driver) == ["x", "y"]
        assert driver.end("y", second, commit=True) is E.NONE
        driver.init("z")
        assert listed(driver) == ["x", "z"]
        assert driver.end("x", first, commit=True) is E.NONE


def test_an_id_whose_deletion_fails_stays_and_the_new_one_is_refused() -> None:
    with TransactionDriver(TransactionSettings(max_transactions_per_coordinator=1)) as driver:
        driver.init("x")
        driver.store.fail_next = 3
        assert driver.wait(driver.coordinator.init_producer("y", 60_000)).error is E.COORDINATOR_NOT_AVAILABLE
        driver.restart()
        assert listed(driver) == ["x"]
        driver.init("y")
        assert listed(driver) == ["y"]

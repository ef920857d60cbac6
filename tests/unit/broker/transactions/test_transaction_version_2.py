"""Transactions of version 2 (KIP-890): an epoch for each, and what that keeps out."""

import random
from dataclasses import replace

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import OffsetToCommit
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import EPOCH_GIVEN_MAX, Producer, TransactionState
from magnetar.broker.transactions.paths import record_path
from magnetar.testing.transactions import TransactionDriver
from tests.unit.broker.transactions.ended import end_into

S = TransactionState
E = TransactionError
T0, T1 = ("t", 0), ("t", 1)


def reach(driver: TransactionDriver, state: TransactionState) -> tuple[Producer, Producer]:
    """The id "x" in `state`, its partition t-0 slow if it is to stay in one of the middle: the producer that asked for
    the last end, and the one that it is since.
    """
    first = driver.init("x")
    if state is S.EMPTY:
        second = driver.init("x", first)
        return first, second
    driver.add("x", first, T0)
    if state is S.ONGOING:
        ended = driver.end_and_renew("x", first, commit=True)
        driver.add("x", Producer(*ended[1:]), T0)
        return first, Producer(*ended[1:])
    end_into(driver, state, lambda commit: driver.coordinator.end_and_renew("x", first, commit=commit))
    return first, Producer(first.producer_id, first.epoch + 1)


F, W, C, N = E.PRODUCER_FENCED, E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS, E.NONE
# As a real broker of Kafka 4.3 answers; there, what is asked under the new epoch while markers are being written is
# PRODUCER_FENCED, which would end a producer that has done nothing wrong.
ANSWERS = {
    #                  again: commit, abort    next: commit, abort
    S.EMPTY: ((F, F), (W, N)),
    S.ONGOING: ((F, F), (N, N)),
    S.PREPARE_COMMIT: ((C, W), (C, C)),
    S.PREPARE_ABORT: ((W, C), (C, C)),
    S.COMPLETE_COMMIT: ((N, W), (W, N)),
    S.COMPLETE_ABORT: ((W, N), (W, N)),
}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", ANSWERS)
def test_an_end_is_told_from_the_one_before_by_its_epoch(state: TransactionState, commit: bool) -> None:
    again, next_one = ANSWERS[state]
    for position, wanted in enumerate((again[not commit], next_one[not commit])):
        with TransactionDriver() as driver:
            producers = reach(driver, state)
            asker, owner = producers[position], producers[1]
            before = driver.record("x")
            error, producer_id, epoch = driver.end_and_renew("x", asker, commit=commit)
            assert error is wanted
            if wanted is not N:
                assert (producer_id, epoch) == (-1, -1)
            elif position == 0:
                assert (producer_id, epoch) == owner
            else:
                assert (producer_id, epoch) == (owner.producer_id, owner.epoch + 1)
            if wanted is not N or position == 0:
                assert driver.record("x") == before


def test_markers_have_the_new_epoch_so_that_what_is_late_is_refused(driver: TransactionDriver) -> None:
    first = driver.init("x")
    driver.add("x", first, T0, T1)
    assert driver.end_and_renew("x", first, commit=True) == (N, first.producer_id, first.epoch + 1)
    assert driver.markers(*T0) == driver.markers(*T1) == [(first.producer_id, first.epoch + 1, True)]


def test_what_was_sent_for_an_ended_transaction_opens_no_other_one(driver: TransactionDriver) -> None:
    """The hanging transaction that KIP-890 is about."""
    for commit in (True, False):
        for opened in (True, False):
            name = f"{commit} {opened}"
            first = driver.init(name)
            if opened:
                driver.add(name, first, T0)
            elif commit:
                continue
            driver.end_and_renew(name, first, commit=commit)
            offset = OffsetToCommit("t", 0, 5)
            assert driver.add(name, first, T0) is F
            assert driver.add_group(name, first, "g") is F
            assert driver.commit_offsets(name, first, "g", offset, adds_group=True) == [F]
            assert not driver.coordinator.is_in_transaction(*first, *T0, name)
            assert driver.state(name) in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


def test_what_joins_is_part_of_the_end_though_its_client_is_gone(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    driver.add("x", producer, T0)
    driver.store.hold()
    joining = driver.start(driver.coordinator.join("x", producer, [T1]))
    joining.cancel()
    ending = driver.start(driver.coordinator.end_and_renew("x", producer, commit=True))
    driver.store.release()
    driver.settle()
    assert joining.cancelled()
    assert ending.result().error is N
    assert driver.markers(*T0) == driver.markers(*T1) == [(producer.producer_id, producer.epoch + 1, True)]


def test_offsets_open_a_transaction_and_add_their_group(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    offset = OffsetToCommit("t", 0, 5)
    assert driver.commit_offsets("x", producer, "g", offset) == [E.TRANSACTION_ABORTABLE]
    assert driver.commit_offsets("x", producer, "g", offset, adds_group=True) == [GroupError.NONE]
    before = driver.store.commit_count
    assert driver.commit_offsets("x", producer, "g", offset, adds_group=True) == [GroupError.NONE]
    assert driver.store.commit_count == before, "it is there already"
    later = OffsetToCommit("t", 1, 6)
    assert driver.commit_offsets("x", producer, "g", later, adds_group=True) == [GroupError.NONE]
    assert driver.coordinator.pending_offsets("g") == {T0, T1}
    assert driver.end_and_renew("x", producer, commit=True).error is N
    assert (driver.committed("g", *T0), driver.committed("g", *T1)) == (5, 6)


def exhaust(driver: TransactionDriver) -> Producer:
    """The producer of "x", after so many transactions that it has the last epoch."""
    record = replace(driver.record("x"), epoch=EPOCH_GIVEN_MAX, last_producer_id=-1, last_epoch=-1)
    driver.wait(driver.store.put(record_path("x"), driver.wait(record.encode())))
    driver.restart()
    return record.owner


def exhausted(driver: TransactionDriver) -> Producer:
    driver.init("x")
    return exhaust(driver)


@pytest.mark.parametrize("opened", [True, False])
def test_an_end_with_the_last_epoch_gives_a_new_producer_id(driver: TransactionDriver, opened: bool) -> None:
    old = exhausted(driver)
    if opened:
        driver.add("x", old, T0)
    error, producer_id, epoch = driver.end_and_renew("x", old, commit=False)
    assert (error, epoch) == (N, 0)
    assert producer_id != old.producer_id
    new = Producer(producer_id, epoch)
    assert driver.end_and_renew("x", old, commit=False) == (N, *new), "the answer was lost"
    driver.restart()
    assert driver.end_and_renew("x", old, commit=False) == (N, *new)
    assert driver.init("x", old) == new, "and asked for in another way"
    if opened:
        assert driver.markers(*T0) == [(old.producer_id, old.epoch + 1, False)]
    assert driver.add("x", old, T0) is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.add("x", new, T0) is N


def test_a_new_producer_id_takes_over_after_a_crash_before_the_markers(driver: TransactionDriver) -> None:
    old = exhausted(driver)
    driver.add("x", old, T0)
    driver.partition(*T0).held = True
    driver.start(driver.coordinator.end_and_renew("x", old, commit=True))
    new = driver.record("x").owner
    assert new.producer_id != old.producer_id
    assert driver.add("x", new, T0) is C, "its turn comes with the last marker"
    del driver.partitions[T0]
    driver.restart()
    assert driver.markers(*T0) == [(old.producer_id, old.epoch + 1, True)]
    assert driver.end_and_renew("x", old, commit=True) == (N, *new)
    assert driver.add("x", new, T0) is N


def test_an_end_that_gets_no_producer_id_is_no_decision(driver: TransactionDriver) -> None:
    old = exhausted(driver)
    driver.add("x", old, T0)
    driver.store.fail_next = 1  # of a block of producer ids, as the server has started anew
    assert driver.end_and_renew("x", old, commit=True).error is E.COORDINATOR_NOT_AVAILABLE
    assert driver.state("x") is S.ONGOING
    assert driver.end_and_renew("x", old, commit=True).error is N


def test_a_lost_end_is_found_by_asking_for_the_next_epoch(driver: TransactionDriver) -> None:
    first = driver.init("x")
    driver.add("x", first, T0)
    error, *second = driver.end_and_renew("x", first, commit=True)
    assert error is N
    assert driver.init("x", first) == Producer(*second)


def test_a_late_claim_leaves_the_transaction_of_the_next_epoch_alone(driver: TransactionDriver) -> None:
    first = driver.init("x")
    driver.add("x", first, T0)
    _, *second = driver.end_and_renew("x", first, commit=True)
    assert driver.add("x", Producer(*second), T0) is N
    assert driver.ask_init("x", first).error is F
    assert driver.state("x") is S.ONGOING


def test_one_that_was_fenced_does_not_learn_the_epoch_of_the_next(driver: TransactionDriver) -> None:
    first = driver.init("x")
    driver.add("x", first, T0)
    driver.advance(61.0)
    assert driver.state("x") is S.COMPLETE_ABORT
    assert driver.end_and_renew("x", first, commit=False).error is F
    assert driver.end_and_renew("x", first, commit=True).error is F


def test_a_producer_of_the_old_protocol_may_follow_and_be_followed(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    driver.add("x", producer, T0)
    assert driver.end("x", producer, commit=True) is N
    driver.add("x", producer, T0)
    _, *renewed = driver.end_and_renew("x", producer, commit=True)
    assert driver.end("x", producer, commit=True) is F, "it did not ask that way"
    driver.add("x", Producer(*renewed), T0)
    assert driver.end("x", Producer(*renewed), commit=False) is N
    assert driver.end("x", Producer(*renewed), commit=False) is N
    assert [commit for *_, commit in driver.markers(*T0)] == [True, True, False]


def test_verifying_tells_why_not(driver: TransactionDriver) -> None:
    verify = driver.coordinator.verify
    assert verify("", Producer(0, 0), T0) is E.INVALID_REQUEST
    assert verify("x", Producer(0, 0), T0) is E.INVALID_PRODUCER_ID_MAPPING
    first = driver.init("x")
    assert verify("x", first, T0) is E.TRANSACTION_ABORTABLE
    driver.add("x", first, T0)
    assert verify("x", first, T0) is N
    assert verify("x", first, T1) is E.TRANSACTION_ABORTABLE
    assert verify("x", Producer(first.producer_id, 1), T0) is F
    assert verify("x", Producer(first.producer_id + 1, 0), T0) is E.INVALID_PRODUCER_ID_MAPPING
    driver.partition(*T0).held = True
    driver.start(driver.coordinator.end_and_renew("x", first, commit=True))
    second = Producer(first.producer_id, first.epoch + 1)
    assert verify("x", first, T0) is F
    assert verify("x", second, T0) is C


# at random


class Instance:
    """A producer as it sees itself: who it is, and where it has written."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.open: set[tuple[str, int]] = set()


@pytest.mark.parametrize("seed", range(8))
def test_epochs_and_ends_hold_whatever_is_lost_repeated_or_late(seed: int) -> None:
    """Several instances take turns with one id; answers are lost and asked for again, requests of the past come late,
    epochs run out and the server is killed.  Then each transaction is marked in every partition as its producer was
    told, once, and no request of the past has changed anything.
    """
    rng = random.Random(seed)
    with TransactionDriver() as driver:
        partitions = [("t", index) for index in range(4)]
        expected: dict[tuple[str, int], list[tuple[int, bool]]] = {one: [] for one in partitions}
        instance = Instance(driver.init("x"))
        past: list[Producer] = []
        given = {instance.producer}

        def moved(to: Producer) -> None:
            assert to not in past, (seed, to)
            if to != instance.producer:
                assert to not in given, (seed, to)
                past.append(instance.producer)
                given.add(to)

        for _ in range(150):
            before = driver.record("x")
            match rng.choice(
                ("add", "add", "end", "end", "abort", "new", "claim", "late", "kill", "old", "exhaust")
            ):
                case "add":
                    wanted = rng.sample(partitions, rng.randint(1, 3))
                    assert driver.add("x", instance.producer, *wanted) is N
                    instance.open.update(wanted)
                case "end" | "abort" as verb:
                    commit = verb == "end" and rng.random() < 0.5
                    asker = instance.producer
                    if commit and not instance.open:
                        assert driver.end_and_renew("x", asker, commit=True).error is W
                        continue
                    error, *renewed = driver.end_and_renew("x", asker, commit=commit)
                    assert error is N
                    for one in instance.open:
                        expected[one].append((asker.producer_id, commit))
                    instance.open.clear()
                    for _ in range(rng.randint(0, 2)):  # the answer was lost
                        if rng.random() < 0.3:
                            driver.restart()
                        assert driver.end_and_renew("x", asker, commit=commit) == (N, *renewed)
                        assert driver.end_and_renew("x", asker, commit=not commit).error is W
                    moved(Producer(*renewed))
                    instance.producer = Producer(*renewed)
                case "old":
                    if instance.open:
                        commit = rng.random() < 0.5
                        assert driver.end("x", instance.producer, commit=commit) is N
                        for one in instance.open:
                            expected[one].append((instance.producer.producer_id, commit))
                        instance.open.clear()
                case "new" | "claim" as verb:
                    asker = instance.producer
                    renewed_by = driver.init("x", asker if verb == "claim" else None)
                    for one in instance.open:
                        expected[one].append((asker.producer_id, False))
                    if verb == "claim" and rng.random() < 0.5:
                        assert driver.init("x", asker) == renewed_by
                    moved(renewed_by)
                    instance = Instance(renewed_by)
                case "late":
                    for asker in past[:-1]:
                        assert driver.add("x", asker, *partitions) is not N
                        assert driver.end_and_renew("x", asker, commit=False).error is not N
                        assert driver.end("x", asker, commit=True) is not N
                        assert driver.ask_init("x", asker).error is F
                        assert not any(
                            driver.coordinator.is_in_transaction(*asker, *one, "x") for one in partitions
                        )
                    assert driver.record("x") == before
                case "kill":
                    driver.restart()
                    assert driver.record("x") == before
                case "exhaust":
                    if rng.random() < 0.2 and instance.producer.epoch < EPOCH_GIVEN_MAX:
                        last = exhaust(driver)
                        moved(last)
                        instance.producer = last
            assert driver.record("x").owner == instance.producer
        driver.end_and_renew("x", instance.producer, commit=False)
        for one in instance.open:
            expected[one].append((instance.producer.producer_id, False))
        for one in partitions:
            assert [(pid, commit) for pid, _, commit in driver.markers(*one)] == expected[one], (seed, one)

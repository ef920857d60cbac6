"""Every request in every state, and what is stored of a transaction."""

import asyncio
import json
from dataclasses import replace

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import OffsetToCommit
from magnetar.broker.transactions import rules
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import Producer, TransactionRecord, TransactionState
from magnetar.broker.transactions.paths import ID_BYTES_MAX, ROOT, record_path
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.metadata.path_parts import unescape
from magnetar.testing.transactions import TransactionDriver
from tests.unit.broker.transactions.ended import end_into

S = TransactionState
E = TransactionError
T0, T1 = ("t", 0), ("t", 1)


def reach(driver: TransactionDriver, state: TransactionState) -> Producer:
    """The id "x" in `state`, its partition t-0 slow if it is to stay in one of the middle."""
    if state is S.DEAD:
        return Producer(0, 0)
    producer = driver.init("x")
    if state is S.EMPTY:
        return producer
    driver.add("x", producer, T0)
    driver.add_group("x", producer, "g")
    if state is S.ONGOING:
        return producer
    end_into(driver, state, lambda commit: driver.coordinator.end("x", producer, commit=commit))
    return producer


EXPECTED = {
    #                    add                            offsets                    commit           abort
    S.DEAD: (E.INVALID_PRODUCER_ID_MAPPING,) * 4,
    S.EMPTY: (E.NONE, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (E.NONE, E.NONE, E.NONE, E.NONE),
    S.PREPARE_COMMIT: (
        E.CONCURRENT_TRANSACTIONS,
        E.CONCURRENT_TRANSACTIONS,
        E.CONCURRENT_TRANSACTIONS,
        E.INVALID_TXN_STATE,
    ),
    S.PREPARE_ABORT: (
        E.CONCURRENT_TRANSACTIONS,
        E.CONCURRENT_TRANSACTIONS,
        E.INVALID_TXN_STATE,
        E.CONCURRENT_TRANSACTIONS,
    ),
    S.COMPLETE_COMMIT: (E.NONE, E.TRANSACTION_ABORTABLE, E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.NONE, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.NONE),
}


@pytest.mark.parametrize("state", S)
def test_every_request_in_every_state(driver: TransactionDriver, state: TransactionState) -> None:
    add, offsets, commit, abort = EXPECTED[state]
    for request in ("partitions", "group", "offsets", "commit", "abort"):
        with TransactionDriver() as fresh:
            producer = reach(fresh, state)
            before = None if state is S.DEAD else fresh.record("x")
            match request:
                case "partitions":
                    got, wanted = fresh.add("x", producer, T1), add
                case "group":
                    got, wanted = fresh.add_group("x", producer, "h"), add
                case "offsets":
                    (one,) = fresh.commit_offsets("x", producer, "g", OffsetToCommit("t", 3, 7))
                    got, wanted = getattr(E, one.name), offsets
                case _:
                    wanted = commit if request == "commit" else abort
                    got = fresh.end("x", producer, commit=request == "commit")
            assert got is wanted, (state, request)
            if wanted is not E.NONE and before is not None:
                assert fresh.record("x") == before


@pytest.mark.parametrize("state", S)
def test_init_producer_in_every_state_gives_the_next_epoch_of_an_id_without_an_open_transaction(
    driver: TransactionDriver, state: TransactionState
) -> None:
    before = reach(driver, state)
    asked = driver.start(driver.coordinator.init_producer("x", 60_000))
    if state in rules.COMPLETED:
        assert not asked.done()  # the markers of the last transaction come first
        driver.partition(*T0).release()
    driver.settle()
    answer = asked.result()
    bumps = {S.DEAD: 0, S.ONGOING: 2}.get(state, 1)  # an open transaction is fenced first
    assert answer == (E.NONE, before.producer_id, before.epoch + bumps)
    assert driver.state("x") is S.EMPTY
    assert not driver.record("x").partitions


@pytest.mark.parametrize("state", S)
def test_only_an_open_transaction_lets_its_producer_write_and_only_to_what_it_has_added(
    driver: TransactionDriver, state: TransactionState
) -> None:
    producer_id, epoch = reach(driver, state)
    inside = driver.coordinator.is_in_transaction
    assert inside(producer_id, epoch, "t", 0, "x") is (state is S.ONGOING)
    assert not inside(producer_id, epoch, "t", 1, "x")
    assert not inside(producer_id, epoch + 1, "t", 0, "x")
    assert not inside(producer_id + 1, epoch, "t", 0, "x")
    assert not inside(producer_id, epoch, "t", 0, "y")
    assert not inside(producer_id, epoch, "t", 0, None)


def test_the_tables_of_the_rules_know_every_state() -> None:
    for table in (
        rules.MOVES,
        rules.ADD,
        rules.COMMIT_OFFSETS,
        rules.END,
        rules.END_AND_RENEW,
        rules.INITIALISE,
    ):
        assert set(table) == set(S)


def test_what_is_there_already_costs_no_write(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    driver.add("x", producer, T0, T1)
    driver.add_group("x", producer, "g")
    before = driver.store.commit_count
    assert driver.add("x", producer, T1) is E.NONE
    assert driver.add_group("x", producer, "g") is E.NONE
    assert driver.store.commit_count == before


def test_an_id_and_a_timeout_out_of_bounds_are_refused(driver: TransactionDriver) -> None:
    limit = TransactionSettings().transaction_max_timeout_ms
    assert driver.ask_init("").error is E.INVALID_REQUEST
    assert driver.ask_init("\u00e9" * (ID_BYTES_MAX // 2 + 1)).error is E.INVALID_REQUEST
    assert driver.ask_init("\u00e9" * (ID_BYTES_MAX // 2)).error is E.NONE
    assert driver.ask_init("x", timeout_ms=limit + 1).error is E.INVALID_TRANSACTION_TIMEOUT
    assert driver.ask_init("x", timeout_ms=0).error is E.INVALID_TRANSACTION_TIMEOUT
    assert driver.ask_init("x", timeout_ms=limit).error is E.NONE


def test_offsets_of_a_group_that_was_not_added_are_refused(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    driver.add("x", producer, T0)
    assert driver.commit_offsets("x", producer, "g", OffsetToCommit("t", 0, 1)) == [E.TRANSACTION_ABORTABLE]


def test_each_offset_has_its_own_answer_and_the_good_ones_are_kept(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    driver.add_group("x", producer, "g")
    offsets = [
        OffsetToCommit("nowhere", 0, 1),
        OffsetToCommit("t", 0, 5, "é", 3),
        OffsetToCommit("t", 1, 1, "m" * 4097),
    ]
    assert driver.commit_offsets("x", producer, "g", *offsets) == [
        GroupError.UNKNOWN_TOPIC_OR_PARTITION,
        GroupError.NONE,
        GroupError.OFFSET_METADATA_TOO_LARGE,
    ]
    assert driver.coordinator.pending_offsets("g") == {T0}
    assert driver.coordinator.pending_offsets("h") == set()


def test_offsets_with_a_generation_must_come_from_a_member(driver: TransactionDriver) -> None:
    producer = driver.init("x")
    driver.add_group("x", producer, "g")
    answers = driver.commit_offsets(
        "x", producer, "g", OffsetToCommit("t", 0, 5), member_id="m", generation=3
    )
    assert answers == [GroupError.ILLEGAL_GENERATION]
    assert driver.coordinator.pending_offsets("g") == set()


def test_a_transaction_that_does_not_fit_into_its_record_is_refused_and_can_be_ended(
    driver: TransactionDriver,
) -> None:
    producer = driver.init("x")
    driver.add("x", producer, T0)
    assert driver.add("x", producer, *[("u" * 249, index) for index in range(5000)]) is E.INVALID_REQUEST
    assert driver.record("x").partitions == {T0}
    assert driver.end("x", producer, commit=True) is E.NONE


# what is stored

FULL = TransactionRecord(
    producer_id=7,
    epoch=3,
    timeout_ms=60_000,
    state=S.ONGOING,
    updated_ms=12,
    last_producer_id=6,
    last_epoch=2,
    partitions=frozenset({T0, T1}),
    offsets={"g": {T0: OffsetToCommit("t", 0, 9, "m\N{SNOWMAN}", 4, "1f")}, "empty": {}},
    started_ms=11,
    next_producer_id=8,
)


@pytest.mark.parametrize("state", S)
def test_a_record_reads_back_as_it_was_written(state: TransactionState) -> None:
    record = replace(FULL, state=state)
    assert TransactionRecord.decode(asyncio.run(record.encode())) == record


STORED = (
    b'{"version":3,"producer_id":7,"epoch":3,"last_producer_id":6,"last_epoch":2,"next_producer_id":8,"timeout_ms":60000,'
    b'"state":"Ongoing","partitions":[["t",0],["t",1]],'
    b'"offsets":{"g":[["t",0,9,4,"m\\u2603","1f"]],"empty":[]},"started_ms":11,"updated_ms":12}'
)


def test_the_stored_form_is_this_one() -> None:
    """Byte for byte: what an older server has written must stay readable."""
    assert asyncio.run(FULL.encode()) == STORED


def test_a_record_of_very_many_rows_is_written_in_turns_and_reads_back() -> None:
    offsets = {group: {("t", n): OffsetToCommit("t", n, n) for n in range(1001)} for group in ("g", "h")}
    record = replace(FULL, partitions=frozenset(("t", n) for n in range(1500)), offsets=offsets)
    turns = 0

    async def scenario() -> bytes:
        nonlocal turns
        encoding = asyncio.ensure_future(record.encode())
        while not encoding.done():
            turns += 1
            await asyncio.sleep(0)
        return encoding.result()

    assert TransactionRecord.decode(asyncio.run(scenario())) == record
    assert turns > 4


def test_older_versions_which_knew_less_are_read() -> None:
    version_2 = STORED.replace(b'"version":3', b'"version":2').replace(b'"next_producer_id":8,', b"")
    assert TransactionRecord.decode(version_2) == replace(FULL, next_producer_id=-1)
    version_1 = version_2.replace(b'"version":2', b'"version":1').replace(b',"1f"', b"")
    (row,) = TransactionRecord.decode(version_1).offsets["g"].values()
    assert row == OffsetToCommit("t", 0, 9, "m\N{SNOWMAN}", 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 4},
        {"version": 0},
        {"state": "Open"},
        {"partitions": [["t"]]},
        {"offsets": []},
        {"epoch": "high"},
    ],
)
def test_a_damaged_record_is_refused(changes: dict[str, object]) -> None:
    stored = {**json.loads(STORED), **changes}
    with pytest.raises(EntryCorrupt):
        TransactionRecord.decode(json.dumps(stored).encode())
    with pytest.raises(EntryCorrupt):
        TransactionRecord.decode(STORED[:-1])


def test_a_damaged_record_does_not_stop_the_others(
    driver: TransactionDriver, caplog: pytest.LogCaptureFixture
) -> None:
    producer = driver.init("good")
    driver.wait(driver.store.put(record_path("bad"), b"{"))
    driver.restart()
    assert driver.init("good") == (producer.producer_id, producer.epoch + 1)
    assert "'bad'" in caplog.text


@pytest.mark.parametrize("name", ["a/b", ".", "..", "ü", "%", " "])
def test_any_name_is_a_path(name: str) -> None:
    path = record_path(name)
    assert unescape(path.removeprefix(ROOT)) == name
    assert path.count("/") == 2

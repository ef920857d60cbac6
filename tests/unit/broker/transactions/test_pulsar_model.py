"""One of Pulsar's transactions as it is stored, and what it may write to."""

import json

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.pending_acks import no_offsets
from magnetar.broker.transactions.pulsar_model import (
    RANGE_BYTES,
    RECORD_BYTES_MAX,
    ROOT,
    PulsarStatus,
    PulsarTransaction,
)
from magnetar.ledger.cursor_store import CursorKey
from magnetar.metadata.store import VALUE_BYTES_MAX

NOW_MS = 1_700_000_000_000
STORED = (
    b'{"version":1,"owner":"User:alice","timeout_ms":60000,"status":"OPEN","started_ms":1700000000000,'
    b'"partitions":[["a",1],["b",0]],"acks":[["s","a",1,"id of a",[[0,5],[7,8]]],["s","b",0,"id of b",[]]]}'
)


def filled() -> PulsarTransaction:
    one = PulsarTransaction(7, "User:alice", 60_000, NOW_MS, 5.0)
    one.partitions = {("b", 0), ("a", 1)}
    some = no_offsets()
    some.ack_individual([(0, 5), (7, 8)])
    one.acks[CursorKey("s", "a", 1)] = "id of a", some
    one.acks[CursorKey("s", "b", 0)] = "id of b", no_offsets()
    return one


def acknowledged_by(one: PulsarTransaction) -> dict[CursorKey, tuple[str, list[Range]]]:
    return {key: (topic_id, some.ranges) for key, (topic_id, some) in one.acks.items()}


def test_the_bytes_of_a_record() -> None:
    assert filled().path == "/pulsar-transactions/7"
    assert filled().encode() == STORED
    assert filled().epoch == 0, "its markers in the log say so, whichever version has written them"


@pytest.mark.parametrize("status", list(PulsarStatus))
def test_a_start_finds_what_was_stored(status: PulsarStatus) -> None:
    before = filled()
    before.status = status
    found = PulsarTransaction.decode(before.path, before.encode(), NOW_MS + 2500, 100.0)
    assert (found.producer_id, found.owner, found.timeout_ms, found.started_ms) == (
        7,
        "User:alice",
        60_000,
        NOW_MS,
    )
    assert (found.status, found.partitions) == (status, before.partitions)
    assert acknowledged_by(found) == acknowledged_by(before)
    assert found.began_s == 97.5, "it has been open for two seconds and a half"
    assert found.is_open == (status is PulsarStatus.OPEN)
    assert found.may_write("a", 1) == found.is_open, "its record has the partition"
    assert found.stored_changes == found.changes, "nothing is left to be written"
    assert found.ending is None
    assert not found.lock.locked()


def test_a_transaction_that_began_in_the_future_has_been_open_for_no_time() -> None:
    """The clock of the day may have been set back."""
    assert PulsarTransaction.decode(f"{ROOT}7", STORED, NOW_MS - 5000, 100.0).began_s == 100.0


def test_a_partition_may_be_written_to_when_a_record_that_has_it_is_durable() -> None:
    one = filled()
    assert one.is_open
    assert one.stored_changes < one.changes, "it has to be written"
    assert not one.may_write("a", 1)
    one.stored(one.changes, frozenset({("a", 1)}))
    assert one.stored_changes == one.changes
    assert one.may_write("a", 1)
    assert not one.may_write("a", 0)
    assert not one.may_write("b", 0)
    one.status = PulsarStatus.COMMITTING
    assert not one.may_write("a", 1), "its markers are being written"


@pytest.mark.parametrize("name", list(json.loads(STORED)))
@pytest.mark.parametrize("value", [None, "no number", [7]])
def test_a_record_that_lacks_something_is_damaged(name: str, value: object) -> None:
    record = json.loads(STORED)
    if name != "owner":  # any text is one
        with pytest.raises(EntryCorrupt):
            PulsarTransaction.decode(f"{ROOT}7", json.dumps({**record, name: value}).encode(), NOW_MS, 0.0)
    del record[name]
    with pytest.raises(EntryCorrupt, match="malformed"):
        PulsarTransaction.decode(f"{ROOT}7", json.dumps(record).encode(), NOW_MS, 0.0)


def test_records_of_other_versions_and_paths_are_not_read() -> None:
    with pytest.raises(EntryCorrupt, match="version 2, not 1"):
        PulsarTransaction.decode(f"{ROOT}7", STORED.replace(b'"version":1', b'"version":2'), NOW_MS, 0.0)
    with pytest.raises(EntryCorrupt, match="malformed"):
        PulsarTransaction.decode(f"{ROOT}seven", STORED, NOW_MS, 0.0)
    with pytest.raises(EntryCorrupt, match="malformed"):
        PulsarTransaction.decode(f"{ROOT}7", STORED[:-1], NOW_MS, 0.0)


def test_a_record_leaves_room_for_its_end() -> None:
    longest = max(len(status.value) for status in PulsarStatus) - len("OPEN")
    assert RECORD_BYTES_MAX + longest < VALUE_BYTES_MAX


def test_there_is_room_up_to_the_last_byte_and_what_was_promised_counts() -> None:
    room = RECORD_BYTES_MAX - len(STORED)
    assert not filled().has_room(room + 1)
    one = filled()
    assert one.has_room(room - 10)
    assert not one.has_room(11), "nothing has changed: it is not measured again"
    assert one.has_room(10)
    assert not one.has_room(1)
    one.partitions = set()
    one.changes += 1
    assert one.has_room(1), "it has become smaller"


def test_a_range_of_the_largest_offsets_has_its_room() -> None:
    largest = (1 << 63) - 1
    assert len(json.dumps([[largest - 1, largest]], separators=(",", ":"))) <= RANGE_BYTES
    assert not filled().is_leaving

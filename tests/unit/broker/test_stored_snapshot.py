"""Of a partition's snapshot only what the metadata store does not have is written."""

from magnetar.broker.log import producer_snapshots
from magnetar.broker.log.producer_snapshots import HEAD, Snapshot
from magnetar.broker.log.producer_state import ProducerStates
from magnetar.broker.log.stored_snapshot import StoredSnapshot


def test_all_of_a_first_snapshot_is_written_and_later_only_what_differs() -> None:
    stored = StoredSnapshot({})
    assert stored.unstored({"": b"head", "/a": b"1"}) == ({"": b"head", "/a": b"1"}, [])
    stored.note({"": b"head", "/a": b"1"})
    assert stored.unstored({"": b"head", "/a": b"1"}) == ({}, [])
    assert stored.unstored({"": b"head", "/a": b"2", "/b": b"3"}) == ({"/a": b"2", "/b": b"3"}, [])
    assert stored.unstored({"": b"HEAD"}) == ({"": b"HEAD"}, ["/a"])


def test_only_what_was_noted_counts_as_stored() -> None:
    values = {"": b"head"}
    stored = StoredSnapshot(values)
    assert stored.unstored({"": b"other"})[0]
    assert not stored.unstored({"": b"head"})[0], "a snapshot that was not stored is not noted"
    values[""] = b"changed"
    assert not stored.unstored({"": b"head"})[0]


def test_it_covers_the_log_as_far_as_its_head_says_and_a_damaged_one_covers_nothing() -> None:
    good = producer_snapshots.encode(Snapshot(ProducerStates().encode(7), {}))
    assert StoredSnapshot(good).covered == 7
    assert StoredSnapshot({}).covered == 0
    assert StoredSnapshot(good | {HEAD: good[HEAD][:-1]}).covered == 0

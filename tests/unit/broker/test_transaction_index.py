"""The open and aborted transactions of a partition, against a model that keeps everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.log.aborted_index import AbortedIndex
from magnetar.broker.log.model import AbortedRange
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import end_transaction_marker, is_intact, marker_commits, read_header


def test_a_transaction_is_undecided_until_its_marker_is_durable() -> None:
    index = TransactionIndex()
    index.began(7, 10)
    index.began(7, 12)
    assert index.last_stable_offset(20) == 10
    assert (index.first_offset(7), index.first_offset(8)) == (10, -1)
    index.ended(7, 20, committed=True)
    assert index.last_stable_offset(20) == 10, "the marker at 20 is not below the high watermark yet"
    assert index.last_stable_offset(21) == 21
    assert index.aborted_between(0, 100) == []


def test_an_aborted_transaction_is_shown_to_readers_that_reach_into_it() -> None:
    index = TransactionIndex()
    index.began(7, 10)
    index.began(8, 11)
    index.ended(8, 15, committed=False)
    index.ended(7, 16, committed=False)
    eight, seven = AbortedRange(8, 11, 15), AbortedRange(7, 10, 16)
    assert index.aborted_between(0, 10) == []
    assert index.aborted_between(0, 11) == [seven]
    assert index.aborted_between(15, 20) == [eight, seven]
    assert index.aborted_between(16, 20) == [seven]
    assert index.aborted_between(17, 20) == []
    index.forget_below(16)
    assert index.aborted_between(0, 20) == [seven]


def test_a_failed_marker_leaves_its_transaction_open() -> None:
    index = TransactionIndex()
    index.began(7, 10)
    index.ended(7, 12, committed=False)
    index.forget_from(12)
    assert index.is_open(7)
    assert index.last_stable_offset(12) == 10
    assert index.aborted_between(0, 20) == []
    index.forget_from(10)
    assert not index.is_open(7)


def test_the_oldest_open_one_is_found_after_markers_that_failed_and_after_a_restart() -> None:
    index = TransactionIndex()
    for producer_id, offset in ((7, 10), (8, 11), (9, 12)):
        index.began(producer_id, offset)
    index.ended(7, 13, committed=True)
    index.forget_from(13)
    assert index.last_stable_offset(20) == 10
    again, _ = TransactionIndex.decode(*_stored(index))
    assert again.last_stable_offset(20) == 10
    index.ended(8, 20, committed=True)
    assert index.last_stable_offset(21) == 10


def _stored(index: TransactionIndex) -> tuple[bytes, int, dict[int, bytes]]:
    snapshot, blocks = index.encode()
    return snapshot, 0, blocks


_ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=30)


@given(_ROWS, st.integers(0, 60), st.integers(1, 20))
def test_questions_about_single_entries_are_answered_as_by_the_list(
    rows: list[tuple[int, int]], offset: int, count: int
) -> None:
    index = AbortedIndex()
    for marker, (producer_id, length) in enumerate(rows, 30):
        index.add(AbortedRange(producer_id, marker - length, marker))
    found = index.between(offset, offset + count)
    assert index.has_any(offset, offset + count) == bool(found)
    for producer_id in range(4):
        mine = [one for one in found if one.producer_id == producer_id]
        assert index.has(producer_id, offset, offset + count) == bool(mine)
        assert index.between(offset, offset + count, {producer_id}) == mine


_STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["batch", "commit", "abort"])), max_size=40)


@given(_STEPS, st.integers(0, 40))
def test_it_agrees_with_a_model_also_after_a_restart_from_a_snapshot(
    steps: list[tuple[int, str]], restart_at: int
) -> None:
    index = TransactionIndex()
    began: dict[int, int] = {}
    aborted: list[AbortedRange] = []
    for offset, (producer_id, what) in enumerate(steps):
        if offset == restart_at:
            head, blocks = index.encode()
            index = TransactionIndex.decode(b"xx" + head, 2, blocks)[0]
        if what == "batch":
            index.began(producer_id, offset)
            began.setdefault(producer_id, offset)
        else:
            index.ended(producer_id, offset, committed=what == "commit")
            first = began.pop(producer_id, None)
            if first is not None and what == "abort":
                aborted.append(AbortedRange(producer_id, first, offset))
        end = offset + 1
        assert index.last_stable_offset(end) == min(began.values(), default=end)
        for begin in range(end + 1):
            expected = [one for one in aborted if one.last_offset >= begin and one.first_offset < end]
            assert index.aborted_between(begin, end) == expected


def test_a_damaged_snapshot_is_said() -> None:
    index = TransactionIndex()
    index.began(1, 2)
    index.began(3, 4)
    index.ended(3, 5, committed=False)
    snapshot, blocks = index.encode()
    for size in range(len(snapshot)):
        with pytest.raises(EntryCorrupt):
            TransactionIndex.decode(snapshot[:size], 0, blocks)
    with pytest.raises(EntryCorrupt):
        TransactionIndex.decode(b"\x09" + snapshot[1:], 0, blocks)
    with pytest.raises(EntryCorrupt):
        TransactionIndex.decode(snapshot, 0, {})
    for size in range(len(blocks[0])):
        with pytest.raises(EntryCorrupt):
            TransactionIndex.decode(snapshot, 0, {0: blocks[0][:size]})


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_the_control_batch_that_clients_expect(commit: bool) -> None:
    batch = memoryview(end_transaction_marker(77, 3, 9, 1_700_000_000_000, commit=commit))
    header = read_header(batch)
    assert is_intact(batch, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    (record,) = read_records(batch, header)
    assert record.key == bytes([0, 0, 0, 1 if commit else 0])  # version, type: KIP-98
    assert record.value == bytes([0, 0, 0, 0, 0, 9])  # version, coordinator epoch
    assert marker_commits(batch) is commit

"""The record of decided batches: any list comes back, and half of one decides nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.kafka.groups import METADATA_BYTES_MAX
from magnetar.pipelines.connector.write.decisions import (
    NOTES_MAX,
    NOTHING_DECIDED,
    Decision,
    TaskTransaction,
    make_notes,
    parse_notes,
)
from magnetar.pipelines.connector.write.errors import SinkError

TRANSACTIONS = st.lists(
    st.builds(
        TaskTransaction,
        st.integers(0, 1 << 20),
        st.integers(0, (1 << 63) - 1),
        st.integers(0, 0x7FFF),
        st.integers(0, 1 << 40),
    ),
    max_size=50,
    unique_by=lambda one: one.task,
)


@given(st.integers(0, 1 << 62), st.booleans(), TRANSACTIONS)
def test_what_was_recorded_is_read(batch_id: int, is_finished: bool, made: list[TaskTransaction]) -> None:
    decision = Decision(batch_id, is_finished, tuple(sorted(made)))
    notes = make_notes(decision)
    assert all(len(note) <= METADATA_BYTES_MAX for note in notes.values())
    assert parse_notes(notes) == decision


def large(batch_id: int, tasks: int = 1000) -> Decision:
    made = tuple(TaskTransaction(task, 10**15 - 7919 * task, 300, 10**6) for task in range(tasks))
    return Decision(batch_id, False, made)


def test_nothing_is_decided_at_first() -> None:
    assert parse_notes({}) == NOTHING_DECIDED


def test_many_tasks_take_several_notes_and_too_many_are_refused() -> None:
    notes = make_notes(large(3))
    assert 1 < len(notes) <= NOTES_MAX
    assert parse_notes(notes) == large(3)
    with pytest.raises(SinkError, match="too many"):
        make_notes(large(3, 10_000))


def test_the_newest_of_what_is_there_counts() -> None:
    older, newer = make_notes(large(3)), make_notes(Decision(4))
    assert parse_notes({**older, **newer}) == Decision(4)


def test_half_a_decision_decides_nothing_and_says_that_all_before_was_finished() -> None:
    whole = make_notes(large(4))
    for missing in whole:
        half = {index: note for index, note in whole.items() if index != missing}
        assert parse_notes(half) == Decision(3)
        assert parse_notes({**make_notes(large(3)), **half}).batch_id == 3


@pytest.mark.parametrize(
    "note",
    ["", "hello", "2 4 D 0/1 00000000 ", "1 4 X 0/1 00000000 ", "1 4 D 1/1 00000000 ", "1 4 D 0/1 00000001 ",
     "1 4 D 0/1 00000000 !!", "1 4 D 0/1 d202ef8d AA=="],
)  # fmt: skip
def test_what_is_no_note_of_ours_is_refused(note: str) -> None:
    with pytest.raises(SinkError, match="record of decided batches"):
        parse_notes({0: note})

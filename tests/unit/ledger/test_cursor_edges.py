"""A cursor with holes asked at every offset, and its limits and stored form at their edges, as numbers."""

import random
import struct
import sys
from types import FrameType
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.cursor import Counted, Cursor

SPAN = 24
SEED = 20261122
LARGEST = 2**63 - 1


def runs(offsets: set[int]) -> list[tuple[int, int]]:
    """The half-open ranges that these offsets make."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def test_a_cursor_with_holes_answers_as_a_set_of_offsets_does() -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        cursor, done = Cursor(), set[int]()
        for _ in range(rng.randrange(1, 8)):
            low = rng.randrange(SPAN)
            high = rng.randrange(low, min(low + 6, SPAN)) + 1
            cursor.ack_individual([(low, high)])
            done |= set(range(low, high))
        left = set(range(SPAN + 2)) - done
        assert cursor.mark_delete == min(left), SEED
        assert cursor.ranges == [run for run in runs(done) if run[0] > cursor.mark_delete]
        assert cursor.has_holes == bool(cursor.ranges)
        for start in range(SPAN + 1):
            assert cursor.next_unacknowledged(start) == min(offset for offset in left if offset >= start)
            for end in range(SPAN + 1):
                between = {offset for offset in left if start <= offset < end}
                assert cursor.unacknowledged(start, end) == runs(between), (SEED, start, end)
                assert cursor.backlog(end, start) == len(between), (SEED, start, end)
        assert cursor.backlog(SPAN) == len(left & set(range(SPAN)))


def test_what_is_taken_back_is_acknowledged_no_more_and_all_else_stays() -> None:
    rng = random.Random(SEED)
    for _ in range(2000):
        done = {offset for offset in range(SPAN) if rng.random() < 0.6}
        back = {offset for offset in range(SPAN) if rng.random() < 0.3}
        cursor = Cursor(mark_delete=-1)
        cursor.ack_individual(runs(done))
        cursor.take_back(runs(back))
        assert cursor.ranges == runs(done - back), (SEED, done, back)
        assert cursor.mark_delete == -1


def test_ranges_that_are_taken_back_may_touch_each_other() -> None:
    cursor = Cursor(mark_delete=-1)
    cursor.ack_individual([(0, 9), (12, 15)])
    cursor.take_back([(1, 2), (2, 4), (8, 9), (9, 13)])
    assert cursor.ranges == [(0, 1), (4, 8), (13, 15)]


def test_what_is_acknowledged_again_changes_nothing() -> None:
    cursor = Cursor(mark_delete=3)
    cursor.ack_individual([(5, 8)])
    for again in ((0, 3), (1, 2), (5, 8), (5, 6), (7, 8), (6, 7)):
        assert not cursor.ack_individual([again]), again
    assert (cursor.mark_delete, cursor.ranges) == (3, [(5, 8)])


def test_a_new_cursor_has_acknowledged_nothing_and_says_nothing() -> None:
    cursor = Cursor()
    assert (cursor.mark_delete, cursor.leader_epoch, cursor.commit_timestamp_ms) == (0, -1, 0)
    assert cursor.encode()[24:32] == b"\xff" * 8, "it does not expire"


def test_a_negative_commit_is_given_back_until_another_one_and_moves_nothing() -> None:
    cursor = Cursor(mark_delete=5)
    cursor.ack_individual([(7, 9)])
    for wish in (-2, -1):
        cursor.commit(wish)
        assert (cursor.committed_offset, cursor.mark_delete, cursor.ranges) == (wish, 5, [(7, 9)])
    assert Cursor.decode(cursor.encode()).committed_offset == -1
    cursor.forget_wish()
    assert cursor.committed_offset == 5
    cursor.commit(-1)
    cursor.commit(5)
    assert (cursor.committed_offset, cursor.ranges) == (5, [(7, 9)]), (
        "on the way forward nothing is forgotten"
    )
    cursor.commit(0)
    assert (cursor.committed_offset, cursor.ranges) == (0, [])


@pytest.mark.parametrize("expires", [None, 0, 1])
def test_when_it_expires_is_stored(expires: int | None) -> None:
    assert Cursor.decode(Cursor(expire_timestamp_ms=expires).encode()).expire_timestamp_ms == expires


def test_what_fits_is_stored_and_one_more_is_refused() -> None:
    for fits, too_much in (
        (Cursor(metadata="x" * 32_767), Cursor(metadata="x" * 32_768)),
        (
            Cursor(properties={str(number): "" for number in range(256)}),
            Cursor(properties={str(number): "" for number in range(257)}),
        ),
        (Cursor(properties={"x" * 1023: "y" * 1023}), Cursor(properties={"x": "y" * 1024})),
    ):
        assert Cursor.decode(fits.encode()) == fits
        with pytest.raises(ValueError, match="too large"):
            too_much.encode()


def test_twenty_thousand_ranges_are_stored() -> None:
    cursor = Cursor()
    cursor.ack_individual((2 * number + 1, 2 * number + 2) for number in range(20_002))
    assert Cursor.decode(cursor.encode()).ranges == cursor.ranges[:20_000]


def test_four_thousand_counts_are_stored_each_up_to_what_kafka_can_say() -> None:
    counted = [Counted(2 * number, 2 * number + 1, 1) for number in range(4_001)]
    counted[:2] = [Counted(0, 1, 32_767), Counted(2, 3, 32_768)]
    found = Cursor.decode(Cursor(counted=tuple(counted)).encode()).counted
    assert found[:2] == (Counted(0, 1, 32_767), Counted(2, 3, 32_767))
    assert found[2:] == tuple(counted[2:4_000])


@pytest.mark.parametrize("gap", [1, 127, 128, 129, 2**14, 2**49, 2**62])
def test_the_largest_positions_are_read_back(gap: int) -> None:
    cursor = Cursor(mark_delete=LARGEST - gap - 1)
    cursor.ack_individual([(LARGEST - 1, LARGEST)])
    assert Cursor.decode(cursor.encode()) == cursor
    end = Cursor()
    end.ack_cumulative(LARGEST)
    assert Cursor.decode(end.encode()).mark_delete == LARGEST


def stored(mark_delete: int, ranges: bytes, count: int, tail: bytes = b"") -> bytes:
    """A cursor with these numbers in it, well summed."""
    body = struct.pack(">BBBBqiqqH", 0xC5, 1, 0, 0, mark_delete, -1, 0, -1, 0) + struct.pack(">HI", 0, count)
    body += ranges + tail
    return body + struct.pack(">I", crc32c(body))


def test_what_no_cursor_can_have_written_is_damage() -> None:
    assert Cursor.decode(stored(5, b"\x01\x01", 1)).ranges == [(6, 7)]
    longest = b"\xff" * 8 + b"\x7f"  # 2^63 - 1
    for value in (
        stored(5, b"\x01\x01", 1, tail=b"\0"),
        stored(5, b"", 0, tail=b"\x01\x01"),
        stored(-1, b"", 0),
        stored(-5, b"\x01\x01", 1),
        stored(0, longest + b"\x01", 1),
        stored(LARGEST, b"\x01\x01", 1),
        stored(5, b"\x00\x01", 1),
        stored(5, b"\x01\x00", 1),
        stored(5, b"\x80" * 9 + b"\x01" + b"\x01", 1),
        stored(5, b"\x80\x00\x01", 1),
        stored(5, b"\x81" + b"\x80" * 9 + b"\x00" + b"\x01", 1),
    ):
        with pytest.raises(EntryCorrupt, match="malformed"):
            Cursor.decode(value)


def test_the_backlog_behind_very_many_ranges_takes_few_steps() -> None:
    """Half a million ranges were looked at one by one, for each look at a subscription's numbers: 0.12 s."""
    cursor = Cursor()
    cursor.ack_individual((2 * number + 1, 2 * number + 2) for number in range(5_000))
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        backlog = cursor.backlog(10_001, 0)
    finally:
        sys.settrace(None)
    assert backlog == 5_001
    assert lines < 20

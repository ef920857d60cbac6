"""The cursor against a plain set of offsets, and its stored form against bytes written down here."""

import struct
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.cursor import (
    COUNTS_STORED_MAX,
    METADATA_BYTES_MAX,
    OFFSET_MAX,
    PROPERTY_BYTES_MAX,
    PROPERTY_COUNT_MAX,
    RANGES_STORED_MAX,
    TIMES_STORED_MAX,
    Counted,
    Cursor,
)
from magnetar.metadata.store import VALUE_BYTES_MAX

SPAN = 64
offsets = st.integers(0, SPAN)
ranges = st.tuples(offsets, offsets).filter(lambda pair: pair[0] < pair[1])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("individual"), st.lists(ranges, max_size=4)),
        st.tuples(st.just("cumulative"), offsets),
        st.tuples(st.just("reset"), offsets),
        st.tuples(st.just("commit"), offsets),
    ),
    max_size=30,
)


def model_prefix(done: set[int]) -> int:
    return next(offset for offset in range(SPAN + 2) if offset not in done)


@given(operations, st.integers(0, SPAN), st.integers(0, SPAN))
def test_cursor_behaves_like_a_set_of_acknowledged_offsets(
    steps: list[tuple[str, object]], end: int, log_start: int
) -> None:
    cursor, done = Cursor(), set[int]()
    for name, argument in steps:
        before = set(done)
        if name == "individual":
            assert isinstance(argument, list)
            changed = cursor.ack_individual(argument)
            done |= {offset for low, high in argument for offset in range(low, high)}
            assert changed == (done != before)
        else:
            assert isinstance(argument, int)
            if name == "cumulative":
                done |= set(range(argument))
                assert cursor.ack_cumulative(argument) == (done != before)
            elif name == "reset" or argument < model_prefix(done):
                done = set(range(argument))
                (cursor.reset if name == "reset" else cursor.commit)(argument)
            else:
                done |= set(range(argument))
                cursor.commit(argument)
        assert cursor.mark_delete == model_prefix(done)
    assert {offset for offset in range(SPAN + 1) if cursor.is_acknowledged(offset)} == done - {SPAN + 1}
    assert cursor.backlog(end, log_start) == len(set(range(log_start, end)) - done)
    assert cursor.next_unacknowledged(end) == next(o for o in range(end, SPAN + 2) if o not in done)
    left = cursor.unacknowledged(log_start, end)
    assert {offset for low, high in left for offset in range(low, high)} == set(range(log_start, end)) - done
    assert all(before[1] < after[0] for before, after in pairwise(left))
    flat = [bound for pair in cursor.ranges for bound in pair]
    assert flat == sorted(set(flat))
    assert not flat or flat[0] > cursor.mark_delete
    assert Cursor.decode(cursor.encode()) == cursor
    assert cursor.copy() == cursor


def test_a_copy_shares_nothing_with_its_original() -> None:
    cursor = Cursor(properties={"a": "1"})
    cursor.ack_individual([(5, 6)])
    copy = cursor.copy()
    copy.ack_individual([(8, 9)])
    copy.properties["b"] = "2"
    assert cursor.ranges == [(5, 6)]
    assert cursor.properties == {"a": "1"}


def test_stored_form_of_version_1_is_what_the_format_says() -> None:
    cursor = Cursor(
        mark_delete=300,
        metadata="hé",
        leader_epoch=7,
        commit_timestamp_ms=1_700_000_000_000,
        expire_timestamp_ms=1_700_000_060_000,
        holds_data=True,
        properties={"k": "v"},
    )
    cursor.ack_individual([(301, 302), (500, 700)])
    body = bytes.fromhex(
        "c5 01 01 00"
        " 00 00 00 00 00 00 01 2c"
        " 00 00 00 07"
        " 00 00 01 8b cf e5 68 00"
        " 00 00 01 8b cf e6 52 60"
        " 00 03 68 c3 a9"
        " 00 01 00 01 6b 00 01 76"
        " 00 00 00 02 01 01 c6 01 c8 01"
    )
    golden = body + struct.pack(">I", crc32c(body))
    assert golden[-4:].hex() == "5adfc116"
    assert cursor.encode() == golden
    assert Cursor.decode(golden) == cursor


def test_stored_form_of_version_2_is_what_the_format_says() -> None:
    cursor = Cursor(
        mark_delete=300, counted=(Counted(300, 301, 2), Counted(301, 303, 1), Counted(500, 700, 300))
    )
    cursor.ack_individual([(310, 311)])
    body = bytes.fromhex(
        "c5 02 00 00"
        " 00 00 00 00 00 00 01 2c"
        " ff ff ff ff"
        " 00 00 00 00 00 00 00 00"
        " ff ff ff ff ff ff ff ff"
        " 00 00"
        " 00 00"
        " 00 00 00 01 0a 01"
        " 00 00 00 03 01 01 02 01 02 01 c6 01 c8 01 ac 02"
    )
    golden = body + struct.pack(">I", crc32c(body))
    assert cursor.encode() == golden
    assert Cursor.decode(golden) == cursor


def test_counts_of_what_is_acknowledged_are_not_stored() -> None:
    cursor = Cursor(mark_delete=10, counted=(Counted(5, 10, 1), Counted(10, 14, 2)))
    assert Cursor.decode(cursor.encode()).counted == (Counted(10, 14, 2),)
    cursor.ack_cumulative(12)
    assert Cursor.decode(cursor.encode()).counted == (Counted(12, 14, 2),)
    cursor.ack_cumulative(14)
    assert Cursor.decode(cursor.encode()).counted == ()
    assert cursor.encode()[1] == 1, "the version before reads it"


def test_counts_go_with_the_position_that_they_are_of() -> None:
    cursor = Cursor(mark_delete=10, counted=(Counted(10, 14, 2),))
    assert cursor.copy() == cursor
    cursor.commit(12)
    assert cursor.counted
    cursor.commit(11)
    assert cursor.counted == ()


@pytest.mark.parametrize(
    "tail", [b"\x00\x01\x01", b"\x01\x00\x01", b"\x01\x01\x00", b"\x01\x01", b"\xff" * 8 + b"\x7f\x01\x01"]
)
def test_counts_that_no_cursor_can_have_written_are_damage(tail: bytes) -> None:
    body = bytearray(Cursor(mark_delete=5).encode()[:-4])
    body[1] = 2
    body += struct.pack(">I", 1) + tail
    with pytest.raises(EntryCorrupt, match="malformed"):
        Cursor.decode(bytes(body) + struct.pack(">I", crc32c(body)))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_reported_as_damage(value: bytes) -> None:
    with pytest.raises(EntryCorrupt):
        Cursor.decode(value)


@given(st.binary(max_size=60), st.integers(0, 34))
def test_well_summed_nonsense_is_reported_as_damage_or_is_a_cursor(tail: bytes, keep: int) -> None:
    body = Cursor(5, "m").encode()[:keep] + tail
    try:
        cursor = Cursor.decode(body + struct.pack(">I", crc32c(body)))
    except EntryCorrupt:
        return
    assert cursor.mark_delete >= 0


def test_every_flipped_bit_is_noticed() -> None:
    cursor = Cursor(9, "meta", 1, 2, 3, True, {"k": "v"})
    cursor.ack_individual([(20, 30)])
    value = cursor.encode()
    for index in range(len(value) * 8):
        damaged = bytearray(value)
        damaged[index // 8] ^= 1 << index % 8
        with pytest.raises(EntryCorrupt):
            Cursor.decode(bytes(damaged))


def test_a_later_format_version_is_refused() -> None:
    body = bytearray(Cursor().encode()[:-4])
    body[1] = 3
    with pytest.raises(EntryCorrupt, match="format version 3"):
        Cursor.decode(bytes(body) + struct.pack(">I", crc32c(body)))


def test_the_largest_cursor_fits_a_metadata_value_and_its_lowest_ranges_survive() -> None:
    properties = {
        f"{number:03}".ljust(PROPERTY_BYTES_MAX, "x"): "y" * PROPERTY_BYTES_MAX
        for number in range(PROPERTY_COUNT_MAX)
    }
    cursor = Cursor(0, "m" * METADATA_BYTES_MAX, properties=properties)
    step = OFFSET_MAX // (RANGES_STORED_MAX + 2)
    cursor.ack_individual(
        [(index * step, index * step + step // 2) for index in range(1, RANGES_STORED_MAX + 2)]
    )
    step = OFFSET_MAX // (COUNTS_STORED_MAX + 2)
    cursor.counted = tuple(
        Counted(at * step, at * step + step // 2, TIMES_STORED_MAX + 1) for at in range(COUNTS_STORED_MAX + 1)
    )
    value = cursor.encode()
    assert len(value) <= VALUE_BYTES_MAX
    assert Cursor.decode(value).ranges == cursor.ranges[:RANGES_STORED_MAX]
    assert Cursor.decode(value).counted == tuple(
        one._replace(times=TIMES_STORED_MAX) for one in cursor.counted[:COUNTS_STORED_MAX]
    )


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor(metadata="m" * (METADATA_BYTES_MAX + 1)),
        Cursor(properties={str(number): "" for number in range(PROPERTY_COUNT_MAX + 1)}),
        Cursor(properties={"k": "v" * (PROPERTY_BYTES_MAX + 1)}),
    ],
)
def test_what_does_not_fit_is_refused(cursor: Cursor) -> None:
    with pytest.raises(ValueError, match="too large"):
        cursor.encode()

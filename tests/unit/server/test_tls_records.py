"""Pieces for OpenSSL: whole records, as long as what comes is records."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.server.tls_records import LENGTH_MAX, PIECE_BYTES, RecordEnds

LENGTHS = st.lists(
    st.integers(0, 40) | st.sampled_from([PIECE_BYTES, PIECE_BYTES + 22, LENGTH_MAX]), min_size=1, max_size=40
)
CUTS = st.lists(st.integers(1, 6) | st.integers(1, 3 * PIECE_BYTES), min_size=1, max_size=20)


def record(length: int) -> bytes:
    return bytes((23, 3, 3, length >> 8, length & 255)) + bytes(length)


def pieces_of(ends: RecordEnds, parts: list[bytes]) -> list[tuple[int, bool]]:
    """The lengths of the pieces that all parts are given in, and whether each ends with a record."""
    found = []
    for part in parts:
        position = 0
        while position < len(part):
            end, is_whole = ends.take(memoryview(part), position)
            assert end > position
            found.append((end - position, is_whole))
            position = end
    return found


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(parts) % len(sizes)]
        parts.append(data[at : at + size])
        at += size
    return parts


@given(LENGTHS, CUTS)
def test_a_piece_is_whole_exactly_if_it_ends_with_a_record(lengths: list[int], sizes: list[int]) -> None:
    """While the ends are followed; else a piece is as long as a piece may be."""
    records = [record(length) for length in lengths]
    places, at = set(), 0
    for one in records:
        at += len(one)
        places.add(at)
    ends, position = RecordEnds(), 0
    for part in cut(b"".join(records), sizes):
        start = 0
        while start < len(part):
            end, is_whole = ends.take(memoryview(part), start)
            inside = {one for one in places if position < one <= position + end - start}
            position += end - start
            if ends.are_followed:
                assert is_whole == (position in places)
                assert is_whole == bool(inside), "a part behind a whole record is another piece"
                assert end - start <= PIECE_BYTES or len(inside) <= 1
            else:
                assert is_whole, "only OpenSSL can say"
                assert end - start == min(PIECE_BYTES, len(part) - start)
                if position in places:
                    ends.are_followed = True
            start = end
    assert position == at


def test_of_many_small_records_the_ends_are_not_looked_for() -> None:
    ends, many = RecordEnds(), memoryview(record(9) * 3000)
    assert ends.take(many, 0) == (PIECE_BYTES, True)
    assert PIECE_BYTES % len(record(9)) != 0, "the piece ends within a record"
    assert not ends.are_followed
    assert ends.take(many, PIECE_BYTES) == (2 * PIECE_BYTES, True)
    assert ends.take(many, 2 * PIECE_BYTES) == (len(many), True)
    ends.are_followed = True
    assert pieces_of(ends, [record(9), record(9)[:7]]) == [(14, True), (7, False)]


def test_few_small_records_are_followed_and_so_are_large_ones() -> None:
    few, large = record(9) * 12, record(PIECE_BYTES + 17)
    ends = RecordEnds()
    assert pieces_of(ends, [few[:-1], few[-1:], large * 5, record(3000) * 10]) == [
        (len(few) - 14, True),
        (13, False),
        (1, True),
        *[(len(large), True)] * 5,
        (5 * 3005, True),
        (5 * 3005, True),
    ]
    assert ends.are_followed
    ends.take(memoryview(record(9) * 13), 0)
    assert not ends.are_followed


def test_how_long_records_are_is_not_judged_by_the_rest_of_one() -> None:
    ends, large = RecordEnds(), record(10_000)
    assert ends.take(memoryview(large[:100]), 0) == (100, False)
    assert ends.take(memoryview(large[100:] + record(9) * 13), 0) == (9_905 + 13 * 14, True)
    assert not ends.are_followed


def test_a_record_that_ends_where_the_data_ends_leaves_nothing_open() -> None:
    ends, data = RecordEnds(), record(100)
    assert pieces_of(ends, [data[:3], data[3:50], data[50:], data]) == [
        (3, False),
        (47, False),
        (len(data) - 50, True),
        (len(data), True),
    ]


def test_what_is_no_record_goes_to_openssl_as_it_is() -> None:
    for wrong in (b"GET / HTTP/1.1\r\n", bytes((23, 3, 3)) + (LENGTH_MAX + 1).to_bytes(2, "big")):
        good = record(9)
        assert pieces_of(RecordEnds(), [good, wrong, wrong, b"x"]) == [
            (len(good), True),
            (len(wrong), True),
            (len(wrong), True),
            (1, True),
        ]

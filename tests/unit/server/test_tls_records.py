"""Pieces for OpenSSL: whole records, as long as what comes is records."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.server.tls_records import LENGTH_MAX, PIECE_BYTES, RecordEnds

LENGTHS = st.lists(
    st.integers(0, 40) | st.sampled_from([PIECE_BYTES, PIECE_BYTES + 22, LENGTH_MAX]), min_size=1, max_size=12
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
    records = [record(length) for length in lengths]
    ends, at = set(), 0
    for one in records:
        at += len(one)
        ends.add(at)
    position = 0
    for size, is_whole in pieces_of(RecordEnds(), cut(b"".join(records), sizes)):
        inside = {one for one in ends if position < one <= position + size}
        position += size
        assert is_whole == (position in ends)
        assert is_whole == bool(inside), "a part behind a whole record is another piece"
        assert size <= PIECE_BYTES or len(inside) <= 1
    assert position == at


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

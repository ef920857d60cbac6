"""Bundles are the ranges that Pulsar has, and each position is in exactly one of them."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.cluster.bundles import LAST, bundle_at, bundles_of, position_of

POSITIONS = st.integers(0, LAST)
COUNTS = st.integers(1, 1024)


def test_ranges_are_those_that_pulsar_shows() -> None:
    assert [bundle.range for bundle in bundles_of("t/n", 4)] == [
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    ]


def test_what_is_left_over_belongs_to_the_last_range() -> None:
    first, *_, last = bundles_of("t/n", 641)
    assert first.high == (1 << 32) // 641
    assert last.low == 640 * first.high


def test_a_position_is_the_checksum_of_the_full_name() -> None:
    assert position_of("persistent://t/n/a") == crc32(b"persistent://t/n/a")


@given(COUNTS, POSITIONS | st.sampled_from([0, 1 << 31, LAST - 1, LAST]))
def test_each_position_is_in_one_range(count: int, position: int) -> None:
    assert sum(bundle.contains(position) for bundle in bundles_of("t/n", count)) == 1


@given(COUNTS, st.data(), POSITIONS)
def test_the_parts_of_a_bundle_have_its_positions_and_no_others(
    count: int, data: st.DataObject, position: int
) -> None:
    bundle = data.draw(st.sampled_from(bundles_of("t/n", count)))
    low, high = bundle.split(data.draw(st.integers(bundle.low + 1, bundle.high - 1)))
    assert low.contains(position) + high.contains(position) == bundle.contains(position)


@pytest.mark.parametrize(
    ("written", "middle"),
    [("0x00000000_0x40000000", 0x20000000), ("0xc0000000_0xffffffff", 0xDFFFFFFF)],
)
def test_the_middle_is_where_pulsar_splits(written: str, middle: int) -> None:
    assert bundle_at("t/n", written).middle == middle


@given(COUNTS, st.data())
def test_a_written_range_is_read_again(count: int, data: st.DataObject) -> None:
    bundle = data.draw(st.sampled_from(bundles_of("t/n", count)))
    assert bundle_at("t/n", bundle.range) == bundle

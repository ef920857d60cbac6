"""Keys lie where Kafka's own clients put them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipelines.connector.write.partitioner import NO_PARTITION, Partitioner, murmur2, murmur2_column
from magnetar.wire.columns.model import binary_column

# What Kafka's Java client makes of them, as signed numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=250, max_size=300), max_size=30))
def test_all_at_once_is_the_same_as_one_by_one(keys: list[bytes | None]) -> None:
    assert murmur2_column(binary_column(keys)).tolist() == [murmur2(key or b"") for key in keys]


def test_rows_of_a_column_that_does_not_begin_at_its_buffer() -> None:
    column = binary_column([b"before", b"foobar", b"21", b"behind"])
    column.offsets = column.offsets[1:4]
    assert murmur2_column(column).tolist() == [murmur2(b"foobar"), murmur2(b"21")]


def test_a_named_partition_wins_then_the_key_then_one_for_all_others() -> None:
    keys = binary_column([b"foobar", b"foobar", None, None])
    wanted = np.array([5, NO_PARTITION, NO_PARTITION, 2], np.int32)
    partitioner = Partitioner()
    seen = set()
    for _ in range(8):
        first, second, third, fourth = partitioner.assign(8, 4, keys, wanted).tolist()
        assert (first, second, fourth) == (5, (murmur2(b"foobar") & 0x7FFFFFFF) % 8, 2)
        seen.add(third)
    assert seen == set(range(8))  # one after the other

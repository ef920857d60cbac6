"""A batch of one record is what the readers of batches read."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.record_writer import single_record
from magnetar.wire.kafka.records import is_intact, read_header

content = st.none() | st.binary(max_size=300)


@given(
    content, content, st.lists(st.tuples(st.text(max_size=100), content), max_size=70), st.integers(0, 2**62)
)
def test_what_is_written_is_read(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    batch = single_record(key, value, headers, timestamp_ms)
    header = read_header(batch)
    assert is_intact(batch, header)
    assert header.batch_length + 12 == len(batch)
    [record] = read_records(batch, header)
    assert record == (0, timestamp_ms, key, value, headers)

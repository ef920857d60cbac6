"""Records with offsets as the batches of a link: what is written is what a consumer reads."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.log import linked
from magnetar.links.kafka.record import BATCH_BYTES, BATCH_RECORDS_MAX, NO_TIME, Record, batches_of
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import LOG_APPEND_TIME, is_intact, read_header

content = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), content), max_size=4)
times = st.just(NO_TIME) | st.integers(0, 2**45)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """A part of a log: offsets ascend, and some are missing."""
    offset = draw(st.integers(0, 2**60))
    found = []
    for gap in draw(st.lists(st.sampled_from((0, 0, 0, 1, 900)), max_size=40)):
        offset += gap
        found.append(
            Record(
                "t", 0, offset, draw(times), draw(content), draw(content), draw(headers), draw(st.booleans())
            )
        )
        offset += 1
    return found


def read(batches: Sequence[memoryview]) -> list[Record]:
    found = []
    for batch in batches:
        header = read_header(batch)
        assert is_intact(batch, header)
        assert header.last_offset_delta == header.record_count - 1
        stamped = bool(header.attributes & LOG_APPEND_TIME)
        found += [
            Record("t", 0, one.offset, one.timestamp_ms, one.key, one.value, one.headers, stamped)
            for one in read_records(batch, header)
        ]
    return found


@given(logs())
def test_every_offset_time_key_value_and_header_is_as_it_was(records: list[Record]) -> None:
    plain = [one._replace(headers=list(one.headers)) for one in records]
    assert read(list(batches_of(records))) == plain


@given(logs())
def test_the_server_takes_them(records: list[Record]) -> None:
    batches = list(batches_of(records))
    assert list(linked.split(memoryview(b"".join(batches)))) == batches
    newest = [read_header(one).max_timestamp_ms for one in batches]
    assert max(newest, default=NO_TIME) == max((one.timestamp_ms for one in records), default=NO_TIME)


def test_records_without_gaps_share_batches_up_to_a_size() -> None:
    small = [Record("t", 0, offset, 5, None, b"x") for offset in range(BATCH_RECORDS_MAX + 1)]
    assert [read_header(one).record_count for one in batches_of(small)] == [BATCH_RECORDS_MAX, 1]
    large = [Record("t", 0, offset, 5, None, bytes(BATCH_BYTES)) for offset in range(3)]
    assert [read_header(one).record_count for one in batches_of(large)] == [1, 1, 1]


def test_records_that_a_broker_has_stamped_share_a_batch_only_with_their_time() -> None:
    stamped = [Record("t", 0, offset, time, None, b"x", (), True) for offset, time in enumerate((5, 5, 6, 6))]
    assert [read_header(one).record_count for one in batches_of(stamped)] == [2, 2]
    mixed = [stamped[0], stamped[1]._replace(stamped=False)]
    assert [read_header(one).record_count for one in batches_of(mixed)] == [1, 1]

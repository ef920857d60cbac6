"""Columns to record batches: what kafka-python reads of them is what went in."""

from typing import Any

import numpy as np
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.columns import Columns, Producer, Wanted, decode, encode
from magnetar.wire.columns.model import binary_column, pairs_column
from magnetar.wire.kafka.records import is_intact, read_header
from tests.unit.wire.convert.records import Received, Sent, read_by_kafka, sent

from .stored import Log, expected, rows_of

CODECS = range(5)


def columns_of(records: list[Sent]) -> Columns:
    return Columns(
        len(records),
        key=binary_column([one.key for one in records]),
        value=binary_column([one.value for one in records]),
        timestamp_us=np.array([one.timestamp_ms * 1000 for one in records], np.int64),
        headers=pairs_column([[(name.encode(), value) for name, value in one.headers] for one in records]),
    )


def received(batches: list[memoryview]) -> list[Received]:
    return [one for batch in batches for one in read_by_kafka(batch)]


def sent_back(batches: list[memoryview]) -> list[Sent]:
    return [Sent(one.timestamp_ms, one.key, one.value, one.headers) for one in received(batches)]


records = st.lists(sent, max_size=9)


@given(records, st.sampled_from(CODECS))
def test_a_kafka_client_reads_what_was_encoded(records: list[Sent], codec: int) -> None:
    batches = encode(columns_of(records), codec)
    assert [tuple(one) for one in sent_back(batches)] == [
        (one.timestamp_ms, one.key, one.value, list(one.headers)) for one in records
    ]
    assert len(batches) == bool(records)
    for batch in batches:
        header = read_header(batch)
        assert is_intact(batch, header)
        assert header.record_count == header.last_offset_delta + 1 == len(records)
        assert header.max_timestamp_ms == max(one.timestamp_ms for one in records)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert header.attributes == codec


@given(records, st.sampled_from(CODECS))
def test_another_kafka_client_reads_the_same(records: list[Sent], codec: int) -> None:
    read = MemoryRecords(b"".join(encode(columns_of(records), codec, records_max=4)))
    found = []
    while read.has_next():
        batch = read.next_batch()
        assert batch.validate_crc()
        found += [(one.timestamp, one.key, one.value, list(one.headers)) for one in batch]
    assert found == [(one.timestamp_ms, one.key, one.value, list(one.headers)) for one in records]


@given(records, st.data())
def test_only_the_rows_that_are_named_are_encoded_in_their_order(
    records: list[Sent], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=12) if records else st.just([]))
    batches = encode(columns_of(records), rows=np.array(rows, np.int64))
    assert [one.value for one in sent_back(batches)] == [records[row].value for row in rows]


@given(records, st.integers(100, 2000), st.integers(1, 4))
def test_batches_end_at_their_limits(records: list[Sent], bytes_max: int, records_max: int) -> None:
    batches = encode(columns_of(records), bytes_max=bytes_max, records_max=records_max)
    assert [one.value for one in sent_back(batches)] == [one.value for one in records]
    for batch in batches:
        count = read_header(batch).record_count
        assert 1 <= count <= records_max
        assert len(batch) <= bytes_max or count == 1


@given(records, st.sampled_from(CODECS))
def test_what_was_decoded_can_be_encoded(records: list[Sent], codec: int) -> None:
    log = Log()
    for batch in encode(columns_of(records), codec, records_max=3):
        log.kafka(batch)
    wanted = Wanted(headers=True)
    first = decode(log.data, wanted).columns
    assert rows_of(first) == expected(log.rows)
    again = Log()
    for batch in encode(first, codec, records_max=2):
        again.kafka(batch)
    assert rows_of(decode(again.data, wanted).columns) == rows_of(first)


def test_a_producer_s_sequence_goes_on_from_batch_to_batch_and_begins_anew_at_its_end() -> None:
    columns = columns_of([Sent(1, None, b"v")] * 5)
    producer = Producer(7, 3, (1 << 31) - 3, transactional=True)
    headers = [read_header(batch) for batch in encode(columns, records_max=2, producer=producer)]
    assert [one.base_sequence for one in headers] == [(1 << 31) - 3, (1 << 31) - 1, 1]
    assert {(one.producer_id, one.producer_epoch, one.is_transactional) for one in headers} == {(7, 3, True)}


def test_without_a_column_there_are_nulls_and_the_time_that_was_given() -> None:
    (record,) = received(encode(Columns(1), timestamp_ms=5))
    assert (record.timestamp_ms, record.key, record.value, record.headers) == (5, None, None, [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compression": 5}, "no compression 5"),
        ({"compression": -1}, "no compression -1"),
        ({"records_max": 0}, "0 records"),
        ({"rows": np.array([1])}, "1 rows do not have"),
        ({"rows": np.array([-1])}, "1 rows do not have"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(Columns(1), **given)

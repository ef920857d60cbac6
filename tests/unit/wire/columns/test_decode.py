"""Stored records to rows: what comes out is what kafka-python reads of the same log."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.wire.columns import NOT_BATCHED, Wanted, Window, decode
from magnetar.wire.convert import covering_batch
from magnetar.wire.kafka.records import end_transaction_marker, read_header, stamp_log_append_time
from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata
from tests.unit.wire.convert.records import (
    Message,
    Sent,
    kafka_batch,
    message,
    pulsar_batch,
    pulsar_single,
    sent,
)

from .stored import NOW_MS, Log, expected, rows_of

ALL = Wanted(headers=True)
KAFKA_CODECS = range(5)
PULSAR_CODECS = (0, CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY)

kafka_entries = st.tuples(
    st.just("kafka"), st.lists(sent, min_size=1, max_size=6), st.sampled_from(KAFKA_CODECS)
)
pulsar_entries = st.tuples(
    st.just("pulsar"), st.lists(message, min_size=1, max_size=6), st.sampled_from(PULSAR_CODECS)
)
single_entries = st.tuples(st.just("single"), message, st.sampled_from(PULSAR_CODECS))
entries = st.lists(st.one_of(kafka_entries, pulsar_entries, single_entries), max_size=6)


def log_of(entries: list[Any], first_offset: int = 3) -> Log:
    log = Log(first_offset)
    for kind, content, codec in entries:
        if kind == "kafka":
            log.kafka(kafka_batch(content, codec))
        elif kind == "pulsar":
            log.pulsar(pulsar_batch(content, NOW_MS, codec))
        else:
            log.pulsar(pulsar_single(content, NOW_MS, codec))
    return log


def simple_log(count: int = 4, each: int = 3) -> Log:
    log = Log()
    for number in range(count):
        at = NOW_MS + 10 * number
        log.kafka(kafka_batch([Sent(at + index, b"k%d" % index, b"v" * index) for index in range(each)]))
    return log


# --- properties that hold for everything -----------------------------------------------------------------------------


@given(entries)
def test_rows_are_what_a_kafka_client_reads(entries: list[Any]) -> None:
    log = log_of(entries)
    decoded = decode(log.data, ALL)
    assert rows_of(decoded.columns) == expected(log.rows)
    assert decoded.consumed == len(log.data)
    assert decoded.last_offset == (log.next_offset - 1 if entries else -1)
    assert decoded.undecodable == []
    assert decoded.needs_assembly == []


@given(entries, st.integers(0, 40), st.none() | st.integers(0, 40))
def test_a_window_of_offsets_leaves_out_the_rest(entries: list[Any], begin: int, end: int | None) -> None:
    log = log_of(entries)
    rows = [one for one in log.rows if begin <= one.offset and (end is None or one.offset < end)]
    assert rows_of(decode(log.data, ALL, Window(begin, end)).columns) == expected(rows)


@given(entries, st.none() | st.integers(0, 2_000_000_000_000), st.none() | st.integers(0, 2_000_000_000_000))
def test_a_window_of_time_leaves_out_the_rest(entries: list[Any], begin: int | None, end: int | None) -> None:
    log = log_of(entries)
    rows = [
        one
        for one in log.rows
        if (begin is None or begin <= one.timestamp_ms) and (end is None or one.timestamp_ms < end)
    ]
    window = Window(from_timestamp_ms=begin, to_timestamp_ms=end)
    assert rows_of(decode(log.data, ALL, window).columns) == expected(rows)


@given(entries, st.data())
def test_a_record_that_is_cut_off_is_left(entries: list[Any], data: st.DataObject) -> None:
    log = log_of(entries)
    cut = data.draw(st.integers(0, len(log.data)))
    whole = 0
    while whole < len(log.parts) and sum(map(len, log.parts[: whole + 1])) <= cut:
        whole += 1
    decoded = decode(log.data[:cut], ALL)
    assert decoded.consumed == sum(map(len, log.parts[:whole]))
    rest = decode(log.data[decoded.consumed :], ALL)
    assert rows_of(decoded.columns) + rows_of(rest.columns) == expected(log.rows)


# --- what is not wanted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["key", "value", "offset", "timestamp", "timestamp_type", "headers", "pulsar"]
)
def test_only_what_is_wanted_is_made(name: str) -> None:
    nothing = dict.fromkeys(
        ("key", "value", "offset", "timestamp", "timestamp_type", "headers", "pulsar"), False
    )
    columns = decode(simple_log().data, Wanted(**{**nothing, name: True})).columns
    made = {
        "key": columns.key,
        "value": columns.value,
        "offset": columns.offset,
        "timestamp": columns.timestamp_us,
        "timestamp_type": columns.timestamp_type,
        "headers": columns.headers,
        "pulsar": columns.pulsar,
    }
    assert [one for one, column in made.items() if column is not None] == [name]
    assert columns.count == 12


def test_decoding_stops_behind_the_entry_with_which_it_is_enough() -> None:
    log = simple_log(5)
    decoded = decode(log.data, ALL, bytes_max=1)
    assert decoded.consumed == len(log.parts[0])
    assert decoded.last_offset == 2
    assert rows_of(decoded.columns) == expected(log.rows[:3])


# --- what has no rows ------------------------------------------------------------------------------------------------


def transactional(records: list[Sent], producer_id: int) -> bytearray:
    batch = bytearray(kafka_batch(records))
    struct.pack_into(">hiqqqh", batch, 21, 0x10, len(records) - 1, NOW_MS, NOW_MS, producer_id, 0)
    return batch


def test_aborted_records_are_left_out_of_a_committed_read_and_markers_of_every_one() -> None:
    log = Log()
    log.kafka(transactional([Sent(NOW_MS, b"a", b"1")] * 2, 7), readable=False)
    log.kafka(transactional([Sent(NOW_MS, b"b", b"1")] * 2, 8), readable=False)
    log.kafka(end_transaction_marker(7, 0, 0, NOW_MS, commit=False), readable=False)
    log.kafka(transactional([Sent(NOW_MS, b"c", b"1")], 7), readable=False)
    log.kafka(end_transaction_marker(7, 0, 0, NOW_MS, commit=True), readable=False)
    log.kafka(kafka_batch([Sent(NOW_MS, b"d", b"1")]), readable=False)

    def keys(window: Window) -> list[bytes | None]:
        return [row.key for row in rows_of(decode(log.data, ALL, window).columns)]

    aborted = [(7, 0, 4)]
    assert keys(Window(aborted=aborted)) == [b"a", b"a", b"b", b"b", b"c", b"d"]
    assert keys(Window(committed=True)) == [b"a", b"a", b"b", b"b", b"c", b"d"]
    assert keys(Window(committed=True, aborted=aborted)) == [b"b", b"b", b"c", b"d"]
    assert decode(log.data, ALL).last_offset == 7


def test_messages_of_an_aborted_transaction_of_pulsars_are_left_out_of_a_committed_read() -> None:
    log = Log()
    for least, most in ((7, 0), (8, 0), (7, 0)):
        message = Message(b"%d" % least)
        log.pulsar(pulsar_single(message, NOW_MS, txnid_least_bits=least, txnid_most_bits=most))
    log.pulsar(pulsar_single(Message(b"none"), NOW_MS))

    def values(window: Window) -> list[bytes | None]:
        return [row.value for row in rows_of(decode(log.data, ALL, window).columns)]

    aborted = [(7, 0, 1)]  # what has the id behind its marker is not of it
    assert values(Window(aborted=aborted)) == [b"7", b"8", b"7", b"none"]
    assert values(Window(committed=True, aborted=aborted)) == [b"8", b"7", b"none"]


def test_messages_that_compaction_took_out_and_markers_have_no_row() -> None:
    log = Log()
    gone = Message(b"", compacted_out=True)
    log.pulsar(pulsar_batch([gone, Message(b"stays"), gone], NOW_MS))
    log.pulsar(pulsar_batch([gone, gone], NOW_MS))
    log.pulsar(pulsar_single(Message(b"x"), NOW_MS, marker_type=10), readable=False)
    log.kafka(covering_batch(0, 3, 0, NOW_MS), readable=False)
    decoded = decode(log.data, ALL)
    assert rows_of(decoded.columns) == expected(log.rows)
    assert [row.offset for row in rows_of(decoded.columns)] == [1]
    assert decoded.last_offset == 9
    assert decoded.undecodable == []


# --- what is special -------------------------------------------------------------------------------------------------


def test_a_time_that_the_broker_stamped_is_that_of_all_records_and_said_so() -> None:
    log = Log()
    batch = bytearray(kafka_batch([Sent(5, None, b"a"), Sent(6, None, b"b")]))
    stamp_log_append_time(memoryview(batch), read_header(memoryview(batch)), NOW_MS)
    log.kafka(batch)
    log.kafka(kafka_batch([Sent(7, None, b"c")]))
    columns = decode(log.data, ALL).columns
    assert columns.timestamp_us is not None
    assert columns.timestamp_us.tolist() == [NOW_MS * 1000, NOW_MS * 1000, 7000]
    assert columns.timestamp_type is not None
    assert columns.timestamp_type.tolist() == [1, 1, 0]


def test_times_that_microseconds_cannot_say_stop_at_the_end() -> None:
    log = Log()
    batch = bytearray(kafka_batch([Sent(1, None, b"a")]))
    struct.pack_into(">q", batch, 27, (1 << 63) - 1)
    log.kafka(batch, readable=False)
    columns = decode(log.data, ALL).columns
    assert columns.timestamp_us is not None
    assert columns.timestamp_us.tolist() == [9_223_372_036_854_775_000]


def test_an_encrypted_entry_is_one_row_at_its_last_offset() -> None:
    log = Log()
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=NOW_MS, num_messages_in_batch=3)
    metadata.encryption_keys.add(key="k", value=b"sealed")
    metadata.uncompressed_size = 100
    log.pulsar(read_entry(memoryview(frame_entry(metadata, b"nobody can read this")), verify=True))
    (row,) = rows_of(decode(log.data, ALL).columns)
    assert row == expected(log.rows)[0]
    assert (row.offset, row.value) == (2, b"nobody can read this")


def chunk(number: int, payload: bytes, size: int) -> EntryView:
    facts: dict[str, Any] = {
        "uuid": "u",
        "chunk_id": number,
        "num_chunks_from_msg": 3,
        "total_chunk_msg_size": size,
    }
    return pulsar_single(Message(payload, key="k"), NOW_MS, uncompressed_size=size, **facts)


def test_a_chunked_message_is_one_row_at_the_offset_of_its_last_chunk() -> None:
    log = Log()
    log.pulsar(chunk(0, b"one ", 13), readable=False)
    log.pulsar(chunk(1, b"two ", 13), readable=False)
    log.pulsar(pulsar_single(Message(b"between"), NOW_MS), readable=False)
    log.pulsar(chunk(2, b"three", 13), readable=False)
    decoded = decode(log.data, ALL)
    assert [(row.offset, row.key, row.value) for row in rows_of(decoded.columns)] == [
        (2, None, b"between"),
        (3, b"k", b"one two three"),
    ]
    # Chunks in front of the window count, too.
    assert [row.offset for row in rows_of(decode(log.data, ALL, Window(3)).columns)] == [3]
    assert decode(log.data, ALL, Window(0, 3)).needs_assembly == []


def test_a_chunked_message_whose_first_chunks_are_elsewhere_is_named() -> None:
    log = Log(10)
    log.pulsar(chunk(1, b"two ", 13), readable=False)
    log.pulsar(chunk(2, b"three", 13), readable=False)
    decoded = decode(log.data, ALL)
    assert (decoded.columns.count, decoded.needs_assembly) == (0, [11])
    assert decode(log.data, ALL, Window(0, 11)).needs_assembly == []


def test_what_pulsar_s_clients_see_of_a_message() -> None:
    log = Log()
    log.pulsar(
        pulsar_batch(
            [Message(b"a"), Message(b"b", properties=[("x;0;null", ""), ("y", "2")], event_time_ms=5)], 77
        )
    )
    log.pulsar(pulsar_single(Message(b"c", properties=[("z", "3")]), 78))
    log.kafka(kafka_batch([Sent(9, b"k", b"d", [("h", None)]), Sent(11, b"k", b"e")]))
    pulsar = decode(log.data, Wanted(pulsar=True)).columns.pulsar
    assert pulsar is not None
    assert pulsar.ledger_id.tolist() == [9] * 5
    assert pulsar.entry_id.tolist() == [0, 0, 1, 2, 2]
    assert pulsar.batch_index.tolist() == [0, 1, NOT_BATCHED, 0, 1]
    assert pulsar.publish_time_us.tolist() == [77_000, 77_000, 78_000, 11_000, 11_000]
    assert pulsar.event_time_us.tolist() == [0, 5000, 0, 9000, 11_000]
    assert pulsar.sequence_id.tolist() == [7, 7, 7, 3, 3]
    assert [pulsar.producer_name[at] for at in range(5)] == [b"p", b"p", b"p", b"kafka", b"kafka"]
    assert [pulsar.properties[at] for at in range(5)] == [
        [],
        [("x;0;null", b""), ("y", b"2")],
        [("z", b"3")],
        [("h;0;null", b"")],
        [],
    ]


# --- what is damaged -------------------------------------------------------------------------------------------------


def test_bytes_that_are_not_what_was_stored_are_never_rows() -> None:
    data = bytearray(simple_log().data)
    data[300] ^= 1
    with pytest.raises(EntryCorrupt, match="entry 1 of ledger 9"):
        decode(data, ALL)


@pytest.mark.parametrize("body", [b"", b"\x0e\x02", b"\x0e\x02\xff\xff\xff\xff", bytes(300)])
def test_a_body_that_is_no_entry_is_not_what_was_stored(body: bytes) -> None:
    log = Log()
    log.entry(body, 1)
    with pytest.raises(EntryCorrupt):
        decode(log.data, ALL)


def test_a_length_that_no_entry_has_is_not_waited_for() -> None:
    with pytest.raises(EntryCorrupt):
        decode(b"\xff" * 40, ALL)


def test_what_cannot_be_decoded_is_named_and_the_rest_is_read() -> None:
    log = Log()
    log.kafka(kafka_batch([Sent(1, b"k", b"v")]))
    broken = bytearray(kafka_batch([Sent(1, b"k", b"v"), Sent(2, b"k", b"v")]))
    broken[61] = 0x7E  # a record that is longer than its batch
    log.kafka(broken, readable=False)
    log.pulsar(pulsar_single(Message(b"m"), NOW_MS, compression=CompressionType.ZSTD), readable=False)
    log.kafka(kafka_batch([Sent(1, b"k", b"w")]))
    decoded = decode(log.data, ALL)
    assert rows_of(decoded.columns) == expected(log.rows)
    assert [offset for offset, reason in decoded.undecodable if reason] == [1, 3]
    assert decode(log.data, ALL, Window(2, 3)).undecodable[0][0] == 1
    assert decode(log.data, ALL, Window(4)).undecodable == []


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2)])
def test_offsets_that_do_not_ascend_in_their_batch_cannot_be_decoded(deltas: tuple[int, int]) -> None:
    batch = bytearray(kafka_batch([Sent(1, b"k", b"v"), Sent(1, b"k", b"v")]))
    record_bytes = (len(batch) - 61) // 2
    batch[61 + 3] = 2 * deltas[0]
    batch[61 + record_bytes + 3] = 2 * deltas[1]
    log = Log()
    log.kafka(batch, readable=False)
    decoded = decode(log.data, ALL)
    assert (decoded.columns.count, [offset for offset, _ in decoded.undecodable]) == (0, [0])

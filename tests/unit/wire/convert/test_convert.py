"""Kafka's batches as Pulsar's entries and back: what goes in comes out, whichever client reads it."""

import base64
import random
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.compiling import CompiledModules
from magnetar.wire.convert import (
    assembled_to_kafka,
    covering_batch,
    engine,
    kafka_to_pulsar,
    load,
    plain,
    pulsar_to_kafka,
)
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.kafka.record_reader import expand
from magnetar.wire.kafka.records import COMPRESSION_MASK, CONTROL, HEADER_SIZE, is_intact, read_header
from magnetar.wire.pulsar.entry import EntryView, read_batch, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType

from .records import (
    Message,
    Sent,
    blobs,
    compress,
    kafka_batch,
    message,
    names,
    pulsar_batch,
    pulsar_single,
    read_by_kafka,
    sent,
    timestamps,
)

KAFKA_CODECS = range(5)
PULSAR_CODECS = (0, CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY)


@pytest.fixture(params=["plain", "compiled"])
def engine_in_use(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything by Python, then everything by compiled code."""
    assert load()
    if request.param == "plain":
        monkeypatch.setattr(engine, "_use_compiled", lambda size: False)
    return str(request.param)


def view_of(entry: memoryview) -> EntryView:
    return read_entry(entry, verify=True)


def messages_in(entry: memoryview) -> list[Any]:
    """(metadata, value) of each message, as protobuf reads them."""
    view = view_of(entry)
    payload = expand_pulsar(view.payload, view.metadata.compression, view.metadata.uncompressed_size)
    return list(read_batch(payload, view.num_messages))


# --- properties that hold for everything -----------------------------------------------------------------------------


@given(st.lists(sent, min_size=1, max_size=9), st.sampled_from(KAFKA_CODECS))
def test_what_kafka_sent_comes_back_from_pulsars_form(records: list[Sent], codec: int) -> None:
    batch = kafka_batch(records, codec, 5)
    back = pulsar_to_kafka(view_of(kafka_to_pulsar(batch)), 5, 3)
    header = read_header(back)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (5, 4 + len(records), 3)
    assert header.attributes == read_header(batch).attributes
    assert header.max_timestamp_ms == max(one.timestamp_ms for one in records)
    assert [tuple(one) for one in read_by_kafka(back)] == [
        (5 + index, *one) for index, one in enumerate(records)
    ]


@given(st.lists(message, min_size=1, max_size=9), timestamps, st.sampled_from(PULSAR_CODECS))
def test_what_pulsar_sent_comes_back_from_kafkas_form(
    messages: list[Message], now_ms: int, codec: int
) -> None:
    view = pulsar_batch(messages, now_ms, codec)
    batch = pulsar_to_kafka(view, 40, 0)
    back = messages_in(kafka_to_pulsar(batch))
    assert view_of(kafka_to_pulsar(batch)).metadata.compression == codec
    for (metadata, value), one in zip(back, messages, strict=True):
        assert bytes(value) == one.value
        assert (metadata.partition_key if metadata.HasField("partition_key") else None) == one.key
        assert (metadata.ordering_key if metadata.HasField("ordering_key") else None) == one.ordering_key
        assert metadata.event_time == (one.event_time_ms or now_ms)
        assert sorted(_by_name(metadata.properties)) == sorted(_numbered(one.properties))


def _by_name(pairs: Any) -> list[tuple[str, str]]:
    return [(pair.key, pair.value) for pair in pairs]


def _numbered(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Clients see a map: a name that comes again gets a number."""
    seen: dict[str, int] = {}
    out = []
    for name, value in pairs:
        earlier = seen.get(name, 0)
        seen[name] = earlier + 1
        out.append((f"{name};{earlier};text" if earlier else name, value))
    return out


@given(
    st.lists(sent, min_size=1, max_size=9),
    st.integers(-1, 1 << 42),
    st.integers(0, 1 << 42),
    st.integers(0, 4),
)
def test_compiled_messages_are_those_of_the_plain_code(
    records: list[Sent], stamped_ms: int, base_ms: int, gap: int
) -> None:
    assert load()
    batch = kafka_batch(records)
    header, data = read_header(batch), batch[HEADER_SIZE:]
    slots = len(records) + gap
    wanted = plain.messages_of(data, len(records), slots, base_ms, stamped_ms)
    found = engine.messages_of(data, header.record_count, slots, base_ms, stamped_ms, 3)
    assert bytes(found)[3:] == wanted


odd_texts = st.one_of(
    names, st.text(max_size=8), st.binary(max_size=9).map(lambda raw: base64.b64encode(raw).decode())
)


@given(
    st.lists(
        st.builds(
            Message,
            value=blobs,
            key=st.none() | odd_texts,
            key_is_base64=st.booleans(),
            ordering_key=st.none() | blobs,
            properties=st.lists(st.tuples(odd_texts, odd_texts), max_size=5),
            event_time_ms=st.just(0) | timestamps | st.integers(1 << 62, (1 << 64) - 1),
            is_null=st.booleans(),
            compacted_out=st.booleans(),
        ),
        min_size=1,
        max_size=9,
    ),
    timestamps,
)
def test_compiled_records_are_those_of_the_plain_code(messages: list[Message], now_ms: int) -> None:
    assert load()
    payload = pulsar_batch(messages).payload
    wanted = plain.records_of(payload, len(messages), now_ms)
    found = engine.records_of(payload, len(messages), now_ms, 2)
    assert found[1:] == wanted[1:]
    assert bytes(found.data)[2:] == wanted.data


# --- Kafka to Pulsar -------------------------------------------------------------------------------------------------


def test_a_record_is_a_message_with_its_key_value_time_and_headers(engine_in_use: str) -> None:
    records = [
        Sent(1_700_000_000_000, b"key", b"value", [("plain", b"text"), ("empty", b"")]),
        Sent(1_700_000_000_005, None, None),
        Sent(1_600_000_000_000, b"", b""),
        Sent(1, b"\xff\x00", b"\xff"),
    ]
    entry = kafka_to_pulsar(kafka_batch(records, base_offset=77))
    metadata = view_of(entry).metadata
    assert (metadata.producer_name, metadata.sequence_id, metadata.num_messages_in_batch) == ("kafka", 77, 4)
    assert metadata.publish_time == 1_700_000_000_005
    assert not metadata.HasField("compression")
    (one, value), (two, nothing), (three, empty), (four, binary) = messages_in(entry)
    assert (one.partition_key, bytes(value), one.event_time) == ("key", b"value", 1_700_000_000_000)
    assert _by_name(one.properties) == [("plain", "text"), ("empty", "")]
    assert not one.HasField("partition_key_b64_encoded")
    assert (two.HasField("partition_key"), two.null_value, bytes(nothing)) == (False, True, b"")
    assert (three.HasField("partition_key"), three.partition_key) == (True, "")
    assert (three.HasField("null_value"), bytes(empty)) == (False, b"")
    assert (base64.b64decode(four.partition_key), four.partition_key_b64_encoded) == (b"\xff\x00", True)
    assert bytes(binary) == b"\xff"


def test_headers_that_are_no_text_or_come_again_say_so_in_their_property_names(engine_in_use: str) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"1"),
        ("b", b"\xfe\xff"),
        ("a", b"2"),
        ("c", None),
        ("a", None),
        ("a", b"\x80"),
        ("odd;0;null", b"plain"),
    ]
    (metadata, _), *_ = messages_in(kafka_to_pulsar(kafka_batch([Sent(1, None, b"v", headers)])))
    assert _by_name(metadata.properties) == [
        ("a", "1"),
        ("b;0;base64", "/v8="),
        ("a;1;text", "2"),
        ("c;0;null", ""),
        ("a;2;null", ""),
        ("a;3;base64", "gA=="),
        ("odd;0;null;0;text", "plain"),
    ]


@pytest.mark.parametrize("count", [16, 17, 33, 500])
def test_repeated_headers_are_numbered_however_many_there_are(count: int, engine_in_use: str) -> None:
    headers: list[tuple[str, bytes | None]] = [(f"h{index % 7}", b"%d" % index) for index in range(count)]
    ((metadata, _),) = messages_in(kafka_to_pulsar(kafka_batch([Sent(1, None, b"v", headers)])))
    pairs = [(name, (value or b"").decode()) for name, value in headers]
    assert _by_name(metadata.properties) == _numbered(pairs)
    entry = kafka_to_pulsar(kafka_batch([Sent(1, None, b"v", headers)]))
    (back,) = read_by_kafka(pulsar_to_kafka(view_of(entry), 0, 0))
    assert back.headers == headers


def test_bytes_in_header_names_that_are_no_text_become_replacement_characters(engine_in_use: str) -> None:
    name = b"\xe2\x82x\xf0\x80y\xed\xa0\x80\xc3\xa4"
    body = b"\0\0\0\x01\x02v\x02" + bytes([2 * len(name)]) + name + b"\x02w"
    data = memoryview(bytes([2 * len(body)]) + body)
    messages = engine.messages_of(data, 1, 1, 5, -1, 0)
    ((metadata, _),) = read_batch(messages, 1)
    wanted = name.decode("utf-8", "surrogateescape")
    assert metadata.properties[0].key == "".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in wanted)


def test_the_last_header_can_be_the_ordering_key(engine_in_use: str) -> None:
    key = "pulsar-ordering-key"
    first, second, third = messages_in(
        kafka_to_pulsar(
            kafka_batch(
                [
                    Sent(1, None, b"v", [("a", b"1"), (key, b"\xff\x01")]),
                    Sent(1, None, b"v", [(key, b"x"), ("a", b"1")]),
                    Sent(1, None, b"v", [(key, None)]),
                ]
            )
        )
    )
    assert (first[0].ordering_key, _by_name(first[0].properties)) == (b"\xff\x01", [("a", "1")])
    assert (second[0].HasField("ordering_key"), len(second[0].properties)) == (False, 2)
    assert (third[0].HasField("ordering_key"), third[0].properties[0].key) == (False, f"{key};0;null")


def test_records_that_the_broker_stamped_have_its_time(engine_in_use: str) -> None:
    batch = kafka_batch([Sent(5, None, b"a"), Sent(9, None, b"b")])
    struct.pack_into(">h", batch, 21, 8)
    struct.pack_into(">q", batch, 35, 1_700_000_000_000)
    assert [metadata.event_time for metadata, _ in messages_in(kafka_to_pulsar(batch))] == [
        1_700_000_000_000
    ] * 2


def test_records_without_a_time_have_none_in_pulsar(engine_in_use: str) -> None:
    batch = kafka_batch([Sent(5, None, b"a")])
    struct.pack_into(">qq", batch, 27, -1, -1)
    ((metadata, _),) = messages_in(kafka_to_pulsar(batch))
    assert not metadata.HasField("event_time")
    assert view_of(kafka_to_pulsar(batch)).metadata.publish_time == 0


def test_offsets_that_compaction_took_are_messages_that_are_not_there(engine_in_use: str) -> None:
    batch = kafka_batch([Sent(5, None, b"a"), Sent(5, None, b"b")])
    raw = bytearray(batch)
    raw[-5] = 6  # the second record's offset delta: 3
    struct.pack_into(">i", raw, 23, 5)
    messages = messages_in(kafka_to_pulsar(memoryview(raw)))
    assert [(one.compacted_out, bytes(value)) for one, value in messages] == [
        (False, b"a"), (True, b""), (True, b""), (False, b"b"), (True, b""), (True, b""),
    ]  # fmt: skip


@pytest.mark.parametrize("codec", KAFKA_CODECS)
def test_compression_is_the_same_codec_as_pulsar_has_it(codec: int, engine_in_use: str) -> None:
    records = [Sent(index, b"k%d" % index, b"v" * 2000) for index in range(1, 40)]
    entry = kafka_to_pulsar(kafka_batch(records, codec))
    wanted = [0, CompressionType.ZLIB, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD][
        codec
    ]
    assert view_of(entry).metadata.compression == wanted
    assert (len(entry) < 20_000) == bool(codec)
    assert [bytes(value) for _, value in messages_in(entry)] == [b"v" * 2000] * 39


def test_a_control_batch_has_no_messages() -> None:
    with pytest.raises(WireError, match="control"):
        kafka_to_pulsar(covering_batch(0, 0, 0, 1))


# --- Pulsar to Kafka -------------------------------------------------------------------------------------------------


def test_a_message_is_a_record_with_its_key_value_time_and_properties(engine_in_use: str) -> None:
    view = pulsar_batch(
        [
            Message(b"value", "key", properties=[("a", "1"), ("ä", "ö")], event_time_ms=9),
            Message(b"", is_null=True),
            Message(b"", key=""),
            Message(b"x", key="/wA=", key_is_base64=True, ordering_key=b"\x01"),
            Message(b"x", key="no base64", key_is_base64=True),
        ],
        publish_time_ms=1_700_000_000_000,
    )
    batch = pulsar_to_kafka(view, 10, 2)
    assert [tuple(one) for one in read_by_kafka(batch)] == [
        (10, 9, b"key", b"value", [("a", b"1"), ("ä", "ö".encode())]),
        (11, 1_700_000_000_000, None, None, []),
        (12, 1_700_000_000_000, b"", b"", []),
        (13, 1_700_000_000_000, b"\xff\x00", b"x", [("pulsar-ordering-key", b"\x01")]),
        (14, 1_700_000_000_000, b"no base64", b"x", []),
    ]
    header = read_header(batch)
    assert is_intact(batch, header)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (9, 1_700_000_000_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_a_message_alone_is_a_batch_of_one_record() -> None:
    view = pulsar_single(
        Message(b"value", "key", properties=[("a", "1")], ordering_key=b"o"), 5, schema_version=b"\0"
    )
    (record,) = read_by_kafka(pulsar_to_kafka(view, 3, 0))
    assert record == (3, 5, b"key", b"value", [("a", b"1"), ("pulsar-ordering-key", b"o")])


@pytest.mark.parametrize("codec", PULSAR_CODECS)
@pytest.mark.parametrize("size", [0, 10, 70_000, 300_000, 1_100_000, 5_000_000])
def test_compressed_messages_are_compressed_as_kafka_has_it(codec: int, size: int) -> None:
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    for view in (pulsar_single(Message(value), codec=codec), pulsar_batch([Message(value)] * 2, codec=codec)):
        batch = pulsar_to_kafka(view, 0, 0)
        assert {one.value for one in read_by_kafka(batch)} == {value}
        header = read_header(batch)
        assert expand(batch[HEADER_SIZE:], header.attributes & COMPRESSION_MASK)
        assert bool(header.attributes) == bool(codec)


def test_what_cannot_be_compressed_is_stored_in_the_lz4_frame(engine_in_use: str) -> None:
    value = random.Random(1).randbytes(100_000)
    batch = pulsar_to_kafka(pulsar_batch([Message(value)], codec=CompressionType.LZ4), 0, 0)
    assert [one.value for one in read_by_kafka(batch)] == [value]


def test_messages_that_compaction_took_out_leave_their_offsets(engine_in_use: str) -> None:
    gone = Message(b"gone", compacted_out=True)
    batch = pulsar_to_kafka(pulsar_batch([gone, Message(b"a"), gone, Message(b"b"), gone]), 100, 0)
    assert [(one.offset, one.value) for one in read_by_kafka(batch)] == [(101, b"a"), (103, b"b")]
    assert read_header(batch).last_offset == 104
    nothing = read_header(pulsar_to_kafka(pulsar_batch([gone, gone]), 100, 0))
    assert (nothing.base_offset, nothing.last_offset, nothing.is_control) == (100, 101, True)


def test_what_is_encrypted_passes_with_what_it_takes_to_open_it() -> None:
    view = pulsar_batch([Message(b"a"), Message(b"b"), Message(b"c")], 8, CompressionType.ZSTD)
    key = view.metadata.encryption_keys.add(key="alice", value=b"\x01\xff")
    key.metadata.add(key="version", value="3")
    view.metadata.encryption_algo = "AES/GCM"
    view.metadata.encryption_param = b"\0" * 12
    batch = pulsar_to_kafka(view, 20, 0)
    (record,) = read_by_kafka(batch)
    assert (record.offset, record.timestamp_ms, record.value) == (22, 8, bytes(view.payload))
    assert dict(record.headers) == {
        "pulsar-encryption-algo": b"AES/GCM",
        "pulsar-encryption-param": b"\0" * 12,
        "pulsar-encryption-key.alice": b"\x01\xff",
        "pulsar-encryption-key.alice.version": b"3",
        "pulsar-compression": b"ZSTD",
        "pulsar-uncompressed-size": str(view.metadata.uncompressed_size).encode(),
        "pulsar-num-messages-in-batch": b"3",
    }
    assert (read_header(batch).base_offset, read_header(batch).last_offset) == (20, 22)


@pytest.mark.parametrize("codec", PULSAR_CODECS)
def test_the_chunks_of_a_message_are_one_record_at_the_last_ones_offset(codec: int) -> None:
    value = bytes(range(256)) * 1000
    whole = memoryview(compress(value, codec))
    third = len(whole) // 3
    pieces = [whole[:third], whole[third : 2 * third], whole[2 * third :]]
    last = pulsar_single(
        Message(bytes(pieces[2]), "k"),
        8,
        uuid="p-7",
        num_chunks_from_msg=3,
        total_chunk_msg_size=len(whole),
        chunk_id=2,
    )
    last.metadata.uncompressed_size = len(value)
    last.metadata.compression = codec  # type: ignore[assignment]
    batch = assembled_to_kafka(last, pieces, 50, 4)
    assert [tuple(one) for one in read_by_kafka(batch)] == [(50, 8, b"k", value, [])]
    with pytest.raises(WireError, match="chunks of"):
        assembled_to_kafka(last, pieces[:2], 50, 4)


def test_a_covering_batch_has_nothing_to_read_and_covers_its_offsets() -> None:
    batch = covering_batch(7, 1_000_000, 3, 55)
    header = read_header(batch)
    assert is_intact(batch, header)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (7, 1_000_000, 3)
    assert (header.attributes, header.record_count, header.max_timestamp_ms) == (CONTROL, 1, 55)
    (record,) = read_by_kafka(batch)
    assert (record.offset, record.key) == (1_000_000, b"\0\0\0\1")


# --- bytes that no client should send ------------------------------------------------------------------------------


def _zigzag(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    raw &= (1 << 64) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


@pytest.mark.parametrize("length", [(1 << 63) - 1, -(1 << 63), 1 << 62, 1 << 31, 300])
@pytest.mark.parametrize("field", range(5))
def test_lengths_beyond_the_record_are_refused(length: int, field: int, engine_in_use: str) -> None:
    """The record itself, its key, its value, its headers, a header's name."""
    fields = [_zigzag(1), b"k", _zigzag(1), b"v", _zigzag(1), _zigzag(1), b"n", _zigzag(0)]
    at = (None, 0, 2, 4, 5)[field]
    if at is not None:
        fields[at] = _zigzag(length)
    body = b"\0\0\0" + b"".join(fields)
    record = _zigzag(length if at is None else len(body)) + body
    if length < 0 and field in (1, 2):
        return  # as good as null, if the rest fits
    with pytest.raises(WireError):
        engine.messages_of(memoryview(record), 1, 1, 0, -1, 0)


def test_offsets_that_do_not_ascend_are_refused(engine_in_use: str) -> None:
    batch = kafka_batch([Sent(5, None, b"a"), Sent(5, None, b"b")])
    with pytest.raises(WireError):
        engine.messages_of(batch[HEADER_SIZE:], 2, 1, 0, -1, 0)
    raw = bytearray(batch)
    raw[-5] = 0
    with pytest.raises(WireError):
        kafka_to_pulsar(memoryview(raw))


def test_more_messages_than_pulsar_can_acknowledge_are_refused() -> None:
    raw = bytearray(kafka_batch([Sent(5, None, b"a")]))
    struct.pack_into(">i", raw, 23, 1 << 21)
    with pytest.raises(WireError, match="offsets"):
        kafka_to_pulsar(memoryview(raw))


def test_a_form_larger_than_a_batch_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load()
    monkeypatch.setattr(engine, "RECORDS_BYTES_MAX", 2000)
    headers: list[tuple[str, bytes | None]] = [("", None)] * 300
    with pytest.raises(WireError, match="other form"):
        kafka_to_pulsar(kafka_batch([Sent(1, None, None, headers)]))


@pytest.mark.parametrize("codec", PULSAR_CODECS[1:])
@pytest.mark.parametrize("claimed", [0, 1, 99, 101, 1 << 31])
def test_compressed_payloads_that_lie_about_their_size_are_refused(codec: int, claimed: int) -> None:
    view = pulsar_single(Message(b"x" * 100), codec=codec)
    view.metadata.uncompressed_size = claimed
    with pytest.raises(WireError):
        pulsar_to_kafka(view, 0, 0)


@pytest.mark.parametrize("size", [0, 1, 100, 300_000])
def test_zlib_streams_that_java_clients_leave_without_an_end_are_read(size: int) -> None:
    value = random.Random(1).randbytes(size)
    stream = zlib.compressobj()
    flushed = stream.compress(value) + stream.flush(zlib.Z_SYNC_FLUSH)
    for claimed, payload in ((size, flushed), (size, flushed if size else b"")):
        assert bytes(expand_pulsar(memoryview(payload), CompressionType.ZLIB, claimed)) == value
    for claimed in {max(size - 1, 0), size + 1} - {size}:
        with pytest.raises(WireError):
            expand_pulsar(memoryview(flushed), CompressionType.ZLIB, claimed)


def test_python_serves_until_the_compiled_code_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = CompiledModules("", [], [], "")
    monkeypatch.setattr(compiled, "start", lambda: None)  # on its way, and not there yet
    monkeypatch.setattr(engine, "_compiled", compiled)
    batch = kafka_batch([Sent(1, b"k", b"v")] * 100)
    assert len(messages_in(kafka_to_pulsar(batch))) == 100
    compiled.finished.set()  # without the modules: they cannot be loaded here
    assert len(messages_in(kafka_to_pulsar(batch))) == 100

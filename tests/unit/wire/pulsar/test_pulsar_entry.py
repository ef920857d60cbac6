"""Pulsar entries: views over what came, and nothing but WireError for what is no entry."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.pulsar.entry import (
    BATCH_MESSAGES_MAX,
    ChecksumMismatch,
    broker_metadata,
    frame_entry,
    read_batch,
    read_entry,
    split_broker_metadata,
)
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    CompressionType,
    EncryptionKeys,
    MessageMetadata,
    SingleMessageMetadata,
)


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1000, **fields)  # type: ignore[arg-type]


def batch(*payloads: bytes) -> bytes:
    out = b""
    for payload in payloads:
        single = SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
        out += struct.pack(">I", len(single)) + single + payload
    return out


SINGLE = frame_entry(metadata(event_time=900), b"payload")
BATCH = frame_entry(metadata(num_messages_in_batch=3, highest_sequence_id=9), batch(b"a", b"", b"ccc"))


def test_a_single_message() -> None:
    view = read_entry(memoryview(SINGLE), verify=True)
    assert (view.producer_name, view.sequence_id, view.highest_sequence_id) == ("p", 7, 7)
    assert (view.publish_time_ms, view.event_time_ms) == (1000, 900)
    assert (view.num_messages, view.is_batch, view.is_chunk, view.is_marker) == (1, False, False, False)
    assert view.deliver_at_ms is None
    assert bytes(view.payload) == b"payload"
    assert view.payload.obj is view.data.obj
    assert bytes(view.data) == SINGLE


def test_a_batch_is_one_because_it_says_so_even_with_one_message() -> None:
    view = read_entry(memoryview(BATCH), verify=True)
    assert (view.num_messages, view.is_batch, view.highest_sequence_id) == (3, True, 9)
    assert [bytes(one.payload) for one in read_batch(view.payload, 3)] == [b"a", b"", b"ccc"]
    one = read_entry(memoryview(frame_entry(metadata(num_messages_in_batch=1), batch(b"x"))), verify=True)
    assert one.is_batch
    assert one.num_messages == 1


def test_a_chunk_a_marker_and_a_delayed_message_are_known() -> None:
    chunk = metadata(uuid="p-7", num_chunks_from_msg=2, chunk_id=0, total_chunk_msg_size=100)
    assert read_entry(memoryview(frame_entry(chunk, b"x")), verify=True).is_chunk
    assert read_entry(memoryview(frame_entry(metadata(marker_type=20), b"")), verify=True).is_marker
    delayed = read_entry(memoryview(frame_entry(metadata(deliver_at_time=5000), b"")), verify=True)
    assert delayed.deliver_at_ms == 5000


def test_an_old_client_sends_no_checksum() -> None:
    view = read_entry(memoryview(SINGLE[6:]), verify=True)
    assert bytes(view.payload) == b"payload"
    assert bytes(view.data) == SINGLE[6:]


def test_damage_is_told_from_nonsense() -> None:
    damaged = bytearray(SINGLE)
    damaged[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        read_entry(memoryview(damaged), verify=True)
    assert bytes(read_entry(memoryview(damaged), verify=False).payload) == b"payloae"


@pytest.mark.parametrize("size", range(len(SINGLE) - len(b"payload")))
def test_an_entry_cut_off_before_its_payload_is_refused(size: int) -> None:
    with pytest.raises(WireError):
        read_entry(memoryview(SINGLE[:size]), verify=False)


@pytest.mark.parametrize(
    ("fields", "payload", "fits"),
    [
        ({"num_messages_in_batch": 0}, bytes(100), False),
        ({"num_messages_in_batch": -1}, bytes(100), False),
        ({"num_messages_in_batch": 2}, bytes(12), True),
        ({"num_messages_in_batch": 2}, bytes(11), False),
        (
            {
                "num_messages_in_batch": 10,
                "compression": CompressionType.LZ4,
                "uncompressed_size": 60,
            },
            b"x",
            True,
        ),
        (
            {
                "num_messages_in_batch": 11,
                "compression": CompressionType.LZ4,
                "uncompressed_size": 60,
            },
            b"x",
            False,
        ),
        (
            {
                "num_messages_in_batch": 10,
                "encryption_keys": [EncryptionKeys(key="k", value=b"v")],
                "uncompressed_size": 60,
            },
            b"x",
            True,
        ),
        (
            {
                "num_messages_in_batch": BATCH_MESSAGES_MAX,
                "compression": CompressionType.ZSTD,
                "uncompressed_size": (1 << 32) - 1,
            },
            b"x",
            True,
        ),
        (
            {
                "num_messages_in_batch": BATCH_MESSAGES_MAX + 1,
                "compression": CompressionType.ZSTD,
                "uncompressed_size": (1 << 32) - 1,
            },
            b"x",
            False,
        ),
    ],
)
def test_a_count_of_messages_must_be_possible(fields: dict[str, object], payload: bytes, fits: bool) -> None:
    entry = memoryview(frame_entry(metadata(**fields), payload))
    if fits:
        read_entry(entry, verify=True)
    else:
        with pytest.raises(WireError, match="a batch of"):
            read_entry(entry, verify=True)


def test_a_producer_name_that_is_not_text_is_refused() -> None:
    body = metadata().SerializeToString().replace(b"\x0a\x01p", b"\x0a\x01\xff")
    with pytest.raises(WireError, match="UTF-8"):
        read_entry(memoryview(struct.pack(">I", len(body)) + body), verify=True)


def test_metadata_without_a_required_field_is_refused() -> None:
    body = MessageMetadata(producer_name="p", sequence_id=1).SerializePartialToString()
    with pytest.raises(WireError, match="without"):
        read_entry(memoryview(struct.pack(">I", len(body)) + body), verify=True)


def test_the_brokers_block_is_split_off() -> None:
    stored = broker_metadata(1_700_000_000_000, 41) + SINGLE
    block, entry = split_broker_metadata(memoryview(stored))
    assert block is not None
    assert (block.broker_timestamp, block.index) == (1_700_000_000_000, 41)
    assert bytes(entry) == SINGLE
    assert split_broker_metadata(memoryview(SINGLE)) == (None, memoryview(SINGLE))
    for size in range(2, len(stored) - len(SINGLE)):
        with pytest.raises(WireError):
            split_broker_metadata(memoryview(stored[:size]))


def test_a_batch_holds_exactly_its_messages() -> None:
    payload = batch(b"first", b"second")
    assert len(list(read_batch(memoryview(payload), 2))) == 2
    for count in (0, 1, 3):
        with pytest.raises(WireError):
            list(read_batch(memoryview(payload), count))
    for size in range(len(payload)):
        with pytest.raises(WireError):
            list(read_batch(memoryview(payload[:size]), 2))


@given(data=st.data())
def test_mutations_raise_nothing_but_wire_errors(data: st.DataObject) -> None:
    stored = bytearray(broker_metadata(5, 2) + data.draw(st.sampled_from([SINGLE, BATCH])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stored) - 1))
        if data.draw(st.booleans()):
            stored[at] = data.draw(st.integers(0, 255))
        else:
            del stored[at : at + data.draw(st.integers(1, 9))]
        stored = stored or bytearray(1)
    try:
        _, entry = split_broker_metadata(memoryview(stored))
        view = read_entry(entry, verify=False)
        assert 1 <= view.num_messages <= BATCH_MESSAGES_MAX
        if view.is_batch:
            list(read_batch(view.payload, view.num_messages))
    except WireError:
        pass

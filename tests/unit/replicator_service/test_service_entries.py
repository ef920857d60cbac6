"""Entries as brokers replicate them, as records: single messages, batches, compressed ones, and what is no record."""

import pytest

from magnetar.base.errors import WireError
from magnetar.replicator_service.entries import records_in
from magnetar.replicators.provider import ReplicatedRecord
from magnetar.wire.convert.codecs import compress_for_pulsar
from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_000, **fields)  # type: ignore[arg-type]


def entry(said: MessageMetadata, payload: bytes) -> EntryView:
    return read_entry(memoryview(frame_entry(said, payload)), verify=True)


def batch(*values: bytes | None) -> bytes:
    """Messages with keys k0, k1 ... and a property each."""
    found = b""
    for number, value in enumerate(values):
        one = SingleMessageMetadata(
            payload_size=len(value or b""), partition_key=f"k{number}", event_time=2_000 + number
        )
        one.properties.add(key="number", value=str(number))
        if value is None:
            one.null_value = True
        body = one.SerializeToString()
        found += len(body).to_bytes(4) + body + (value or b"")
    return found


def test_a_message_keeps_key_value_properties_and_time() -> None:
    said = metadata(partition_key="/w==", partition_key_b64_encoded=True, event_time=2_000)
    said.properties.add(key="odd;0;base64", value="/g==")
    assert records_in(entry(said, b"value"), 3, 10) == [
        ReplicatedRecord(3, 10, 2_000, b"\xff", b"value", [("odd", b"\xfe")])
    ]


def test_a_message_without_an_event_time_has_its_publish_time() -> None:
    [found] = records_in(entry(metadata(), b""), 0, 0)
    assert (found.timestamp_ms, found.key, found.value) == (1_000, None, b"")


@pytest.mark.parametrize("codec", CompressionType.values())
def test_each_message_of_a_batch_is_a_record_in_its_order(codec: int) -> None:
    payload = batch(b"a", None, b"c" * 100)
    said = metadata(
        num_messages_in_batch=3, uncompressed_size=len(payload), compression=CompressionType.Name(codec)
    )
    packed = (
        payload if codec == CompressionType.NONE else bytes(compress_for_pulsar(memoryview(payload), codec))
    )
    found = records_in(entry(said, packed), 1, 5)
    assert [(one.offset, one.key, one.value, one.timestamp_ms) for one in found] == [
        (5, b"k0", b"a", 2_000),
        (6, b"k1", None, 2_001),
        (7, b"k2", b"c" * 100, 2_002),
    ]
    assert [list(one.headers) for one in found] == [[("number", b"%d" % number)] for number in range(3)]


def test_an_encrypted_message_comes_as_it_is_with_what_it_takes_to_open_it() -> None:
    said = metadata(encryption_param=b"nonce", encryption_algo="AES")
    said.encryption_keys.add(key="key", value=b"sealed")
    [found] = records_in(entry(said, b"\x00\xff"), 0, 0)
    assert found.value == b"\x00\xff"
    assert ("pulsar-encryption-key.key", b"sealed") in found.headers


def test_a_marker_is_no_record() -> None:
    assert records_in(entry(metadata(marker_type=10), b"snapshot"), 0, 0) == ()


def test_a_chunk_and_a_damaged_batch_are_refused_and_more_than_memory_is_not_taken() -> None:
    chunk = metadata(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=2)
    with pytest.raises(WireError, match="a chunk of a message"):
        records_in(entry(chunk, b"a"), 0, 0)
    with pytest.raises(WireError):
        records_in(entry(metadata(num_messages_in_batch=2), batch(b"a") + b"\0" * 8), 0, 0)
    bomb = metadata(compression="ZSTD", uncompressed_size=1 << 30)
    with pytest.raises(WireError, match="behind compression"):
        records_in(entry(bomb, b"a"), 0, 0)

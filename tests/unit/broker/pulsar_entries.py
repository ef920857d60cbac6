"""What a Pulsar client sends, for tests of the broker."""

from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

PUBLISHED_MS = 1_700_000_000_000


def sent(
    producer: str = "p",
    sequence_id: int = 0,
    count: int = 1,
    *,
    payload: bytes = b"message",
    published_ms: int = PUBLISHED_MS,
    event_ms: int = 0,
    chunk: tuple[int, int] | None = None,
    is_batch: bool = False,
    transaction: int | None = None,
) -> EntryView:
    """One entry of `count` messages; `chunk` is (which, of how many)."""
    metadata = MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=published_ms)
    if event_ms:
        metadata.event_time = event_ms
    if transaction is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = 0, transaction
    if chunk is not None:
        metadata.uuid = f"{producer}-{sequence_id}"
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
    if is_batch or count > 1:
        metadata.num_messages_in_batch = count
        metadata.highest_sequence_id = sequence_id + count - 1
        one = SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
        payload = (len(one).to_bytes(4, "big") + one + payload) * count
    return read_entry(memoryview(frame_entry(metadata, payload)), verify=True)

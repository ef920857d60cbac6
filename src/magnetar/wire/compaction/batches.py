"""A batch of either protocol without some of its records: offsets, times, producer and sequence stay as they were.

A Kafka batch keeps its range of offsets and has fewer records, as after Kafka's own cleaner (KIP-98, `LogCleaner`).  In
a Pulsar batch a removed message is marked `compacted_out`, as Pulsar's compactor does it (`RawBatchConverter`): the
other messages keep their batch index.
"""

from collections.abc import Container
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.wire.convert.codecs import compress_for_kafka, compress_for_pulsar, expand_pulsar
from magnetar.wire.convert.plain import COMPACTED_OUT
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    CRC_COVER,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    BatchHeader,
)
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_batch
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

_U32: Final = Struct(">I")


def kafka_batch(header: BatchHeader, records: Buffer, count: int, newest_ms: int) -> bytes:
    """The batch of `header` with only `records`: `count` of its records, uncompressed.

    `newest_ms` is the greatest of their timestamp deltas.
    """
    body = compress_for_kafka(memoryview(records), header.attributes & COMPRESSION_MASK)
    greatest_ms = header.max_timestamp_ms
    if not header.attributes & LOG_APPEND_TIME:
        greatest_ms = header.base_timestamp_ms + newest_ms
    batch = bytearray(HEADER_SIZE + len(body))
    batch[HEADER_SIZE:] = body
    length = len(batch) - LENGTH_PREFIX
    for crc in (0, 1):
        HEADER.pack_into(
            batch, 0, header.base_offset, length, header.partition_leader_epoch, header.magic,
            crc and crc32c(memoryview(batch)[CRC_COVER:]), header.attributes, header.last_offset_delta,
            header.base_timestamp_ms, greatest_ms, header.producer_id, header.producer_epoch, header.base_sequence,
            count,
        )  # fmt: skip
    return bytes(batch)


def pulsar_batch(view: EntryView, kept: Container[int]) -> bytes:
    """The batch with only the messages whose indexes are in `kept`.

    Raises:
        WireError: its messages do not add up.
    """
    metadata = view.metadata
    payload = expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size)
    parts: list[Buffer] = []
    at = 0
    for index, (_, content) in enumerate(read_batch(payload, view.num_messages)):
        end = at + _U32.size + _U32.unpack_from(payload, at)[0] + len(content)
        parts.append(payload[at:end] if index in kept else COMPACTED_OUT)
        at = end
    messages = b"".join(parts)
    changed = MessageMetadata()
    changed.CopyFrom(metadata)
    changed.uncompressed_size = len(messages)
    return frame_entry(changed, compress_for_pulsar(memoryview(messages), metadata.compression))

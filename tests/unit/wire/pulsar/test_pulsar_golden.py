"""What a real client says: every byte that pulsar-client 3.13.0 (the C++ client) sent in one session, recorded once.

It made three producers (one message with everything a message can carry; a batch of three; LZ4), subscribed, sought,
asked for redelivery and unsubscribed.
"""

import struct
from pathlib import Path
from typing import Any

import lz4.block

from magnetar.wire.pulsar.commands import frame_command, read_command
from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_batch, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CompressionType

RECORDED = (Path(__file__).parent / "golden" / "pulsar-client-3.13.0.bin").read_bytes()
Frame = tuple[int, Any, memoryview]


def frames() -> list[Frame]:
    found: list[Frame] = []
    left = memoryview(RECORDED)
    while left:
        (size,) = struct.unpack_from(">I", left)
        found.append(read_command(left[4 : 4 + size]))
        left = left[4 + size :]
    return found


def sent() -> list[EntryView]:
    return [read_entry(entry, verify=True) for kind, _, entry in frames() if kind == BaseCommand.SEND]


def test_every_command_is_understood() -> None:
    names = [BaseCommand.Type.Name(kind) for kind, _, _ in frames()]
    opening = ["PARTITIONED_METADATA", "LOOKUP", "PRODUCER", "SEND", "CLOSE_PRODUCER"]
    assert names == [
        "CONNECT",
        *opening * 3,
        *["PARTITIONED_METADATA", "LOOKUP", "SUBSCRIBE", "FLOW", "SEEK"],
        *["LOOKUP", "SUBSCRIBE", "FLOW", "REDELIVER_UNACKNOWLEDGED_MESSAGES", "UNSUBSCRIBE"],
    ]


def test_no_field_of_the_clients_is_unknown_to_us_and_ours_encode_as_theirs() -> None:
    left = memoryview(RECORDED)
    while left:
        total, size = struct.unpack_from(">II", left)
        command = BaseCommand.FromString(bytes(left[8 : 8 + size]))
        entry = left[8 + size : 4 + total]
        if not entry:
            assert frame_command(command) == left[: 4 + total]
        assert command.SerializeToString() == left[8 : 8 + size]
        left = left[4 + total :]
    for view in sent():
        assert frame_entry(view.metadata, view.payload) == view.data


def test_the_connection_says_who_it_is() -> None:
    _, connect, _ = frames()[0]
    assert connect.protocol_version == 20
    assert connect.client_version == "Pulsar-CPP-v4.2.0"
    assert connect.feature_flags.supports_broker_entry_metadata


def test_one_message_has_what_was_given_to_it() -> None:
    view = sent()[0]
    assert (view.producer_name, view.sequence_id, view.num_messages) == ("golden", 0, 1)
    assert not view.is_batch
    metadata = view.metadata
    assert view.event_time_ms == 1_700_000_000_000
    assert bytes(view.payload) == b"single"
    assert metadata.partition_key == "key"
    assert metadata.ordering_key == b"order"
    assert {one.key: one.value for one in metadata.properties} == {"k": "v", "empty": ""}


def test_a_batch_comes_apart() -> None:
    view = sent()[1]
    assert (view.producer_name, view.num_messages, view.is_batch) == ("golden-batch", 3, True)
    messages = list(read_batch(view.payload, view.num_messages))
    assert [bytes(one.payload) for one in messages] == [b"batched 0", b"batched 1", b"batched 2"]
    assert [one.metadata.partition_key for one in messages] == ["k0", "k1", "k2"]
    assert [one.metadata.sequence_id for one in messages] == [0, 1, 2]
    assert view.highest_sequence_id == 0, (
        "the C++ client does not say it, and ids need not follow one another"
    )


def test_a_compressed_payload_is_left_as_it_is() -> None:
    view = sent()[2]
    assert view.metadata.compression == CompressionType.LZ4
    plain = lz4.block.decompress(view.payload, uncompressed_size=view.metadata.uncompressed_size)
    assert plain == b"compress me " * 20


def test_a_subscription_is_as_it_was_asked_for() -> None:
    subscribes = [body for frame_kind, body, _ in frames() if frame_kind == BaseCommand.SUBSCRIBE]
    assert len(subscribes) == 2, "seeking subscribes again"
    for body in subscribes:
        assert (body.subscription, body.subType, body.initialPosition) == ("sub", 1, 1)

"""Entries that compaction has moved, as the log, the columns and Pulsar's own readers see them."""

from collections.abc import Callable

import pytest

from magnetar.ledger.entry import EntryKind
from magnetar.ledger.entry_format import EntryPrefix, decode_entry
from magnetar.ledger.moved_entry import behind_metadata, moved
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.wire import columns
from magnetar.wire.columns import Wanted, Window, decoding, engine, plain
from magnetar.wire.convert.plain import record
from magnetar.wire.kafka.records import HEADER_SIZE, assign_offset
from magnetar.wire.pulsar.entry import frame_entry, split_broker_metadata
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from magnetar.wire.stored import MOVED_METADATA_BYTES_MIN, Origin, origin_of, record_header, split_entry
from tests.unit.wire.kafka.test_record_reader import batch

NOW_MS = 1_700_000_000_000
HUGE = (1 << 63) - 1


def kafka_body(last_offset: int, now_ms: int = NOW_MS) -> bytes:
    payload = memoryview(bytearray(batch(b"".join(record(0, 0, b"k", b"v", [])), 1)))
    assign_offset(payload, last_offset, 3)
    return EntryPrefix().kafka(now_ms, last_offset, 1) + bytes(payload)


def pulsar_body(last_offset: int, now_ms: int = NOW_MS) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=now_ms, partition_key="k")
    return EntryPrefix().pulsar(now_ms, last_offset, 1) + frame_entry(metadata, b"v")


@pytest.mark.parametrize("make", [kafka_body, pulsar_body])
@pytest.mark.parametrize("last_offset", [0, 127, 300, 1 << 40, (1 << 62) - 1])
@pytest.mark.parametrize("origin", [Origin(0, 0, 0), Origin(7, 12345, NOW_MS), Origin(HUGE, HUGE, HUGE)])
def test_a_moved_entry_is_what_it_was_at_the_position_that_it_had(
    make: Callable[..., bytes], last_offset: int, origin: Origin
) -> None:
    body = memoryview(make(last_offset))
    assert origin_of(body) is None
    there = memoryview(b"".join(moved(body, origin, 1, behind_metadata(body))))
    assert origin_of(there) == origin
    before = decode_entry(LedgerId(5), StoredEntry(EntryId(6), last_offset, NOW_MS, body))
    after = decode_entry(LedgerId(8), StoredEntry(EntryId(9), last_offset, NOW_MS, there))
    assert (before.ledger_id, before.entry_id) == (5, 6)
    assert (after.ledger_id, after.entry_id) == (origin.ledger_id, origin.entry_id)
    assert after.payload == before.payload
    assert (after.kind, after.base_offset, after.last_offset) == (before.kind, last_offset, last_offset)
    again = memoryview(b"".join(moved(there, origin._replace(keep_until_ms=1), 1, behind_metadata(there))))
    assert len(again) == len(there), "it does not grow each time it is moved"
    assert origin_of(again) == origin._replace(keep_until_ms=1)
    known, rest = split_broker_metadata(again)
    assert known is not None
    assert (known.broker_timestamp, known.index) == (NOW_MS, last_offset), (
        "Pulsar's readers skip what they do not know"
    )
    assert bytes(rest) == bytes(behind_metadata(body))


@pytest.mark.parametrize("last_offset", [0, 300, 1 << 40])
def test_the_count_stands_once_in_what_the_broker_knows_of_a_moved_entry(last_offset: int) -> None:
    """An entry of Pulsar's had one before; what stands in front is the same for both protocols then."""
    fronts = []
    for make in (kafka_body, pulsar_body):
        body = memoryview(make(last_offset))
        front, _ = moved(body, Origin(7, 12345, NOW_MS), 1, behind_metadata(body))
        fronts.append(front)
    assert fronts[0] == fronts[1]
    assert fronts[1].count(b"\x7d\x01\x00\x00\x00") == 1


@pytest.mark.parametrize("make", [kafka_body, pulsar_body])
def test_an_entry_that_was_not_moved_is_never_taken_for_one(make: Callable[..., bytes]) -> None:
    body = memoryview(make((1 << 63) - 1, (1 << 63) - 1))
    assert body[5] < MOVED_METADATA_BYTES_MIN, "its metadata is shorter, whatever time and offset it has"
    assert origin_of(body) is None


def test_columns_have_the_positions_that_clients_know() -> None:
    assert columns.load()
    data = b""
    for number, make in enumerate((kafka_body, pulsar_body, kafka_body, pulsar_body)):
        body = memoryview(make(number))
        if number >= 2:
            body = memoryview(b"".join(moved(body, Origin(70 + number, 900, 0), 1, behind_metadata(body))))
        data += record_header(8, number, number, NOW_MS, body) + bytes(body)
    wanted, window = Wanted(pulsar=True), Window()
    for found in (
        plain.decode(data, wanted, window),
        decoding.decode(engine._compiled.modules, data, wanted, window, 1 << 20),
    ):
        assert found.columns.pulsar is not None
        assert found.columns.offset is not None
        assert found.columns.offset.tolist() == [0, 1, 2, 3]
        assert found.columns.pulsar.ledger_id.tolist() == [8, 8, 72, 73]
        assert found.columns.pulsar.entry_id.tolist() == [0, 1, 900, 900]


def test_what_is_left_of_a_pulsar_entry_may_be_a_batch_of_kafkas() -> None:
    body, batch_body = memoryview(pulsar_body(4)), memoryview(kafka_body(4))
    there = memoryview(b"".join(moved(body, Origin(1, 2, 0), 1, bytes(behind_metadata(batch_body)))))
    is_pulsar, payload_at, base_offset = split_entry(there, 4)
    assert (is_pulsar, base_offset) == (False, 4)
    assert len(there) - payload_at >= HEADER_SIZE
    assert decode_entry(LedgerId(8), StoredEntry(EntryId(9), 4, 0, there)).kind is EntryKind.KAFKA

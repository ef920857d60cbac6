"""The entry format byte by byte, and against bytes that are none of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.entry import EntryKind
from magnetar.ledger.entry_format import MESSAGES_MAX, EntryPrefix, decode_entry
from magnetar.ledger.moved_entry import moved
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.wire.stored import Origin, copied_from

GOLDEN = Path(__file__).parent / "golden"
LEDGER = LedgerId(9)
NOW_MS = 1_700_000_000_000
CLOCK = bytes([0x80, 0xD0, 0x95, 0xFF, 0xBC, 0x31])
BATCH = (123).to_bytes(8, "big") + bytes(49) + (8).to_bytes(4, "big") + b"the records"
SENT = b"\x0e\x01" + bytes.fromhex("0badc0de") + (4).to_bytes(4, "big") + b"meta" + b"the message"


def stored(body: bytes | bytearray, last_offset: int = 130) -> StoredEntry:
    return StoredEntry(EntryId(4), last_offset, 77, memoryview(body))


def test_the_prefix_of_a_kafka_batch_is_what_pulsar_s_tools_read() -> None:
    broker = b"\x08" + CLOCK + b"\x10" + b"\xac\x02"
    message = b"\x0a\x00\x10\x00\x18" + CLOCK + b"\x22\x15\x0a\x0centry.format\x12\x05kafka" + b"\x58\x05"
    expected = (
        b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker + len(message).to_bytes(4, "big") + message
    )
    assert EntryPrefix().kafka(NOW_MS, 300, 5) == expected


def test_the_prefix_of_a_pulsar_entry_ends_with_the_offsets_that_it_takes() -> None:
    broker = b"\x08" + CLOCK + b"\x10" + b"\xac\x02" + b"\x7d" + b"\x05\x00\x00\x00"
    assert EntryPrefix().pulsar(NOW_MS, 300, 5) == b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker


def test_a_copied_entry_has_its_old_position_before_the_offsets_that_it_takes() -> None:
    position = b"\x51" + (5).to_bytes(8, "little") + b"\x59" + (17).to_bytes(8, "little")
    broker = b"\x08" + CLOCK + b"\x10" + b"\xac\x02" + position + b"\x7d" + b"\x05\x00\x00\x00"
    prefix = EntryPrefix().copied(NOW_MS, 300, 5, 5, 17)
    assert prefix == b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker


@given(
    last=st.integers(0, (1 << 63) - 1),
    count=st.integers(1, MESSAGES_MAX),
    now_ms=st.integers(0, (1 << 42) - 1),
    position=st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1)),
    moves=st.integers(0, 2),
)
def test_where_an_entry_was_copied_from_is_known_also_when_it_has_moved(
    last: int, count: int, now_ms: int, position: tuple[int, int], moves: int
) -> None:
    count = min(count, last + 1)
    body = EntryPrefix().copied(now_ms, last, count, *position) + SENT
    for number in range(moves):
        front, rest = moved(memoryview(body), Origin(7, number, 0), count, SENT)
        body = front + bytes(rest)
    assert copied_from(memoryview(body)) == position
    entry = decode_entry(LEDGER, stored(body, last))
    assert (entry.base_offset, entry.message_count, bytes(entry.payload)) == (last + 1 - count, count, SENT)
    assert entry.entry_id == (moves - 1 if moves else 4)
    plain = EntryPrefix().pulsar(now_ms, last, count) + SENT
    assert copied_from(memoryview(plain)) is None


@pytest.mark.parametrize("kind", EntryKind)
def test_stored_bytes_of_every_version_are_read(kind: EntryKind) -> None:
    body = (GOLDEN / f"entry-v1-{kind.name.lower()}.bin").read_bytes()
    prefix = EntryPrefix()
    written = {
        EntryKind.KAFKA: prefix.kafka(NOW_MS, 130, 8) + BATCH,
        EntryKind.PULSAR: prefix.pulsar(NOW_MS, 130, 8) + SENT,
    }
    assert written[kind] == body
    entry = decode_entry(LEDGER, stored(body))
    assert (entry.base_offset, entry.last_offset, entry.message_count) == (123, 130, 8)
    assert (entry.kind, entry.ledger_id, entry.entry_id, entry.max_timestamp_ms) == (kind, 9, 4, 77)
    assert bytes(entry.payload) == (BATCH if kind is EntryKind.KAFKA else SENT)


def test_prefixes_of_both_kinds_share_a_clock_that_moves() -> None:
    shared = EntryPrefix()
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + 1):
        assert shared.pulsar(now_ms, 7, 1) == EntryPrefix().pulsar(now_ms, 7, 1)
        assert shared.kafka(now_ms, 8, 1) == EntryPrefix().kafka(now_ms, 8, 1)


@given(
    last=st.integers(0, (1 << 63) - 1),
    count=st.integers(1, MESSAGES_MAX),
    now_ms=st.integers(0, (1 << 42) - 1),
)
def test_the_first_offset_of_a_pulsar_entry_is_known_from_its_prefix(
    last: int, count: int, now_ms: int
) -> None:
    count = min(count, last + 1)
    entry = decode_entry(LEDGER, stored(EntryPrefix().pulsar(now_ms, last, count) + SENT, last))
    assert (entry.base_offset, entry.message_count) == (last + 1 - count, count)


@pytest.mark.parametrize("kind", EntryKind)
def test_an_entry_that_is_cut_short_is_corrupt(kind: EntryKind) -> None:
    body = (GOLDEN / f"entry-v1-{kind.name.lower()}.bin").read_bytes()
    head = len(body) - len(b"the records") if kind is EntryKind.KAFKA else len(body) - len(b"metathe message")
    for size in range(head):
        with pytest.raises(EntryCorrupt):
            decode_entry(LEDGER, stored(body[:size]))
    decode_entry(LEDGER, stored(body[:head]))


def test_a_pulsar_entry_that_claims_more_offsets_than_there_are_is_corrupt() -> None:
    for count, last in ((0, 130), (132, 130), (MESSAGES_MAX, 130)):
        with pytest.raises(EntryCorrupt):
            decode_entry(LEDGER, stored(EntryPrefix().pulsar(NOW_MS, last, count) + SENT, last))
    assert decode_entry(LEDGER, stored(EntryPrefix().pulsar(NOW_MS, 130, 131) + SENT)).base_offset == 0


def test_what_a_pulsar_client_sends_is_never_taken_for_a_kafka_batch() -> None:
    """Without its magic, what is sent looks like what stands in front of a batch: so it must have its magic."""
    kafka = EntryPrefix().kafka(NOW_MS, 130, 8) + BATCH
    forged = kafka[6 + kafka[5] :]  # MessageMetadata with entry.format=kafka, as a client may write it
    entry = decode_entry(LEDGER, stored(EntryPrefix().pulsar(NOW_MS, 130, 8) + SENT[:6] + forged))
    assert entry.kind is EntryKind.PULSAR


@given(st.data())
def test_damaged_bytes_are_read_or_corrupt_and_nothing_else(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["kafka", "pulsar"]))
    body = bytearray((GOLDEN / f"entry-v1-{name}.bin").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        entry = decode_entry(LEDGER, stored(body))
    except EntryCorrupt:
        return
    assert len(entry.payload) < len(body)
    assert entry.last_offset == 130

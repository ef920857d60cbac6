"""One wrong bit is found by its checksum alone; everything else is not taken for one."""

import random

import pytest
from crc32c import crc32c

from magnetar.storage.local import one_bit
from magnetar.storage.local.format import ROUND_BYTES, round_header
from magnetar.storage.local.one_bit import wrong_bit
from magnetar.storage.local.rounds import mend_head, mend_records, parse_head, parse_round
from magnetar.wire.stored import RECORD_BYTES, RECORD_REST, RECORD_START

CHANCE = random.Random(5)


def turned(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("size", [0, 1, 7, 60, 700])
def test_each_bit_of_the_data_and_of_the_checksum_is_found(size: int) -> None:
    data = CHANCE.randbytes(size)
    checksum = crc32c(data)
    assert wrong_bit(data, checksum) is None
    for bit in range(8 * size):
        assert wrong_bit(turned(data, bit), checksum) == bit
    for place in range(32):
        assert wrong_bit(data, checksum ^ (1 << place)) == 8 * size + place


def test_a_bit_of_a_large_record_is_found() -> None:
    data = bytearray(CHANCE.randbytes(8 << 20))
    checksum = crc32c(data)
    for bit in (0, 12_345_678, 8 * len(data) - 1):
        data[bit // 8] ^= 1 << bit % 8
        assert wrong_bit(memoryview(data), checksum) == bit
        data[bit // 8] ^= 1 << bit % 8


def test_what_is_so_long_that_two_bits_look_alike_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 8 * one_bit._LENGTH_MAX + one_bit.CHECKSUM_BITS < (1 << 31) - 1, "x^(2^31 - 1) is 1"
    monkeypatch.setattr(one_bit, "_LENGTH_MAX", 100)
    for size in (99, 100, 101):
        data = CHANCE.randbytes(size)
        assert wrong_bit(turned(data, 7), crc32c(data)) == (7 if size <= 100 else None)


def test_what_looks_like_a_bit_in_front_of_the_data_is_none() -> None:
    for size in range(40):
        data = CHANCE.randbytes(size)
        for bit in range(16):
            longer = turned(bytes(size + 2), bit)
            assert wrong_bit(data, crc32c(data) ^ crc32c(longer) ^ crc32c(bytes(size + 2))) is None


def test_two_and_three_wrong_bits_are_not_one() -> None:
    data = CHANCE.randbytes(500)
    checksum = crc32c(data)
    for _ in range(200):
        bits = CHANCE.sample(range(8 * len(data)), 2)
        assert wrong_bit(turned(data, *bits), checksum) is None
    for _ in range(200):
        bits = CHANCE.sample(range(8 * len(data)), 2)
        assert wrong_bit(turned(data, *bits), checksum ^ (1 << CHANCE.randrange(32))) is None


def record(entry_id: int, body: bytes) -> bytes:
    rest = RECORD_REST.pack(1, entry_id, entry_id, 0) + body
    return RECORD_START.pack(len(body), crc32c(rest)) + rest


PLACES = [(0, 25), (65, 0), (105, 40)]
"""Where records begin, and how long their bodies are."""

RECORDS = record(0, b"first" * 5) + record(1, b"") + record(2, b"\0" * 40)


def head_of(records: bytes, count: int) -> bytes:
    starts = [0, 65, 105][:count]
    digest = crc32c(b"".join(records[start + 4 : start + 8] for start in starts))
    return bytes(round_header(3, 8, len(records), count, digest, 77, 0))


HEAD = head_of(RECORDS, 3)


def test_each_bit_of_a_round_is_turned_back() -> None:
    head = parse_head(memoryview(HEAD))
    assert head is not None
    assert parse_round(head, memoryview(RECORDS)) is not None
    for bit in range(8 * ROUND_BYTES):
        assert mend_head(memoryview(turned(HEAD, bit))) == head
    for bit in range(8 * len(RECORDS)):
        data = bytearray(turned(RECORDS, bit))
        mended = mend_records(head, memoryview(data))
        assert mended is not None, bit
        assert mended.head == head
        assert bytes(data) == RECORDS
        assert [(one.entry_id, one.size) for one in mended.records] == [(0, 25), (1, 0), (2, 40)]
        start, size = next((start, size) for start, size in reversed(PLACES) if start <= bit // 8)
        is_length = bit // 8 < start + 4
        assert mended.bits == 8 * (RECORD_BYTES + size if is_length else RECORD_BYTES - 4 + size)
        assert mended.moves_record is (start + 8 <= bit // 8 < start + 16)


def test_a_round_with_more_wrong_bits_is_not_mended_and_stays_as_it_is() -> None:
    head = parse_head(memoryview(HEAD))
    assert head is not None
    for _ in range(300):
        bits = CHANCE.sample(range(8 * len(RECORDS)), 2)
        data = bytearray(turned(RECORDS, *bits))
        assert mend_records(head, memoryview(data)) is None
        assert bytes(data) == turned(RECORDS, *bits)
        bits = CHANCE.sample(range(8 * ROUND_BYTES), 2)
        assert mend_head(memoryview(turned(HEAD, *bits))) is None


def test_whole_records_of_another_round_are_not_mended() -> None:
    """What was written over, and of which the header alone reached the disk."""
    head = parse_head(memoryview(head_of(RECORDS, 2)))
    assert head is not None
    assert mend_records(head, memoryview(bytearray(RECORDS))) is None

"""Murmur3 and the slots of Pulsar."""

import pytest

from magnetar.broker.subscriptions.dispatch.hashing import murmur3_32, positive_hash, ring_points, slot_of

# The published vectors of MurmurHash3_x86_32 with seed 0: every length of a tail, and bytes above 127.
VECTORS = [
    (b"", 0),
    (b"\x21", 0x72661CF4),
    (b"\x21\x43", 0xA0F7B07A),
    (b"\x21\x43\x65", 0x7E4A8634),
    (b"\x21\x43\x65\x87", 0xF55B516B),
    (b"\xff\xff\xff\xff", 0x76293B50),
    (b"\x00\x00\x00\x00", 0x2362F9DE),
    (b"test", 0xBA6BD213),
    (b"Hello, world!", 0xC0363E43),
    (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
]

# What Pulsar's clients expect of Murmur3_32Hash, one and the same in Java and C++.
PULSAR_VECTORS = [
    (b"k1", 2110152746),
    (b"k2", 1479966664),
    (b"key1", 462881061),
    (b"key2", 1936800180),
    (b"key01", 39696932),
    (b"key02", 751761803),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_murmur3_has_its_published_values(data: bytes, expected: int) -> None:
    assert murmur3_32(data) == expected


@pytest.mark.parametrize(("data", "expected"), PULSAR_VECTORS)
def test_hashes_are_those_of_pulsars_clients(data: bytes, expected: int) -> None:
    assert positive_hash(data) == expected
    assert slot_of(data) == expected % 65_536


def test_no_key_has_slot_zero() -> None:
    assert positive_hash(b"") == 0
    assert slot_of(b"") == 1
    assert {slot_of(b"%d" % number) for number in range(200_000)} <= set(range(1, 65_536))


def test_long_keys_are_hashed_like_short_ones_up_to_a_limit() -> None:
    key = bytes(range(256)) * 16
    assert slot_of(key[:4_095]) == positive_hash(key[:4_095]) % 65_536
    assert slot_of(key) == positive_hash(key) % 65_536
    assert slot_of(key + b"more") == slot_of(key)


def test_a_consumer_has_a_hundred_points_by_its_name() -> None:
    assert positive_hash(b"a\x007") in ring_points("a", "\0")
    assert positive_hash(b"a99") in ring_points("a", "")
    assert len(ring_points("a", "")) == 100
    assert list(ring_points("a", "")) == sorted(ring_points("a", ""))

"""From a message's key to a slot, as Pulsar's brokers and clients count them.

The hash is Murmur3 for x86, 32 bits, seed 0, with its highest bit cleared (`Murmur3_32Hash`).  Slots are
1..65535: the hash modulo 65,536, and 1 for 0, which Pulsar keeps for "no hash" (PIP-379).  The key of an entry is
its ordering key, else its partition key (base64-decoded where flagged), else `producer-sequence`; finding it is the
shell's work.  Of keys over 4 KiB only the beginning counts, so that a key of megabytes costs the loop nothing.  For
such keys Pulsar has another slot, but no client can see that.
"""

import struct
from functools import lru_cache

SLOTS = 65_536
MASK = 0xFFFFFFFF
C1, C2 = 0xCC9E2D51, 0x1B873593
CACHED_KEYS = 8_192
CACHED_KEY_BYTES_MAX = 64
HASHED_KEY_BYTES_MAX = 4_096
POINTS = 100  # subscriptionKeySharedConsistentHashingReplicaPoints
CACHED_NAMES = 1_024


def murmur3_32(data: bytes) -> int:
    """Murmur3 x86 of 32 bits with seed 0, unsigned."""
    h = 0
    size = len(data)
    whole = size & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * C1 & MASK
        k = (k << 15 | k >> 17) * C2 & MASK
        h ^= k
        h = ((h << 13 | h >> 19) & MASK) * 5 + 0xE6546B64 & MASK
    if size > whole:
        k = int.from_bytes(data[whole:], "little") * C1 & MASK
        h ^= (k << 15 | k >> 17) * C2 & MASK
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def positive_hash(data: bytes) -> int:
    """The hash as a Java int that is not negative."""
    return murmur3_32(data) & 0x7FFFFFFF


def slot_of(key: bytes) -> int:
    """The slot of a key, in 1..65535."""
    return _cached_slot(key) if len(key) <= CACHED_KEY_BYTES_MAX else _slot(key[:HASHED_KEY_BYTES_MAX])


def _slot(key: bytes) -> int:
    return positive_hash(key) % SLOTS or 1


_cached_slot = lru_cache(CACHED_KEYS)(_slot)


@lru_cache(CACHED_NAMES)
def ring_points(name: str, separator: str) -> tuple[int, ...]:
    """The hashes of `name`, `separator` and 0, 1, 2..., sorted: where a consumer stands on a ring."""
    return tuple(sorted(positive_hash(f"{name}{separator}{index}".encode()) for index in range(POINTS)))

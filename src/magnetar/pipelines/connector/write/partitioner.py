"""The partition of each row: the one that it names, else the one of its key, else one for the whole batch.

The hash is Murmur2 with Kafka's seed, as in Kafka's Java client and librdkafka's `murmur2_random`, so a key is in the
same partition, whichever client wrote it.  It is computed for all keys at once over arrays, in one step for each four
bytes of the longest key.
"""

import secrets
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from magnetar.wire.columns import BinaryColumn

NO_PARTITION: Final = -1

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_VECTOR_WORDS_MAX: Final = 64  # for the few longer keys, plain Python is cheaper than more steps
_U32 = np.uint32


def murmur2(key: bytes) -> int:
    """Kafka's hash of one key, unsigned."""
    h = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def murmur2_column(keys: BinaryColumn) -> NDArray[np.uint32]:
    """The hash of each key; a null has the hash of an empty key."""
    starts = keys.offsets[:-1].astype(np.int64)
    sizes = keys.offsets[1:].astype(np.int64) - starts
    order = np.argsort(-np.minimum(sizes >> 2, _VECTOR_WORDS_MAX), kind="stable")
    at = starts[order]
    size = sizes[order]
    words = size >> 2
    h: Any = _U32(_SEED) ^ size.astype(_U32)
    # Four more bytes, so that the last word may be read beyond the last key; a mask removes them.
    data = np.concatenate([keys.data[: int(keys.offsets[-1])], np.zeros(4, np.uint8)])
    active = len(at)
    with np.errstate(over="ignore"):
        for word in range(min(int(words[0]) if len(words) else 0, _VECTOR_WORDS_MAX)):
            active = int(np.searchsorted(-words[:active], -word, side="left"))
            k = _word(data, at[:active] + 4 * word) * _U32(_M)
            k = (k ^ (k >> _U32(24))) * _U32(_M)
            h[:active] = (h[:active] * _U32(_M)) ^ k
        tail = (size & 3).astype(_U32)
        if tail.any():
            last = _word(data, at + 4 * words) & ((_U32(1) << (tail * _U32(8))) - _U32(1))
            h = np.where(tail > 0, (h ^ last) * _U32(_M), h)
        h = (h ^ (h >> _U32(13))) * _U32(_M)
        h ^= h >> _U32(15)
    result = np.empty(len(h), _U32)
    result[order] = h
    for row in np.flatnonzero(sizes >> 2 > _VECTOR_WORDS_MAX):
        result[row] = murmur2(keys.data[keys.offsets[row] : keys.offsets[row + 1]].tobytes())
    return result


def _word(data: Any, at: Any) -> Any:
    """The four bytes at each place, as little-endian numbers."""
    word = data[at].astype(_U32)
    for byte in range(1, 4):
        word |= data[at + byte].astype(_U32) << _U32(8 * byte)
    return word


class Partitioner:
    """Assigns partitions to rows; each task has one.  Rows without a key go to the next partition with each call."""

    def __init__(self) -> None:
        self._next = secrets.randbelow(1 << 30)

    def assign(
        self, partition_count: int, rows: int, keys: BinaryColumn | None, wanted: NDArray[np.int32] | None
    ) -> NDArray[np.int32]:
        """The partition of each row.  `wanted` is NO_PARTITION for a row that names none."""
        if wanted is not None and not (wanted == NO_PARTITION).any():
            return wanted
        assigned: NDArray[np.int32] = np.full(rows, self._next % partition_count, np.int32)
        self._next += 1
        if keys is not None:
            hashed = ((murmur2_column(keys) & _U32(0x7FFFFFFF)) % _U32(partition_count)).astype(np.int32)
            assigned = hashed if keys.valid is None else np.where(keys.valid, hashed, assigned)
        if wanted is not None:
            assigned = np.where(wanted == NO_PARTITION, assigned, wanted)
        return assigned

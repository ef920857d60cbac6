"""The table of last offsets, in Python; tests compare the compiled code with it."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from magnetar.base.errors import WireError
from magnetar.wire.compaction.model import Chosen, Rules
from magnetar.wire.kafka.record_scan import MALFORMED, varlong
from magnetar.wire.kafka.runtime import Buffer


class _Walked(NamedTuple):
    begin: int
    end: int
    delta: int
    delta_ms: int
    key: memoryview | None
    value_size: int


class PlainLatest:
    """Implements `Latest`."""

    def __init__(self, keys_max: int, secret: bytes) -> None:
        self._keys_max = keys_max
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def has_room(self, count: int) -> bool:
        return len(self._offsets) + count <= self._keys_max

    def note(self, records: Buffer, count: int, last_delta: int, base_offset: int) -> None:
        walked = list(_walk(memoryview(records), count, last_delta))
        for one in walked:
            if one.key is not None:
                self._offsets[self._hash(one.key)] = base_offset + one.delta

    def choose(self, records: Buffer, count: int, last_delta: int, base_offset: int, rules: Rules) -> Chosen:
        data = memoryview(records)
        walked = list(_walk(data, count, last_delta))
        kept = []
        has_tombstones = False
        for one in walked:
            if one.key is None:
                if rules.keeps_keyless:
                    kept.append(one)
                continue
            if base_offset + one.delta < self._offsets.get(self._hash(one.key), -1):
                continue
            if one.value_size < 0 or (rules.empty_is_tombstone and one.value_size == 0):
                if rules.drops_tombstones:
                    continue
                has_tombstones = True
            kept.append(one)
        data_kept = None
        if len(kept) != len(walked):
            data_kept = b"".join([data[one.begin : one.end] for one in kept])
        newest_ms = max([one.delta_ms for one in kept], default=0)
        return Chosen(data_kept, [one.delta for one in kept], newest_ms, has_tombstones)

    def _hash(self, key: memoryview) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()


def _walk(data: memoryview, count: int, last_delta: int) -> Iterator[_Walked]:
    """The records of a batch.

    Raises:
        WireError: they do not add up, or their offsets do not ascend to `last_delta` at most.
    """
    position, size, next_delta = 0, len(data), 0
    if count < 0:
        raise WireError(MALFORMED)
    for _ in range(count):
        begin = position
        length, position = varlong(data, position, size)
        end = position + length
        if length <= 0 or end > size:
            raise WireError(MALFORMED)
        delta_ms, position = varlong(data, position + 1, end)
        delta, position = varlong(data, position, end)
        if not next_delta <= delta <= last_delta:
            raise WireError(MALFORMED)
        next_delta = delta + 1
        key, position = _field(data, position, end)
        value, _ = _field(data, position, end)
        yield _Walked(begin, end, delta, delta_ms, key, -1 if value is None else len(value))
        position = end
    if position != size:
        raise WireError(MALFORMED)


def _field(data: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    size, position = varlong(data, position, end)
    if size > end - position:
        raise WireError(MALFORMED)
    return (None, position) if size < 0 else (data[position : position + size], position + size)

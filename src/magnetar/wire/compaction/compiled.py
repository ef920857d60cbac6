"""The table of last offsets by compiled code; only imported where numpy and that code are."""

from types import ModuleType
from typing import Any, Final

import numpy as np

from magnetar.base.errors import WireError
from magnetar.wire.compaction.model import Chosen, Rules
from magnetar.wire.kafka.record_reader import TooLargeExpanded
from magnetar.wire.kafka.records import RECORD_BYTES_MIN
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

_WORD: Final = (1 << 63) - 1
_RECORDS_AT_FIRST: Final = 4096


class CompiledLatest:
    """Implements `Latest`."""

    def __init__(self, compiled: ModuleType, keys_max: int, secret: int) -> None:
        self._code: Any = compiled
        self._keys_max = keys_max
        self._count = 0
        self._low, self._high = secret & _WORD, secret >> 63
        capacity = (
            1 << ((max(keys_max, 1) * 4 + 2) // 3 - 1).bit_length()
        )  # at least a quarter of it stays free
        self._slots = np.full((capacity, self._code.SLOT_WIDTH), self._code.FREE, np.int64)
        self._walked = np.empty((_RECORDS_AT_FIRST, self._code.WALKED_WIDTH), np.int64)

    def has_room(self, count: int) -> bool:
        return self._count + count <= self._keys_max

    def note(self, records: Buffer, count: int, last_delta: int, base_offset: int) -> None:
        data = self._walk(records, count, last_delta)
        self._count += self._code.note(
            data, self._walked, count, base_offset, self._low, self._high, self._slots
        )

    def choose(self, records: Buffer, count: int, last_delta: int, base_offset: int, rules: Rules) -> Chosen:
        code = self._code
        data = self._walk(records, count, last_delta)
        out = np.empty(len(data), np.uint8)
        deltas = np.empty(count, np.int64)
        facts = np.zeros(code.FACTS_WIDTH, np.int64)
        code.choose(
            data, self._walked, count, base_offset, self._low, self._high, self._slots,
            rules.drops_tombstones, rules.empty_is_tombstone, rules.keeps_keyless, out, deltas, facts,
        )  # fmt: skip
        kept, size, newest_ms, tombstones = facts.tolist()
        data_kept = None if kept == count else memoryview(out.data)[:size]
        return Chosen(data_kept, deltas[:kept].tolist(), newest_ms, tombstones > 0)

    def _walk(self, records: Buffer, count: int, last_delta: int) -> Any:
        if count > BATCH_MESSAGES_MAX:
            raise TooLargeExpanded(f"a batch of {count} records, {BATCH_MESSAGES_MAX} can be compacted")
        if count < 0 or count * RECORD_BYTES_MIN > len(records):
            raise WireError("a batch that claims more records than it has bytes")
        if count > len(self._walked):
            self._walked = np.empty((count, self._code.WALKED_WIDTH), np.int64)
        data = np.frombuffer(records, np.uint8)
        data.flags.writeable = False  # the signature that was compiled
        if self._code.walk(data, count, last_delta, self._walked) < 0:
            raise WireError("the records of a batch do not add up")
        return data

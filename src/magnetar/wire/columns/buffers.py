"""Columns whose final size is not known yet: the buffers to which compiled code writes, and the columns that become of
them.
"""

from typing import Any, Final

import numpy as np

from magnetar.wire.columns.layout import KEY_END, PAIRS, PROPERTIES, ROWS, VALUE_END
from magnetar.wire.columns.model import BinaryColumn, Columns, PairsColumn, Wanted

_COPY_SLACK: Final = 16  # compiled code copies short strings with what is behind them


def _offsets(rows: int) -> Any:
    offsets = fresh(rows + 1, np.int32)
    offsets[0] = 0
    return offsets


def _binary(rows: int, size: int) -> Any:
    return _offsets(rows), fresh(size + _COPY_SLACK, np.uint8), fresh(rows, np.uint8)


def fresh(count: int, kind: Any) -> Any:
    """Memory for compiled code to write to."""
    return np.empty(count, kind)


_NO_NUMBERS: Final = np.zeros(1, np.int64)
_NO_TYPES: Final = np.zeros(1, np.int32)
_NO_BINARY: Final = _binary(0, 0)


class Usual:
    """How many pairs the rows of the last call had, for a guess at the next."""

    def __init__(self) -> None:
        self.pairs_per_row = 1.0
        self.name_bytes_per_pair = 16.0
        self.content_bytes_per_pair = 32.0


class Buffers:
    """Columns of `rows_max` rows before it is known how many there are; `bytes_max` for keys, and again for values."""

    def __init__(
        self, wanted: Wanted, rows_max: int, bytes_max: int, usual_headers: Usual, usual_properties: Usual
    ) -> None:
        self._wanted = wanted
        self._rows_max = rows_max
        self.wants = np.array(
            [
                wanted.key,
                wanted.value,
                wanted.offset,
                wanted.timestamp,
                wanted.timestamp_type,
                wanted.headers,
                wanted.pulsar,
            ],
            np.int64,
        )
        self.key = _binary(rows_max, bytes_max) if wanted.key else _NO_BINARY
        self.value = _binary(rows_max, bytes_max) if wanted.value else _NO_BINARY
        self.numbers = (
            fresh(rows_max, np.int64) if wanted.offset else _NO_NUMBERS,
            fresh(rows_max, np.int64) if wanted.timestamp else _NO_NUMBERS,
            fresh(rows_max, np.int32) if wanted.timestamp_type else _NO_TYPES,
        )
        self.headers = _Pairs(rows_max, usual_headers if wanted.headers else None, PAIRS)
        rows = rows_max if wanted.pulsar else 1
        self.origins = (
            fresh(rows, np.int32),
            fresh(rows, np.int32),
            fresh(rows, np.int64),
            fresh(rows, np.int64),
        )
        self.properties = _Pairs(rows_max, usual_properties if wanted.pulsar else None, PROPERTIES)

    def have_room(self, ends: Any) -> bool:
        """Whether all headers and properties were written; if not, there is room for them now."""
        headers_fit = self.headers.have_room(ends)
        return self.properties.have_room(ends) and headers_fit

    def columns(self, ends: Any) -> Columns:
        wanted = self._wanted
        count = int(ends[ROWS])
        columns = Columns(count)
        if wanted.key:
            columns.key = _cut(self.key, count, int(ends[KEY_END]))
        if wanted.value:
            columns.value = _cut(self.value, count, int(ends[VALUE_END]))
        offsets, times, types = self.numbers
        if wanted.offset:
            columns.offset = offsets[:count]
        if wanted.timestamp:
            columns.timestamp_us = times[:count]
        if wanted.timestamp_type:
            columns.timestamp_type = types[:count]
        if wanted.headers:
            columns.headers = self.headers.column(ends)
        return columns


class _Pairs:
    """A column of pairs before it is known how many there are; none at all without `usual`."""

    def __init__(self, rows_max: int, usual: "Usual | None", first: int) -> None:
        self._rows_max = rows_max
        self._usual = usual
        self._ends = first  # of three: pairs, then how far names and contents go
        self.arrays: Any = (_NO_TYPES, _NO_BINARY, _NO_BINARY)
        if usual is not None:
            pairs = int(rows_max * usual.pairs_per_row * 1.2) + 64
            self._make(
                pairs,
                int(pairs * usual.name_bytes_per_pair * 1.2) + 64,
                int(pairs * usual.content_bytes_per_pair * 1.2) + 64,
            )

    def _make(self, pairs: int, name_bytes: int, content_bytes: int) -> None:
        self._room = (pairs, name_bytes, content_bytes)
        self.arrays = (_offsets(self._rows_max), _binary(pairs, name_bytes), _binary(pairs, content_bytes))

    def have_room(self, ends: Any) -> bool:
        """Whether all pairs were written; if not, there is room for them now."""
        usual = self._usual
        if usual is None:
            return True
        needed = [int(end) for end in ends[self._ends : self._ends + 3]]
        pairs, name_bytes, content_bytes = needed
        usual.pairs_per_row = pairs / max(int(ends[ROWS]), 1)
        usual.name_bytes_per_pair = name_bytes / max(pairs, 1)
        usual.content_bytes_per_pair = content_bytes / max(pairs, 1)
        if all(need <= room for need, room in zip(needed, self._room, strict=True)):
            return True
        self._make(pairs, name_bytes, content_bytes)
        return False

    def column(self, ends: Any) -> PairsColumn:
        offsets, names, contents = self.arrays
        pairs, name_bytes, content_bytes = (int(end) for end in ends[self._ends : self._ends + 3])
        rows = int(ends[ROWS])
        return PairsColumn(
            offsets[: rows + 1], _cut(names, pairs, name_bytes), _cut(contents, pairs, content_bytes)
        )


def _cut(column: Any, count: int, end: int) -> BinaryColumn:
    """A column to its length; what is much smaller than its buffer does not keep that alive."""
    offsets, data, valid = column
    data = data[:end].copy() if 2 * end < len(data) else data[:end]
    valid = valid[:count]
    return BinaryColumn(offsets[: count + 1], data, None if valid.all() else valid.view(np.bool_))

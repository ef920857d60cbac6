"""The aborted transactions of one partition whose records or markers are still in its log: found by offset, stored in
blocks.

They are added in the order of their markers, and retention removes them in the same order.  So they are kept in
blocks of up to `BLOCK_ROWS`, each with three columns of numbers: 24 bytes for a transaction.  A full block never
changes again, so a snapshot writes only the blocks that have changed since the previous one.  Each block knows where
the earliest of its transactions begins, so a reader searches only the few blocks that concern it.

Block, version 1, big-endian::

    0   u32  count          at least 1
    4   i64  base_offset    the first marker's
    12  i64  base_id        the least producer id
    20  three columns: u8 width (1, 2, 4 or 8), then `count` unsigned numbers of that width
        markers             each one's offset less the one before it (of the first: less `base_offset`)
        lengths             the marker's offset less that of the transaction's first record
        producers           the producer's id less `base_id`
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Set
from itertools import accumulate
from struct import Struct
from struct import error as StructError
from typing import Final

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.log.model import AbortedRange

BLOCK_ROWS: Final = 1024
_HEAD: Final = Struct(">Iqq")
_WIDTHS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


class _Block:
    """`number` counts all blocks that this partition ever had."""

    __slots__ = ("_ids", "earliest", "encoded", "firsts", "markers", "number", "producers")

    def __init__(self, number: int) -> None:
        self.number = number
        self.producers = array("q")
        self.firsts = array("q")
        self.markers = array("q")
        self.earliest = 0  # the least of `firsts`
        self.encoded: bytes | None = None
        self._ids: frozenset[int] = frozenset()

    @property
    def ids(self) -> frozenset[int]:
        """The ids of its producers, computed when a caller first asks for them."""
        if not self._ids:
            self._ids = frozenset(self.producers)
        return self._ids

    def add(self, one: AbortedRange) -> None:
        self.earliest = min(self.earliest, one.first_offset) if self.firsts else one.first_offset
        self.producers.append(one.producer_id)
        self.firsts.append(one.first_offset)
        self.markers.append(one.last_offset)
        self.encoded = None
        self._ids = frozenset()

    def cut(self, begin: int, end: int) -> None:
        """Keep only the rows from `begin` (inclusive) to `end` (exclusive), which are at least one."""
        for column in (self.producers, self.firsts, self.markers):
            del column[end:]
            del column[:begin]
        self.earliest = min(self.firsts)
        self._ids = frozenset()


class AbortedIndex:
    """See the module's text."""

    __slots__ = ("_blocks", "_next_number")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []  # none of them empty
        self._next_number = 0

    def __len__(self) -> int:
        return sum(len(block.markers) for block in self._blocks)

    def __contains__(self, producer_id: int) -> bool:
        return any(producer_id in block.producers for block in self._blocks)

    def add(self, one: AbortedRange) -> None:
        """Add a transaction; its marker must be after all others."""
        if not self._blocks or len(self._blocks[-1].markers) >= BLOCK_ROWS:
            self._blocks.append(_Block(self._next_number))
            self._next_number += 1
        self._blocks[-1].add(one)

    def between(
        self, offset: int, end_offset: int, producers_wanted: Set[int] | None = None
    ) -> list[AbortedRange]:
        """The transactions with records or their marker from `offset` (inclusive) to `end_offset` (exclusive), in the
        order of markers; only those of `producers_wanted` (None: all).
        """
        found: list[AbortedRange] = []
        blocks = self._blocks
        for number in range(bisect_left(blocks, offset, key=_last_marker), len(blocks)):
            block = blocks[number]
            if block.earliest >= end_offset:
                continue
            if producers_wanted is not None and block.ids.isdisjoint(producers_wanted):
                continue
            firsts, markers, producers = block.firsts, block.markers, block.producers
            found += [
                AbortedRange(producers[row], firsts[row], markers[row])
                for row in range(bisect_left(markers, offset), len(markers))
                if firsts[row] < end_offset
                and (producers_wanted is None or producers[row] in producers_wanted)
            ]
        return found

    def has_any(self, offset: int, end_offset: int) -> bool:
        """Whether `between` returns any; it is fast, because a subscription asks for each entry."""
        blocks = self._blocks
        for number in range(bisect_left(blocks, offset, key=_last_marker), len(blocks)):
            block = blocks[number]
            if block.earliest < end_offset and (
                block.markers[0] >= offset
                or min(block.firsts[bisect_left(block.markers, offset) :]) < end_offset
            ):
                return True
        return False

    def has(self, producer_id: int, offset: int, end_offset: int) -> bool:
        """Whether `between` returns one of this producer."""
        blocks = self._blocks
        for number in range(bisect_left(blocks, offset, key=_last_marker), len(blocks)):
            block = blocks[number]
            if block.earliest < end_offset and producer_id in block.ids:
                producers, firsts = block.producers, block.firsts
                for row in range(bisect_left(block.markers, offset), len(firsts)):
                    if producers[row] == producer_id and firsts[row] < end_offset:
                        return True
        return False

    def forget_from(self, end_offset: int) -> None:
        """Forget the transactions whose marker is at or after `end_offset`, because these markers were not stored."""
        while self._blocks and self._blocks[-1].markers[-1] >= end_offset:
            block = self._blocks[-1]
            kept = bisect_left(block.markers, end_offset)
            if kept:
                block.cut(0, kept)
                block.encoded = None
            else:
                self._blocks.pop()
                self._next_number = block.number

    def forget_below(self, log_start: int) -> bool:
        """Forget the transactions whose marker is below `log_start`, because these records were deleted.  Returns
        whether a stored block is not needed any more.
        """
        gone = bisect_left(self._blocks, log_start, key=_last_marker)
        del self._blocks[:gone]
        if self._blocks and self._blocks[0].markers[0] < log_start:
            block = self._blocks[0]
            block.cut(bisect_left(block.markers, log_start), len(block.markers))  # a stored one may have more
        return gone > 0

    def encode(self) -> dict[int, bytes]:
        """Every block by its number; a block that has not changed gives the same bytes object as last time."""
        for block in self._blocks:
            if block.encoded is None:
                block.encoded = _encoded(block)
        return {block.number: block.encoded for block in self._blocks if block.encoded is not None}

    @classmethod
    def decode(cls, numbers: Iterable[int], blocks: Mapping[int, bytes]) -> "AbortedIndex":
        """The inverse of `encode`: the blocks of these numbers.

        Raises:
            EntryCorrupt: one of the blocks is missing or damaged.
        """
        index = cls()
        last = -1
        for number in numbers:
            if number not in blocks:
                raise EntryCorrupt(f"block {number} of the aborted transactions is missing")
            block = _decoded(number, blocks[number])
            if block.markers[0] <= last:
                raise EntryCorrupt(f"block {number} of the aborted transactions is out of order")
            last = block.markers[-1]
            index._blocks.append(block)
            index._next_number = number + 1
        return index


def _last_marker(block: _Block) -> int:
    return block.markers[-1]


def _encoded(block: _Block) -> bytes:
    base_offset, base_id = block.markers[0], min(block.producers)
    before = [base_offset, *block.markers[:-1]]
    return b"".join(
        (
            _HEAD.pack(len(block.markers), base_offset, base_id),
            _column([marker - one for marker, one in zip(block.markers, before, strict=True)]),
            _column([marker - first for marker, first in zip(block.markers, block.firsts, strict=True)]),
            _column([one - base_id for one in block.producers]),
        )
    )


def _column(values: list[int]) -> bytes:
    greatest = max(values)
    width = next(one for one in _WIDTHS if greatest < 1 << 8 * one)
    column = array(_WIDTHS[width], values)
    if sys.byteorder == "little":
        column.byteswap()
    return bytes([width]) + column.tobytes()


def _decoded(number: int, data: bytes) -> _Block:
    block = _Block(number)
    try:
        count, base_offset, base_id = _HEAD.unpack_from(data)
        position = _HEAD.size
        columns: list[array[int]] = []
        for _ in range(3):
            column = array(_WIDTHS[data[position]])
            end = position + 1 + count * column.itemsize
            column.frombytes(data[position + 1 : end])
            if len(column) != count:
                raise EntryCorrupt("a block of aborted transactions is cut short")
            if sys.byteorder == "little":
                column.byteswap()
            columns.append(column)
            position = end
        if count == 0 or position != len(data):
            raise EntryCorrupt("a block of aborted transactions is malformed")
        steps, lengths, producers = columns
        block.markers = array("q", [base_offset + one for one in accumulate(steps)])
        block.firsts = array("q", [last - size for last, size in zip(block.markers, lengths, strict=True)])
        block.producers = array("q", [base_id + one for one in producers])
    except (StructError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise EntryCorrupt(f"a block of aborted transactions is malformed: {error!r}") from error
    block.earliest = min(block.firsts)
    block.encoded = data
    return block

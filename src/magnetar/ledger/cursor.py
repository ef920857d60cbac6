"""A cursor: how far one subscription has got in one partition.

Offsets are dense and count messages, so a cursor is one number and a set of offset ranges.  All messages below
`mark_delete` are acknowledged.  (A Kafka group's committed offset *is* `mark_delete`: the next offset to consume.)  So
are the half-open ranges above it (Pulsar's individual and batch-index acknowledgements).  `counted` says how often
messages that are not acknowledged were delivered in vain, for subscriptions whose counts must outlive the consumers and
the process.  What must stay true:

* ranges are sorted and not empty; there is a gap between each two, and between `mark_delete` and the first;
* an acknowledgement never moves `mark_delete` down; a `reset`, or a Kafka commit, may.

A cursor is a plain value: its owner changes it in place or copies it.  `cursor_store` stores cursors.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt
from magnetar.base.varint import varint

FORMAT: Final = """Cursor value, big-endian.  v2; v1 is the same without counts, and still written where there are none

     0  u8   magic               0xC5
     1  u8   version             1 or 2
     2  u8   flags               bit 0: holds_data; the others are 0
     3  u8   reserved            0
     4  i64  mark_delete         next offset to consume
    12  i32  leader_epoch        of the last consumed record, -1 when the client did not say
    16  i64  commit_timestamp    ms since the epoch
    24  i64  expire_timestamp    ms since the epoch, -1 when the client did not ask for one
    32  u16  metadata size, then that many bytes of UTF-8
     .  u16  property count, then for each: u16 size and UTF-8 of the name, u16 size and UTF-8 of the value
     .  u32  range count, then for each: varint gap, varint length (LEB128, both at least 1);
             the gap counts from the end of the range before, or from mark_delete
     .  u32  (v2) count of counts, then for each: varint 1 + gap, varint length, varint times (all at least 1);
             so often the records of these offsets were delivered in vain
     .  u32  crc32c              of everything before

Values are replaced whole, so there are no torn ones: a bad checksum is damage.
"""
MAGIC: Final = 0xC5
PLAIN_VERSION: Final = 1
VERSION: Final = 2  # with counts
HOLDS_DATA: Final = 0x01
HEADER: Final = struct.Struct(">BBBBqiqqH")
assert HEADER.size == 34
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")

METADATA_BYTES_MAX: Final = 0x7FFF  # what a Kafka string of the older versions can hold
PROPERTY_COUNT_MAX: Final = 256
PROPERTY_BYTES_MAX: Final = 0x3FF  # 256 properties of 2 x 1023 bytes leave room for the ranges
# An encoded cursor must fit a metadata value (1 MiB), and a range takes two varints of 63 bits, so 20 bytes at most.
# Ranges beyond this many are not stored: after a restart the broker delivers their messages again, and loses none.
RANGES_STORED_MAX: Final = 20_000
# Likewise: after a restart, records beyond this many ranges begin with a count of 0.
COUNTS_STORED_MAX: Final = 4_000
TIMES_STORED_MAX: Final = (1 << 15) - 1  # Kafka's protocol cannot express more
OFFSET_MAX: Final = (1 << 63) - 1
_WISH: Final = "kafka.committed.offset"  # the property that keeps a negative committed offset


class Counted(NamedTuple):
    """A half-open range of offsets, and how often its records were delivered in vain."""

    start: int
    stop: int
    times: int


@dataclass(slots=True, eq=True)
class Cursor:
    """Position of a subscription in a partition.

    `holds_data`: unacknowledged messages are kept for it and it never expires (a subscription made by a
    Pulsar client); a Kafka group's cursor holds nothing and expires.  Timestamps are milliseconds since
    the epoch.  `counted` is ascending and replaced as a whole; its counts of acknowledged offsets mean nothing.
    """

    mark_delete: int = 0
    metadata: str = ""
    leader_epoch: int = -1
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int | None = None
    holds_data: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    counted: tuple[Counted, ...] = ()

    def copy(self) -> "Cursor":
        return Cursor(
            self.mark_delete,
            self.metadata,
            self.leader_epoch,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            self.holds_data,
            dict(self.properties),
            self._starts.copy(),
            self._ends.copy(),
            self.counted,
        )

    @property
    def committed_offset(self) -> int:
        """The offset that Kafka clients get: the next one to consume, or the negative one that a client committed."""
        wish = self.properties.get(_WISH)
        return self.mark_delete if wish is None else int(wish)

    def first_ranges(self, count: int) -> list[tuple[int, int]]:
        """The first of `ranges`."""
        return list(zip(self._starts[:count], self._ends[:count], strict=True))

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The individually acknowledged half-open ranges above `mark_delete`, ascending."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def has_holes(self) -> bool:
        """Whether any message above `mark_delete` is acknowledged."""
        return bool(self._starts)

    @property
    def range_count(self) -> int:
        """How many ranges above `mark_delete` are acknowledged."""
        return len(self._starts)

    def is_acknowledged(self, offset: int) -> bool:
        if offset < self.mark_delete:
            return True
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def next_unacknowledged(self, offset: int) -> int:
        """The first offset at or after `offset` that is not acknowledged."""
        if offset < self.mark_delete:
            return self.mark_delete  # no range touches it
        index = bisect_right(self._starts, offset) - 1
        return self._ends[index] if index >= 0 and offset < self._ends[index] else offset

    def unacknowledged(self, start: int, end: int) -> list[tuple[int, int]]:
        """The half-open ranges of `start` (inclusive) to `end` (exclusive) that are not acknowledged."""
        start = max(start, self.mark_delete)
        if start >= end:
            return []
        if not self._starts:
            return [(start, end)]
        found: list[tuple[int, int]] = []
        for index in range(bisect_right(self._ends, start), bisect_left(self._starts, end)):
            if start < self._starts[index]:
                found.append((start, self._starts[index]))
            start = self._ends[index]
        if start < end:
            found.append((start, end))
        return found

    def ack_individual(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Acknowledge half-open ranges `(start, end)`; returns whether that changed the cursor."""
        changed = False
        for start, end in ranges:
            assert 0 <= start < end <= OFFSET_MAX, (start, end)
            if end > self.mark_delete:
                changed |= self._add(max(start, self.mark_delete), end)
        return changed

    def take_back(self, ranges: Sequence[tuple[int, int]]) -> None:
        """The inverse of `ack_individual`, for ascending ranges above `mark_delete`."""
        if not ranges:
            return
        starts, ends = self._starts, self._ends
        low, high = bisect_right(ends, ranges[0][0]), bisect_left(starts, ranges[-1][1])
        left: list[tuple[int, int]] = []
        at = 0
        for start, end in zip(starts[low:high], ends[low:high], strict=True):
            while ranges[at][1] <= start:  # the last one ends behind it
                at += 1
            while at < len(ranges) and ranges[at][0] < end:
                if start < ranges[at][0]:
                    left.append((start, ranges[at][0]))
                start = ranges[at][1]
                if start >= end:
                    break  # it may reach into the next one
                at += 1
            if start < end:
                left.append((start, end))
        starts[low:high] = [start for start, _ in left]
        ends[low:high] = [end for _, end in left]

    def ack_cumulative(self, offset: int) -> bool:
        """Acknowledge everything below `offset`, never back; returns whether that changed the cursor."""
        assert 0 <= offset <= OFFSET_MAX, offset
        return offset > self.mark_delete and self._add(self.mark_delete, offset)

    def reset(self, offset: int) -> None:
        """Start over from `offset`, in either direction: nothing at or above it is acknowledged, or was delivered."""
        assert 0 <= offset <= OFFSET_MAX, offset
        self.mark_delete = offset
        self.counted = ()
        self._starts.clear()
        self._ends.clear()

    def commit(self, offset: int) -> None:
        """Kafka's commit: forward it acknowledges all messages below `offset`; backward it starts again from
        `offset`.

        A commit forward keeps what a Pulsar consumer of the same subscription has acknowledged one by one, so
        `mark_delete` can end above `offset`.

        A negative offset is a wish, not a position (kafkajs commits -2 for "from the earliest" and -1 for "from the
        latest").  It acknowledges nothing, and clients get it back unchanged until the next commit.
        """
        if offset < 0:
            self.properties[_WISH] = str(offset)
            return
        self.properties.pop(_WISH, None)
        if offset < self.mark_delete:
            self.reset(offset)
        else:
            self.ack_cumulative(offset)

    def forget_wish(self) -> None:
        """Drop a committed negative offset, if there is one: from now on clients get the real position."""
        self.properties.pop(_WISH, None)

    def backlog(self, log_end: int, log_start: int = 0) -> int:
        """How many messages of `log_start` (inclusive) to `log_end` (exclusive) are not acknowledged."""
        first = max(self.mark_delete, log_start)
        if log_end <= first:
            return 0
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, log_end)
        if low >= high:
            return log_end - first
        # There may be half a million ranges: two sums of them take 6 ms, and a loop takes 120.
        acknowledged = sum(self._ends[low:high]) - sum(self._starts[low:high])
        acknowledged -= max(first - self._starts[low], 0) + max(self._ends[high - 1] - log_end, 0)
        return log_end - first - acknowledged

    def _add(self, start: int, end: int) -> bool:
        starts, ends = self._starts, self._ends
        low = bisect_left(
            ends, start
        )  # the first range that ends at or after our start: it touches or overlaps
        high = bisect_right(starts, end)  # one past the last range that begins at or before our end
        if low < high:
            if starts[low] <= start and end <= ends[low]:
                return False
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        if start <= self.mark_delete:
            self.mark_delete = end
            del starts[:high], ends[:high]
        else:
            starts[low:high] = [start]
            ends[low:high] = [end]
        return True

    def encode(self) -> bytes:
        """The value as `FORMAT` describes it.

        Raises:
            ValueError: the metadata or a property is larger than the format takes.
        """
        metadata = self.metadata.encode()
        if len(metadata) > METADATA_BYTES_MAX or len(self.properties) > PROPERTY_COUNT_MAX:
            raise ValueError("a cursor's metadata or properties are too large to store")
        expires = -1 if self.expire_timestamp_ms is None else self.expire_timestamp_ms
        counted = [one for one in self.counted if one.stop > self.mark_delete][:COUNTS_STORED_MAX]
        out = bytearray(
            HEADER.pack(
                MAGIC,
                VERSION if counted else PLAIN_VERSION,
                HOLDS_DATA if self.holds_data else 0,
                0,
                self.mark_delete,
                self.leader_epoch,
                self.commit_timestamp_ms,
                expires,
                len(metadata),
            )
        )
        out += metadata
        out += _U16.pack(len(self.properties))
        for name, value in self.properties.items():
            for text in (name.encode(), value.encode()):
                if len(text) > PROPERTY_BYTES_MAX:
                    raise ValueError("a cursor's property is too large to store")
                out += _U16.pack(len(text))
                out += text
        count = min(len(self._starts), RANGES_STORED_MAX)
        out += _U32.pack(count)
        position = self.mark_delete
        for index in range(count):
            out += varint(self._starts[index] - position)
            out += varint(self._ends[index] - self._starts[index])
            position = self._ends[index]
        if counted:
            out += _U32.pack(len(counted))
            position = self.mark_delete
            for start, stop, times in counted:
                start = max(start, position)
                out += varint(1 + start - position)
                out += varint(stop - start)
                out += varint(min(times, TIMES_STORED_MAX))
                position = stop
        out += _U32.pack(crc32c(out))
        return bytes(out)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """The cursor whose `encode` returned `value`.

        Raises:
            EntryCorrupt: the bytes are no cursor, fail their checksum, or have a version unknown to this build.
        """
        if len(value) < HEADER.size + 10 or value[0] != MAGIC:
            raise EntryCorrupt("a stored cursor is not one")
        if crc32c(value[:-4]) != _U32.unpack_from(value, len(value) - 4)[0]:
            raise EntryCorrupt("a stored cursor fails its checksum")
        if value[1] not in (PLAIN_VERSION, VERSION):
            raise EntryCorrupt(f"a stored cursor has format version {value[1]}; this build reads {VERSION}")
        try:
            return cls._decode_body(value)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise EntryCorrupt("a stored cursor is malformed") from error

    @classmethod
    def _decode_body(cls, value: bytes) -> Self:
        _, version, flags, _, mark_delete, epoch, committed, expires, size = HEADER.unpack_from(value)
        at = HEADER.size
        metadata = value[at : at + size].decode()
        at += size
        texts: list[str] = []
        (count,) = _U16.unpack_from(value, at)
        at += 2
        for _ in range(2 * count):
            (size,) = _U16.unpack_from(value, at)
            texts.append(value[at + 2 : at + 2 + size].decode())
            at += 2 + size
        (count,) = _U32.unpack_from(value, at)
        at += 4
        starts: list[int] = []
        ends: list[int] = []
        position = mark_delete
        for _ in range(count):
            gap, at = _get_varint(value, at)
            length, at = _get_varint(value, at)
            starts.append(position + gap)
            position += gap + length
            ends.append(position)
        counted: list[Counted] = []
        counted_to = mark_delete
        if version == VERSION:
            (count,) = _U32.unpack_from(value, at)
            at += 4
            for _ in range(count):
                gap, at = _get_varint(value, at)
                length, at = _get_varint(value, at)
                times, at = _get_varint(value, at)
                start = counted_to + gap - 1
                counted_to = start + length
                counted.append(Counted(start, counted_to, times))
        if at != len(value) - 4 or max(position, counted_to) > OFFSET_MAX or mark_delete < 0:
            raise EntryCorrupt("a stored cursor is malformed")
        return cls(
            mark_delete,
            metadata,
            epoch,
            committed,
            None if expires < 0 else expires,
            bool(flags & HOLDS_DATA),
            dict(zip(texts[::2], texts[1::2], strict=True)),
            starts,
            ends,
            tuple(counted),
        )


def _get_varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 56:
            raise EntryCorrupt("a stored cursor is malformed")
    if number == 0:
        raise EntryCorrupt("a stored cursor is malformed")
    return number, at

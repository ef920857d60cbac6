"""What a query's filters leave to read: by topic, partition, offset and timestamp, before a byte is read.

Spark hands over simple comparisons.  Spark does not apply a filter again that this module takes over, so the module
must apply it exactly, for every row.  A filter that only narrows what is read also goes back to Spark.  The four
columns are never null.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

OFFSET_MAX: Final = (1 << 63) - 1
OFFSET_MIN: Final = -(1 << 63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})

_Comparison = Callable[[Any, Any], bool]


@dataclass(slots=True)
class Restriction:
    """The rows that a query wants: offsets and timestamps from the first to before the second of each pair."""

    from_offset: int = OFFSET_MIN
    to_offset: int = OFFSET_MAX
    from_timestamp_ms: int = OFFSET_MIN
    to_timestamp_ms: int = OFFSET_MAX
    tests: list[tuple[str, Callable[[Any], bool]]] = field(default_factory=list)

    def wants(self, topic: str, partition: int) -> bool:
        values = {"topic": topic, "partition": partition}
        return all(test(values[column]) for column, test in self.tests)

    @property
    def empty(self) -> bool:
        return self.from_offset >= self.to_offset or self.from_timestamp_ms >= self.to_timestamp_ms

    # -- narrowing

    def _offsets(self, first: int, end: int) -> None:
        self.from_offset = max(self.from_offset, first)
        self.to_offset = min(self.to_offset, end)

    def _timestamps(self, first_ms: int, end_ms: int) -> None:
        self.from_timestamp_ms = max(self.from_timestamp_ms, first_ms)
        self.to_timestamp_ms = min(self.to_timestamp_ms, end_ms)

    def push(self, filters: "Iterable[Filter]") -> "list[Filter]":
        """Take over the filters that this can apply; returns the others."""
        return [each for each in filters if not self._take(each)]

    def _take(self, condition: "Filter") -> bool:
        """Narrow by one filter; returns whether it now holds for every row that is read."""
        from pyspark.sql import datasource as ds

        negated = isinstance(condition, ds.Not)
        inner: Any = condition.child if isinstance(condition, ds.Not) else condition
        column = inner.attribute[0] if len(inner.attribute) == 1 else ""
        if isinstance(inner, ds.IsNotNull):
            return not negated and column in _NEVER_NULL
        if isinstance(inner, ds.IsNull) or column not in _NEVER_NULL:
            return negated and isinstance(inner, ds.IsNull) and column in _NEVER_NULL
        value = inner.value
        if isinstance(inner, ds.In):
            value = tuple(value)
            if any(each is None for each in value):
                return False
        if value is None:
            return False
        if column in ("topic", "partition"):
            return self._take_test(column, type(inner).__name__, value, negated=negated)
        if negated:
            return False
        if column == "offset":
            return self._take_offset(type(inner).__name__, value)
        if column == "timestamp":
            return self._take_timestamp(type(inner).__name__, value)
        return False

    def _take_test(self, column: str, name: str, value: Any, *, negated: bool) -> bool:
        compare = _COMPARISONS.get(name)
        if compare is None:
            return False
        self.tests.append((column, lambda own: compare(own, value) is not negated))
        return True

    def _take_offset(self, name: str, value: Any) -> bool:
        if name == "In":
            self._offsets(min(value, default=OFFSET_MAX), max(value, default=OFFSET_MIN) + 1)
            return False  # narrowed, but other rows may be in between
        bounds = _bounds(name, value, value + 1 if isinstance(value, int) else value)
        if bounds is None:
            return False
        self._offsets(*bounds)
        return True

    def _take_timestamp(self, name: str, value: Any) -> bool:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return False
        at_us = (value - _EPOCH) // timedelta(microseconds=1)
        # The first one not before it, and the first one after it.
        from_ms, after_ms = -(-at_us // 1000), at_us // 1000 + 1
        bounds = _bounds(name, from_ms, after_ms)
        if bounds is None:
            return False
        self._timestamps(*bounds)
        return True


def _bounds(name: str, at: int, after: int) -> tuple[int, int] | None:
    """The numbers that a comparison allows, from the first to before the second; None if it is not a range."""
    match name:
        case "EqualTo" | "EqualNullSafe":
            return at, after
        case "GreaterThan":
            return after, OFFSET_MAX
        case "GreaterThanOrEqual":
            return at, OFFSET_MAX
        case "LessThan":
            return OFFSET_MIN, at
        case "LessThanOrEqual":
            return OFFSET_MIN, after
    return None


_COMPARISONS: Final[dict[str, _Comparison]] = {
    "EqualTo": lambda own, value: bool(own == value),
    "EqualNullSafe": lambda own, value: bool(own == value),
    "GreaterThan": lambda own, value: bool(own > value),
    "GreaterThanOrEqual": lambda own, value: bool(own >= value),
    "LessThan": lambda own, value: bool(own < value),
    "LessThanOrEqual": lambda own, value: bool(own <= value),
    "In": lambda own, value: own in value,
    "StringStartsWith": lambda own, value: isinstance(own, str) and own.startswith(value),
    "StringEndsWith": lambda own, value: isinstance(own, str) and own.endswith(value),
    "StringContains": lambda own, value: isinstance(own, str) and value in own,
}

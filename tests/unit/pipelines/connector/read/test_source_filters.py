"""Filters of a query: what is taken over holds exactly, what only narrows goes back to Spark."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from magnetar.pipelines.connector.read.filters import OFFSET_MAX, OFFSET_MIN, Restriction

OFFSET, PARTITION, TOPIC, TIME, KEY = ("offset",), ("partition",), ("topic",), ("timestamp",), ("key",)


def _pushed(*filters: Filter) -> tuple[Restriction, list[Filter]]:
    restriction = Restriction()
    return restriction, restriction.push(filters)


@pytest.mark.parametrize(
    ("condition", "first", "end"),
    [
        (EqualTo(OFFSET, 5), 5, 6),
        (EqualNullSafe(OFFSET, 5), 5, 6),
        (GreaterThan(OFFSET, 5), 6, OFFSET_MAX),
        (GreaterThanOrEqual(OFFSET, 5), 5, OFFSET_MAX),
        (LessThan(OFFSET, 5), OFFSET_MIN, 5),
        (LessThanOrEqual(OFFSET, 5), OFFSET_MIN, 6),
    ],
)
def test_offsets(condition: Filter, first: int, end: int) -> None:
    restriction, left = _pushed(condition)
    assert not left
    assert (restriction.from_offset, restriction.to_offset) == (first, end)


def test_a_list_of_offsets_narrows_and_goes_back() -> None:
    condition = In(OFFSET, (9, 3))
    restriction, left = _pushed(condition)
    assert left == [condition]
    assert (restriction.from_offset, restriction.to_offset) == (3, 10)


def test_times_between_milliseconds() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ms = 1_767_225_600_000
    between = at + timedelta(microseconds=500)
    for condition, first, end in [
        (EqualTo(TIME, at), ms, ms + 1),
        (GreaterThan(TIME, at), ms + 1, OFFSET_MAX),
        (GreaterThanOrEqual(TIME, at), ms, OFFSET_MAX),
        (LessThan(TIME, at), OFFSET_MIN, ms),
        (LessThanOrEqual(TIME, at), OFFSET_MIN, ms + 1),
        (GreaterThan(TIME, between), ms + 1, OFFSET_MAX),
        (GreaterThanOrEqual(TIME, between), ms + 1, OFFSET_MAX),
        (LessThan(TIME, between), OFFSET_MIN, ms + 1),
        (LessThanOrEqual(TIME, between), OFFSET_MIN, ms + 1),
        (EqualTo(TIME, at.astimezone(timezone(timedelta(hours=5)))), ms, ms + 1),
        (EqualTo(TIME, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)), -1, 0),
    ]:
        restriction, left = _pushed(condition)
        assert not left
        assert (restriction.from_timestamp_ms, restriction.to_timestamp_ms) == (first, end), condition
    assert _pushed(EqualTo(TIME, between))[0].empty


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (EqualTo(PARTITION, 1), {("a", 1), ("b", 1)}),
        (In(PARTITION, (0, 1)), {("a", 0), ("a", 1), ("b", 1)}),
        (Not(In(PARTITION, (0, 1))), {("b", 2)}),
        (GreaterThan(PARTITION, 0), {("a", 1), ("b", 1), ("b", 2)}),
        (Not(EqualTo(TOPIC, "a")), {("b", 1), ("b", 2)}),
        (StringStartsWith(TOPIC, "a"), {("a", 0), ("a", 1)}),
        (StringEndsWith(TOPIC, "b"), {("b", 1), ("b", 2)}),
        (StringContains(TOPIC, "x"), set()),
        (LessThanOrEqual(TOPIC, "a"), {("a", 0), ("a", 1)}),
    ],
)
def test_topics_and_partitions(condition: Filter, wanted: set[tuple[str, int]]) -> None:
    restriction, left = _pushed(condition)
    assert not left
    every = [("a", 0), ("a", 1), ("b", 1), ("b", 2)]
    assert {each for each in every if restriction.wants(*each)} == wanted


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(KEY, b"k"),
        IsNotNull(KEY),
        IsNull(OFFSET),
        Not(EqualTo(OFFSET, 3)),
        Not(GreaterThan(TIME, datetime(2026, 1, 1, tzinfo=UTC))),
        EqualTo(OFFSET, None),
        In(PARTITION, (1, None)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("timestampType",), 0),
        GreaterThan(TIME, datetime(2026, 1, 1)),  # noqa: DTZ001 - what would come without a zone
    ],
)
def test_what_is_not_understood_goes_back_and_narrows_nothing(condition: Filter) -> None:
    restriction, left = _pushed(condition)
    assert left == [condition]
    assert restriction == Restriction()


def test_what_always_holds_is_taken() -> None:
    assert _pushed(IsNotNull(OFFSET), IsNotNull(TOPIC), Not(IsNull(PARTITION))) == (Restriction(), [])


def test_several_narrow_together() -> None:
    restriction, left = _pushed(GreaterThan(OFFSET, 3), LessThan(OFFSET, 4))
    assert not left
    assert restriction.empty

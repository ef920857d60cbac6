"""The demo's Spark part is held to the data set, and its plot shows what it is given."""

import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from typing import Any

import pytest

from demo import plot, spark
from demo.flights import Flights

FLIGHTS = [
    {"origin": "JFK", "year": 2013, "month": 1, "day": 1, "hour": 5, "dep_delay": 10},
    {"origin": "JFK", "year": 2013, "month": 1, "day": 1, "hour": 5, "dep_delay": None},
    {"origin": "LGA", "year": 2013, "month": 1, "day": 1, "hour": 5, "dep_delay": -3},
]
DATA = Flights([None] * 3, [json.dumps(flight).encode() for flight in FLIGHTS])
AT = datetime(2013, 1, 1, 5, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [("JFK", AT, 2, 1, 10), ("LGA", AT, 1, 1, -3)]


def test_hours_as_the_data_set_has_them_are_no_fault() -> None:
    assert spark.compare(spark.hours_of(DATA), ROWS) == []


def test_flights_are_sent_in_the_order_of_time() -> None:
    times = [(10, 1, 5, 0), (2, 1, 5, 30), (2, 1, 5, 0), (1, 31, 23, 59)]
    values = [
        json.dumps(dict(zip(("month", "day", "hour", "minute"), time, strict=True))).encode()
        for time in times
    ]
    sent = spark.by_time(Flights([b"%d" % number for number in range(4)], values))
    assert list(sent.keys) == [b"3", b"2", b"1", b"0"]
    assert list(sent.values) == [values[3], values[2], values[1], values[0]]


def test_an_hour_whose_flights_were_all_cancelled_has_no_delay() -> None:
    hours = spark.hours_of(Flights([None], DATA.values[1:2]))
    assert spark.compare(hours, [("JFK", AT, 1, 0, None)]) == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (ROWS[:1], "1 hours are missing"),
        ([*ROWS, ("EWR", AT, 1, 1, 1)], "1 hours are in no flight"),
        ([*ROWS, ROWS[0]], "1 hours are there twice"),
        ([ROWS[0], ("LGA", AT, 1, 1, 3)], "1 hours have other flights or delays"),
    ],
)
def test_each_difference_is_named(rows: list[tuple[Any, ...]], fault: str) -> None:
    assert spark.compare(spark.hours_of(DATA), rows) == [fault]


def test_a_plot_has_a_line_with_a_point_for_each_value_inside_its_frame() -> None:
    text = plot.svg("A < B", "hour", "minutes", {"JFK": [(5, 2.0), (6, 31.5)], "LGA": [(5, -4.0), (6, 0)]})
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    lines = [each.get("points", "").split() for each in root.iter(f"{space}polyline")]
    assert [len(points) for points in lines] == [2, 2]
    for point in (point for points in lines for point in points):
        x, y = map(float, point.split(","))
        assert plot.LEFT <= x <= plot.WIDTH - plot.RIGHT
        assert plot.TOP <= y <= plot.HEIGHT - plot.BOTTOM
    labels = [each.text for each in root.iter(f"{space}text")]
    assert {"A < B", "JFK", "LGA", "hour", "minutes", "-5", "35"} <= set(labels)

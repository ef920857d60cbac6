"""What values of Python are in an item of DynamoDB; boto3 says what a number may be."""

import datetime
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer

from magnetar.replicators.dynamodb.attributes import attribute, size_bytes


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (None, {"NULL": True}),
        (False, {"BOOL": False}),
        (-7, {"N": "-7"}),
        (0.1, {"N": "0.1"}),
        (0.0, {"N": "0"}),
        (Decimal("1.50"), {"N": "1.5"}),
        (10**37, {"N": "1E+37"}),
        (int("7" * 38), {"N": "7" * 38}),
        (10**125, {"N": "1E+125"}),
        (int("9" * 39), {"S": "9" * 39}),
        (1e126, {"S": "1e+126"}),
        (1e-131, {"S": "1e-131"}),
        (float("nan"), {"S": "nan"}),
        (float("-inf"), {"S": "-inf"}),
        ("", {"S": ""}),
        (b"\xff", {"B": b"\xff"}),
        ([1, ["x"]], {"L": [{"N": "1"}, {"L": [{"S": "x"}]}]}),
        ({"a": {"b": None}}, {"M": {"a": {"M": {"b": {"NULL": True}}}}}),
        (datetime.date(2026, 1, 2), {"S": "2026-01-02"}),
        (datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC), {"S": "2026-01-02T03:00:00+00:00"}),
        (datetime.timedelta(seconds=5), {"S": "0:00:05"}),
    ],
    ids=str,
)
def test_each_value_is_an_attribute_that_boto3_reads(value: Any, made: dict[str, Any]) -> None:
    assert attribute(value) == made
    TypeDeserializer().deserialize(made)


def test_sizes_count_names_and_what_is_inside() -> None:
    assert size_bytes("é", attribute("é")) == 4
    assert size_bytes("a", attribute(b"12345")) == 6
    assert size_bytes("a", attribute(["xy", None])) == 1 + 3 + (1 + 2) + (1 + 1)
    assert size_bytes("a", attribute({"bc": "xy"})) == 1 + 3 + 1 + 2 + 2

"""Metrics of Kafka's clients: what is read of them, and that damage is told."""

import random
import struct

import pytest

from magnetar.base.errors import WireError
from magnetar.base.varint import varint
from magnetar.wire.otlp import Point, points


def field(number: int, value: bytes | int | float) -> bytes:
    """One field: a message or text, a varint (64 bits, negative ones as their complement), or a double."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


def integer_point(value: int, *attributes: bytes) -> bytes:
    point = varint(6 << 3 | 1) + struct.pack("<q", value)
    return b"".join(field(7, one) for one in attributes) + point


def metrics(resource: bytes, *found: bytes) -> bytes:
    """What a client pushes: one resource and its metrics."""
    scope = field(1, field(1, b"a scope")) + b"".join(field(2, one) for one in found)
    return field(1, field(1, resource) + field(2, scope))


SUM = field(1, b"sent.total") + field(
    7, field(1, integer_point(-7, attribute("node", field(3, -1)))) + field(2, 2)
)
GAUGE = field(1, b"rate") + field(3, b"unit") + field(5, field(1, field(3, 99) + field(4, 1.5)))
RESOURCE = field(1, attribute("group", field(1, b"g")))
WHOLE = metrics(RESOURCE, SUM, GAUGE)


def read(data: bytes) -> list[Point]:
    return list(points(memoryview(data)))


def test_numbers_come_with_the_attributes_of_their_resource_and_their_own() -> None:
    assert read(WHOLE) == [
        Point("sent.total", (("group", "g"), ("node", "-1")), -7),
        Point("rate", (("group", "g"),), 1.5),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(field(1, b"x"), "x"), (field(2, 1), "true"), (field(2, 0), "false"), (field(4, 0.5), "0.5"), (b"", "")],
)
def test_attributes_of_all_plain_kinds_become_text(value: bytes, shown: str) -> None:
    metric = field(1, b"m") + field(5, field(1, integer_point(1, attribute("a", value))))
    assert read(metrics(b"", metric)) == [Point("m", (("a", shown),), 1)]


def test_what_is_not_known_is_passed_over() -> None:
    histogram = field(1, b"h") + field(9, field(1, field(4, 1.0)))
    fixed32 = varint(30 << 3 | 5) + b"1234"
    assert read(metrics(b"", histogram)) == []
    assert read(fixed32 + field(9, b"x") + field(8, 1) + WHOLE) == read(WHOLE)
    assert read(b"") == []


@pytest.mark.parametrize(
    "damaged",
    [
        WHOLE[:-1],
        b"\x0a",
        b"\x0a\xff",
        b"\xff" * 11,
        b"\x0b",  # a group, which protobuf has given up
        metrics(b"", field(1, b"\xff") + field(5, field(1, field(4, 1.0)))),
    ],
)
def test_damage_is_told(damaged: bytes) -> None:
    with pytest.raises(WireError):
        read(damaged)


def test_nothing_but_wire_errors_comes_out_of_damaged_metrics() -> None:
    chance = random.Random(20_261_126)
    outcomes = {False: 0, True: 0}
    for _ in range(5_000):
        data = bytearray(WHOLE)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            read(bytes(data))
            outcomes[True] += 1
        except WireError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 200, outcomes

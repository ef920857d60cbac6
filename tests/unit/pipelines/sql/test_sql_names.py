"""What a name in SQL means."""

import pytest

from magnetar.pipelines.sql.names import AmbiguousName, Names, Topic, quoted


def topic(full: str, name: str | None = None) -> Topic:
    return Topic(name or full, full, 1)


FLIGHTS = topic("persistent://public/default/flights", "flights")
DOTTED = topic("persistent://public/default/orders.v1", "orders.v1")
DASHED = topic("persistent://public/default/my-topic", "my-topic")
OPS = topic("persistent://public/ops/flights")
ACME = topic("persistent://acme/ops/delays")
NAMES = Names([FLIGHTS, DOTTED, DASHED, OPS, ACME])


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (["flights"], FLIGHTS),
        (["FLIGHTS"], FLIGHTS),
        (["default", "flights"], FLIGHTS),
        (["public", "default", "flights"], FLIGHTS),
        (["persistent://public/default/flights"], FLIGHTS),
        (["ops", "flights"], OPS),
        (["public", "ops", "flights"], OPS),
        (["acme", "ops", "delays"], ACME),
        (["persistent://acme/ops/delays"], ACME),
        (["my-topic"], DASHED),
        (["orders.v1"], DOTTED),
        (["orders", "v1"], DOTTED),
        (["ops", "delays"], None),
        (["delays"], None),
        (["nothing"], None),
    ],
)
def test_one_to_three_parts_and_full_names(parts: list[str], wanted: Topic | None) -> None:
    assert NAMES.find(parts) is wanted


@pytest.mark.parametrize("one", NAMES.topics)
def test_what_is_written_is_found(one: Topic) -> None:
    written = NAMES.written(one)
    parts = [part.strip("`") for part in (written.split(".") if "`" not in written else [written])]
    assert NAMES.find(parts) is one


def test_names_are_quoted_where_sql_wants_it() -> None:
    assert [NAMES.written(one) for one in NAMES.topics] == [
        "acme.ops.delays",
        "flights",
        "`my-topic`",
        "`orders.v1`",
        "ops.flights",
    ]
    assert quoted(["a`b", "1st", "c"]) == "`a``b`.`1st`.c"


def test_a_namespace_wins_over_a_dot_in_a_name() -> None:
    dotted = topic("persistent://public/default/ops.flights", "ops.flights")
    names = Names([dotted, OPS])
    assert names.find(["ops", "flights"]) is OPS
    assert names.find(["ops.flights"]) is dotted


def test_names_that_differ_in_case_are_found_exactly_only() -> None:
    lower, upper = FLIGHTS, topic("persistent://public/default/Flights", "Flights")
    names = Names([lower, upper])
    assert names.find(["flights"]) is lower
    assert names.find(["Flights"]) is upper
    with pytest.raises(AmbiguousName, match="any of Flights, flights"):
        names.find(["FLIGHTS"])


def test_short_names_are_short_where_the_server_says() -> None:
    names = Names([topic("persistent://t/n/flights", "flights"), topic("persistent://public/default/other")])
    assert names.find(["flights"]) is not None
    assert names.find(["n", "flights"]) is not None
    assert names.find(["other"]) is None
    assert names.written(names.topics[0]) == "public.default.other"


@pytest.mark.parametrize(
    ("parts", "nearest"),
    [
        (["flihgts"], "flights"),
        (["op", "flights"], "ops.flights"),
        (["my_topic"], "`my-topic`"),
        (["orders"], "`orders.v1`"),
    ],
)
def test_the_nearest_name_comes_first(parts: list[str], nearest: str) -> None:
    assert NAMES.nearest(parts)[0] == nearest


def test_nothing_is_near_nonsense() -> None:
    assert NAMES.nearest(["qqqqqqqqqq"]) == []

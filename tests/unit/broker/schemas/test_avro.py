"""Avro's rules: which definitions are some, and who can read what."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.schemas import avro
from magnetar.broker.schemas.model import InvalidSchema


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def has(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


TREE = record(has("value", "int"), has("next", ["null", "R"]))

# reader, writer, whether the reader can read all that the writer writes
PAIRS: list[tuple[Any, Any, bool]] = [
    *((kind, kind, True) for kind in sorted(avro.PRIMITIVES)),
    ("long", "int", True),
    ("float", "int", True),
    ("float", "long", True),
    ("double", "int", True),
    ("double", "long", True),
    ("double", "float", True),
    ("bytes", "string", True),
    ("string", "bytes", True),
    ("int", "long", False),
    ("long", "float", False),
    ("float", "double", False),
    ("string", "int", False),
    ("null", "int", False),
    ({"type": "string", "avro.java.string": "String"}, "string", True),
    # unions
    (["null", "int"], "int", True),
    (["null", "long"], "int", True),
    (["null", "int"], "string", False),
    ("int", ["null", "int"], False),
    ("int", ["int"], True),
    (["null", "int", "string"], ["null", "int"], True),
    (["null", "int"], ["null", "int", "string"], False),
    (["null", "string"], ["string", "null"], True),
    (["null", record(has("a", "int"))], record(has("a", "int")), True),
    # arrays and maps
    (array("long"), array("int"), True),
    (array("int"), array("long"), False),
    (mapping("long"), mapping("int"), True),
    (mapping("int"), array("int"), False),
    # fixed
    (fixed(4), fixed(4), True),
    (fixed(4), fixed(5), False),
    (fixed(4), fixed(4, "G"), False),
    ({**fixed(4), "aliases": ["G"]}, fixed(4, "G"), True),
    # enums
    (enum("A", "B"), enum("A"), True),
    (enum("A"), enum("A", "B"), False),
    (enum("A", default="A"), enum("A", "B"), True),
    (enum("A"), enum("A", name="Other"), False),
    # records
    (record(has("a", "int")), record(has("a", "int")), True),
    (record(has("a", "long")), record(has("a", "int")), True),
    (record(), record(has("a", "int")), True),
    (record(has("a", "int")), record(), False),
    (record(has("a", "int", default=5)), record(), True),
    (record(has("a", ["null", "int"], default=None)), record(), True),
    (record(has("a", ["null", "int"])), record(), False),
    (record(has("a", enum("A", default="A"))), record(), True),
    (record(has("b", "int", aliases=["a"])), record(has("a", "int")), True),
    (record(name="S"), record(), True),  # as in the Java library, and in spite of the specification
    (record(name="S", aliases=["R"]), record(), True),
    (record(name="a.R"), record(name="b.R"), True),
    (TREE, TREE, True),
    (TREE, record(has("value", "long"), has("next", ["null", "R"])), False),
    (
        record(has("value", "int"), has("next", ["null", "R"]), has("more", "int", default=0)),
        TREE,
        True,
    ),
    (
        record(has("inner", record(has("x", "int"), name="I")), has("again", "I")),
        record(has("inner", record(has("x", "int"), name="I")), has("again", "I")),
        True,
    ),
    (
        record(has("inner", record(has("x", "int"), has("y", "int"), name="I"))),
        record(has("inner", record(has("x", "int"), name="I"))),
        False,
    ),
]


def parsed(definition: Any) -> avro.Node:
    return avro.parse(json.dumps(definition).encode())


@pytest.mark.parametrize(("reader", "writer", "readable"), PAIRS)
def test_who_reads_what(reader: Any, writer: Any, readable: bool) -> None:
    reason = avro.why_unreadable(parsed(reader), parsed(writer))
    assert (reason is None) is readable, reason


INVALID: list[Any] = [
    "nothing",
    5,
    {},
    {"type": 5},
    {"type": "record", "name": "R"},
    {"type": "record", "fields": []},
    record(name="5x"),
    record(name="a..b"),
    record(5),
    record({"type": "int"}),
    record({"name": "a"}),
    record(has("a", "Unknown")),
    record(has("a", "int"), has("a", "int")),
    record(has("a", record()), has("b", "int")),
    record(has("a", "int", aliases="b")),
    {"type": "array"},
    {"type": "map"},
    {"type": "enum", "name": "E", "symbols": "A"},
    enum("A", "A"),
    enum("1"),
    enum("A", default="B"),
    {"type": "fixed", "name": "F"},
    fixed(-1),
    {"type": "fixed", "name": "F", "size": True},
    ["int", "int"],
    ["null", ["int"]],
    [fixed(1), {**fixed(2)}],
]


@pytest.mark.parametrize("definition", INVALID, ids=json.dumps)
def test_what_is_no_definition_is_refused(definition: Any) -> None:
    with pytest.raises(InvalidSchema):
        parsed(definition)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'"\\ud800"'])
def test_bytes_that_are_no_json_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidSchema):
        avro.parse(text)


def test_definitions_are_bounded_in_depth_and_in_number() -> None:
    deep: Any = "int"
    for _ in range(avro.DEPTH_MAX):
        deep = array(deep)
    parsed(deep)
    with pytest.raises(InvalidSchema):
        parsed(array(deep))
    wide = record(*(has(f"f{index}", "int") for index in range(avro.NODES_MAX - 1)))
    parsed(wide)
    with pytest.raises(InvalidSchema):
        parsed([wide, "int"])


_NAMES = st.sampled_from(["A", "B", "C"])
_TYPES = st.recursive(
    st.sampled_from(sorted(avro.PRIMITIVES)),
    lambda inner: st.one_of(
        inner.map(array),
        inner.map(mapping),
        st.lists(inner, max_size=3),
        st.builds(
            lambda name, kinds: record(*(has(f"f{i}", k) for i, k in enumerate(kinds)), name=name),
            _NAMES,
            st.lists(inner, max_size=3),
        ),
    ),
    max_leaves=8,
)


@given(_TYPES)
def test_whatever_is_a_definition_reads_itself(definition: Any) -> None:
    try:
        node = parsed(definition)
    except InvalidSchema:
        return
    assert avro.why_unreadable(node, node) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "name", "fields", "items", "values", "symbols", "size", "aliases", "default"]
                ),
                x,
            )
        ),
    )
)
def test_any_json_is_a_definition_or_refused(content: Any) -> None:
    try:
        node = parsed(content)
    except InvalidSchema:
        return
    assert avro.why_unreadable(node, node) is None

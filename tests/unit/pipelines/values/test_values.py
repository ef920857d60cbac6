"""What clients' encoders write comes out as columns; what is wrong with a value costs that value only."""

import base64
import datetime as dt
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.pipelines.values.decoding import BLOCK_ROWS, decode, decoder
from magnetar.pipelines.values.faults import UNDECODABLE
from magnetar.pipelines.values.json import JsonValues
from magnetar.pipelines.values.shapes import SchemaUnusable
from magnetar.pipelines.values.topic_schema import TopicSchema

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def avro(definition: Any) -> TopicSchema:
    return TopicSchema("AVRO", json.dumps(definition))


def as_json(definition: Any) -> TopicSchema:
    return TopicSchema("JSON", json.dumps(definition))


def written(definition: Any, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(definition), value)
    return target.getvalue()


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def rows(schema: TopicSchema, *values: bytes | None) -> list[dict[str, Any]]:
    found = decode(schema, binary(*values))
    assert found.undecodable == {}
    made: list[dict[str, Any]] = found.columns.to_pylist()
    return made


NESTED = record(("q", {"type": "enum", "name": "E", "symbols": ["A", "B"]}), name="N")
EVERYTHING = record(
    ("flag", "boolean"),
    ("small", "int"),
    ("large", "long"),
    ("single", "float"),
    ("real", "double"),
    ("data", "bytes"),
    ("text", ["null", "string"]),
    ("four", {"type": "fixed", "name": "F", "size": 4}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("exact", {"type": "long", "logicalType": "timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("list", {"type": "array", "items": "long"}),
    ("days", {"type": "array", "items": {"type": "int", "logicalType": "date"}}),
    ("map", {"type": "map", "values": "double"}),
    ("nested", ["null", NESTED]),
    ("again", "N"),
    ("several", ["null", "int", "string"]),
    ("nothing", "null"),
)
VALUE = {
    "flag": True,
    "small": -7,
    "large": 1 << 40,
    "single": 0.5,
    "real": 1.25,
    "data": b"\x00\xff",
    "text": "é",
    "four": b"1234",
    "at": 1_500,
    "exact": 1_500,
    "day": 3,
    "clock": 86_399_999,
    "price": Decimal("-12.34"),
    "list": [1, 2],
    "days": [1],
    "map": {"k": 1.5},
    "nested": None,
    "again": {"q": "B"},
    "several": "x",
    "nothing": None,
}


def test_every_avro_type_has_its_column() -> None:
    (row,) = rows(avro(EVERYTHING), written(EVERYTHING, VALUE))
    assert row == {
        **VALUE,
        "at": EPOCH + dt.timedelta(milliseconds=1_500),
        "exact": EPOCH + dt.timedelta(microseconds=1_500),
        "day": dt.date(1970, 1, 4),
        "days": [dt.date(1970, 1, 2)],
        "map": [("k", 1.5)],
        "several": '"x"',
    }


def test_null_values_and_undecodable_ones_are_null_in_every_column() -> None:
    definition = record(("a", "int"), ("b", "string"))
    good = [written(definition, {"a": n, "b": str(n)}) for n in range(3)]
    found = decode(avro(definition), binary(good[0], None, good[1] + b"?", b"", good[2]))
    nothing = {"a": None, "b": None}
    assert found.columns.to_pylist() == [{"a": 0, "b": "0"}, nothing, nothing, nothing, {"a": 2, "b": "2"}]
    assert found.undecodable == {2: "1 bytes are left behind the value", 3: "the value ends early"}


@pytest.mark.parametrize("bad", [{0}, {BLOCK_ROWS - 1}, {BLOCK_ROWS}, {1, 2, 3, 900, 5_000}, set(range(300))])
def test_undecodable_rows_are_found_wherever_they_are(bad: set[int]) -> None:
    definition = record(("a", "int"))
    count = BLOCK_ROWS + 1_000
    values = [b"?" * 20 if n in bad else json.dumps({"a": n}).encode() for n in range(count)]
    found = decode(as_json(definition), binary(*values))
    assert set(found.undecodable) == bad
    assert found.columns.column("a").to_pylist() == [None if n in bad else n for n in range(count)]


def test_a_slice_of_a_column_is_decoded_where_it_begins() -> None:
    values = binary(b"\x00\x01", None, b"\x00\x02", b"\x00\x03")
    found = decode(TopicSchema("INT16"), values.slice(1, 2))
    assert found.columns.to_pylist() == [{"value": None}, {"value": 2}]


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (record(("r", ["null", "R"])), "contains itself"),
        (record(("a", {"type": "array", "items": "null"})), "no bound"),
        (record(("a", {"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}})), "no bound"),
        (record(), "no fields"),
        (record(("a", "Unknown")), "unknown type"),
        (record(("a", "int"), ("a", "int")), "two fields of one name"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "39 digits"),
        ("nonsense", "unknown type"),
        (7, "not an Avro definition"),
    ],
)
def test_what_has_no_columns_is_refused_with_a_reason(definition: Any, reason: str) -> None:
    with pytest.raises(SchemaUnusable, match=reason):
        decoder(avro(definition))


def test_a_definition_without_end_is_refused() -> None:
    deep: Any = "int"
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaUnusable, match="too deep"):
        decoder(avro(record(("a", deep))))


def test_json_fields_by_name_with_what_is_missing_null_and_what_is_unknown_left_out() -> None:
    definition = record(
        ("a", "int"),
        ("s", ["null", "string"]),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("data", "bytes"),
        ("n", ["null", record(("l", {"type": "array", "items": "double"}), name="N")]),
    )
    some = {"n": {"l": [1, 2.5]}, "more": [{}], "a": 2, "data": "AP8=", "at": 1_500}
    assert rows(as_json(definition), json.dumps(some, indent=True).encode(), b"{}", b"null") == [
        {"a": 2, "s": None, "at": EPOCH + dt.timedelta(seconds=1.5), "data": "AP8=", "n": {"l": [1.0, 2.5]}},
        {"a": None, "s": None, "at": None, "data": None, "n": None},
        {"a": None, "s": None, "at": None, "data": None, "n": None},
    ]


def test_json_maps_and_fields_of_several_types() -> None:
    definition = record(("m", {"type": "map", "values": "int"}), ("u", ["null", "int", NESTED]))
    assert rows(as_json(definition), b'{"m": {"k": 1}, "u": {"q": "A"}}', b'{"u": 5}') == [
        {"m": [("k", 1)], "u": '{"q": "A"}'},
        {"m": None, "u": "5"},
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"a": 1}{"a": 2}', "Extra data"),
        (b'{"a": 1},"value":{"a": 2}', "Extra data"),
        (b'{"a": "1"}', '"a" is a text'),
        (b'{"a": 1.5}', '"a" is a number, not of the type int32'),
        (b'{"a": 4294967296}', "too large"),
        (b'{"a": true}', '"a" is a truth value'),
        (b"[]", "the value is a list, not an object"),
        (b'{"s": "\xff"}', "utf-8"),
        (b'{"s": "\\ud800"}', "surrogates"),
        (b'{"l": [1, "x"]}', 'an item of "l" is a text'),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_a_wrong_json_text_is_named_and_moves_no_other(value: bytes, reason: str) -> None:
    definition = record(("a", "int"), ("s", "string"), ("l", {"type": "array", "items": "int"}))
    found = decode(as_json(definition), binary(b'{"a": 1}', value, b'{"a": 3}'))
    assert found.columns.column("a").to_pylist() == [1, None, 3]
    assert list(found.undecodable) == [1]
    assert reason in found.undecodable[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("aslx"), inner, max_size=4),
    max_leaves=6,
)
SEVERAL = record(("a", "int"), ("s", "string"), ("x", "double"), ("l", {"type": "array", "items": "long"}))


@given(st.lists(JSON.map(json.dumps).map(str.encode) | st.binary(max_size=12), max_size=8))
@example([b'{"x": 9007199254740993}', b"{"])  # a whole number that is not exact as a double
@example([b'{"x": 1' + b"0" * 400 + b"}", b"{"])
def test_both_ways_of_reading_json_agree(values: list[bytes]) -> None:
    alone = JsonValues(json.dumps(SEVERAL))
    found = decode(as_json(SEVERAL), binary(*values))
    for row, value in enumerate(values):
        try:
            wanted = alone.one(binary(value))[0].as_py()
        except UNDECODABLE:
            assert row in found.undecodable
        else:
            assert row not in found.undecodable
            assert found.columns.slice(row, 1).to_pylist() == [wanted or dict.fromkeys("asxl")]


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_upset_the_decoders_of_binary_values(values: list[bytes]) -> None:
    for schema in (avro(EVERYTHING), MESSAGES, *map(TopicSchema, PRIMITIVES)):
        found = decode(schema, binary(*values))
        assert found.columns.num_rows == len(values)
        assert set(found.undecodable) <= set(range(len(values)))


PRIMITIVES = {
    "BOOLEAN": (b"\x01", True),
    "INT8": (b"\xff", -1),
    "INT16": (struct.pack(">h", -2), -2),
    "INT32": (struct.pack(">i", 1 << 30), 1 << 30),
    "INT64": (struct.pack(">q", -(1 << 62)), -(1 << 62)),
    "FLOAT": (struct.pack(">f", 0.5), 0.5),
    "DOUBLE": (struct.pack(">d", 0.1), 0.1),
    "STRING": ("né".encode(), "né"),
    "BYTES": (b"\xff", b"\xff"),
    "NONE": (b"\xff", b"\xff"),
    "DATE": (struct.pack(">q", 86_400_000), EPOCH + dt.timedelta(days=1)),
    "TIMESTAMP": (struct.pack(">q", -1_500), EPOCH - dt.timedelta(seconds=1.5)),
    "TIME": (struct.pack(">q", 5), 5),
    "INSTANT": (struct.pack(">qi", 1, 5_000), EPOCH + dt.timedelta(seconds=1, microseconds=5)),
    "LOCAL_DATE": (struct.pack(">q", 2), dt.date(1970, 1, 3)),
    "LOCAL_TIME": (struct.pack(">q", 86_399_999_999_999), 86_399_999_999_999),
    "LOCAL_DATE_TIME": (struct.pack(">qq", 1, 2_000_000), dt.datetime(1970, 1, 2, microsecond=2_000)),  # noqa: DTZ001
}


@pytest.mark.parametrize("kind", PRIMITIVES)
def test_every_primitive_type_has_its_column(kind: str) -> None:
    value, wanted = PRIMITIVES[kind]
    assert rows(TopicSchema(kind), value, None) == [{"value": wanted}, {"value": None}]


@pytest.mark.parametrize("kind", ["DATE", "INSTANT", "LOCAL_DATE", "LOCAL_DATE_TIME"])
def test_times_out_of_range_are_undecodable(kind: str) -> None:
    size = len(PRIMITIVES[kind][0])
    for value in (b"\x7f" + b"\xff" * (size - 1), b"\x80" + b"\x00" * (size - 1)):
        assert "out of range" in decode(TopicSchema(kind), binary(value)).undecodable[0]


def key_value(encoding: str) -> TopicSchema:
    properties = {"key.schema.type": "STRING", "value.schema.type": "JSON", "kv.encoding.type": encoding}
    return TopicSchema("KEY_VALUE", json.dumps({"key": "", "value": record(("a", "int"))}), properties)


def test_key_and_value_in_one() -> None:
    pair = struct.pack(">i", 1) + b"k" + struct.pack(">i", 7) + b'{"a":1}'
    half = struct.pack(">i", -1) + struct.pack(">i", 7) + b'{"a":2}'
    wrong = struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"?"
    found = decode(key_value("INLINE"), binary(pair, half, wrong, b"", struct.pack(">i", 1 << 30), None))
    assert found.columns.to_pylist() == [
        {"key": "k", "value": {"a": 1}},
        {"key": None, "value": {"a": 2}},
        *[{"key": None, "value": None}] * 4,
    ]
    assert sorted(found.undecodable) == [2, 3, 4]


def test_key_and_value_apart() -> None:
    found = decode(key_value("SEPARATED"), binary(b'{"a":1}', None), binary(b"k", b"\xff"))
    assert found.columns.to_pylist() == [{"key": "k", "value": {"a": 1}}, {"key": None, "value": None}]
    assert "utf-8" in found.undecodable[1]


# --- Protobuf --------------------------------------------------------------------------------------------------------


def files() -> tuple[descriptor_pb2.FileDescriptorSet, Any]:
    """A message of every kind of field, in a set whose files are not in order, and its class."""
    F = descriptor_pb2.FieldDescriptorProto
    inner = descriptor_pb2.FileDescriptorProto(name="inner.proto", package="p", syntax="proto3")
    nested = inner.message_type.add(name="Inner")
    nested.field.add(name="n", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    outer = descriptor_pb2.FileDescriptorProto(
        name="outer.proto",
        package="p",
        syntax="proto3",
        dependency=["inner.proto", "google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    colour = outer.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    message = outer.message_type.add(name="Outer")
    for number, (name, kind, label, of) in enumerate(
        [
            ("i", F.TYPE_INT32, F.LABEL_OPTIONAL, ""),
            ("u", F.TYPE_UINT64, F.LABEL_OPTIONAL, ""),
            ("d", F.TYPE_DOUBLE, F.LABEL_OPTIONAL, ""),
            ("s", F.TYPE_STRING, F.LABEL_OPTIONAL, ""),
            ("b", F.TYPE_BYTES, F.LABEL_OPTIONAL, ""),
            ("e", F.TYPE_ENUM, F.LABEL_OPTIONAL, ".p.Colour"),
            ("m", F.TYPE_MESSAGE, F.LABEL_OPTIONAL, ".p.Inner"),
            ("r", F.TYPE_INT64, F.LABEL_REPEATED, ""),
            ("rm", F.TYPE_MESSAGE, F.LABEL_REPEATED, ".p.Inner"),
            ("t", F.TYPE_MESSAGE, F.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
            ("w", F.TYPE_MESSAGE, F.LABEL_OPTIONAL, ".google.protobuf.Int32Value"),
            ("map", F.TYPE_MESSAGE, F.LABEL_REPEATED, ".p.Outer.MapEntry"),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    entry = message.nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=".p.Inner")
    pool = descriptor_pool.DescriptorPool()
    for known in ("timestamp", "wrappers"):
        file = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(f"google/protobuf/{known}.proto").CopyToProto(file)
        pool.Add(file)
    pool.Add(inner)
    pool.Add(outer)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Outer"))
    return descriptor_pb2.FileDescriptorSet(file=[outer, inner]), made


FILES, OUTER = files()


def protobuf(root: str, data: bytes) -> TopicSchema:
    content = {"fileDescriptorSet": base64.b64encode(data).decode(), "rootMessageTypeName": root}
    return TopicSchema("PROTOBUF_NATIVE", json.dumps(content))


MESSAGES = protobuf("p.Outer", FILES.SerializeToString())


def test_every_kind_of_protobuf_field_has_its_column() -> None:
    full = OUTER(i=-1, u=(1 << 64) - 1, d=0.5, s="é", b=b"\xff", e=1, m={"n": 4}, r=[1, 2], rm=[{"n": 5}, {}])
    full.t.FromMilliseconds(1_500)
    full.w.value = 0
    full.map["k"].n = 6
    empty = OUTER(e=7)
    assert rows(MESSAGES, full.SerializeToString(), empty.SerializeToString(), None) == [
        {
            "i": -1,
            "u": Decimal((1 << 64) - 1),
            "d": 0.5,
            "s": "é",
            "b": b"\xff",
            "e": "BLUE",
            "m": {"n": 4},
            "r": [1, 2],
            "rm": [{"n": 5}, {"n": 0}],
            "t": EPOCH + dt.timedelta(seconds=1.5),
            "w": 0,
            "map": [("k", {"n": 6})],
        },
        {
            "i": 0,
            "u": 0,
            "d": 0.0,
            "s": "",
            "b": b"",
            "e": "7",
            "m": None,
            "r": [],
            "rm": [],
            "t": None,
            "w": None,
            "map": [],
        },
        dict.fromkeys(["i", "u", "d", "s", "b", "e", "m", "r", "rm", "t", "w", "map"]),
    ]


@pytest.mark.parametrize(
    ("root", "data"), [("p.Nothing", FILES.SerializeToString()), ("p.Outer", b"\xff\xff"), ("p.Outer", b"")]
)
def test_descriptors_that_do_not_hold_the_message_are_refused(root: str, data: bytes) -> None:
    with pytest.raises(SchemaUnusable, match="descriptors cannot be used"):
        decoder(protobuf(root, data))


def test_schemas_without_descriptors_say_what_to_do() -> None:
    for kind in ("PROTOBUF", "EXTERNAL", "AUTO_CONSUME"):
        with pytest.raises(SchemaUnusable, match="set schema to raw"):
            decoder(TopicSchema(kind))

"""Values that are JSON texts, of a topic whose schema has their fields (as an Avro definition, as in Pulsar).

There are two ways with the same result.  Whole columns go through Arrow's JSON reader, joined to one text.  The
content of a value must not shift the values after it.  So each value is in an object of its own with its row number,
under a name that no producer can know.  If every number is in its row, so is every value.  If the reader refuses a
text, or if the schema has maps or fields of several types, which the reader does not support, values are read one by
one.

Fields that are not in the schema are left out; missing ones are null.  Bytes are texts in JSON, in a form that
depends on the client (base64 for Java's), and stay texts.
"""

import json
import math
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from magnetar.pipelines.values.avro import json_text
from magnetar.pipelines.values.faults import ByValue
from magnetar.pipelines.values.shapes import AvroTypes, Shape, finish, load

ValueCheck: TypeAlias = Callable[[Any, str], Any]

_WORDS: Final = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


class JsonValues(ByValue):
    """Decodes values of one JSON schema; `type` is the Arrow type of the result.

    Raises:
        SchemaUnusable: the definition has no columns.
    """

    def __init__(self, definition: str) -> None:
        self._shape = AvroTypes(for_json=True).read(load(definition))
        self.type = self._shape.type
        self._check = _check(self._shape)
        self._by_reader = not (self._shape.holds("any") or self._shape.holds("map"))

    def block(self, values: pa.Array) -> pa.Array:
        """Decode all values, or raise an error of `faults.UNDECODABLE`."""
        return self._read(values) if self._by_reader else self.one(values)

    def one(self, values: pa.Array) -> pa.Array:
        """Decode value by value; the reason of an error names the field."""
        rows = [self._check(json.loads(value), "the value") for value in values.to_pylist()]
        return finish(pa.array(rows, self._shape.raw), self._shape)

    def check(self, value: bytes) -> None:
        self._check(json.loads(value), "the value")

    def _read(self, values: pa.Array) -> pa.Array:
        number = secrets.token_hex(8)
        numbers = pa.array(np.arange(len(values))).cast(pa.string()).cast(pa.binary())
        lines = pc.binary_join_element_wise(
            b'{"value":', values, b',"' + number.encode() + b'":', numbers, b"}\n", b""
        )
        text = lines.buffers()[2]  # a new array: it begins with the first value and ends with the last
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([("value", self._shape.raw), (number, pa.int64())]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        found = table.column(number).combine_chunks()
        if found.null_count or not np.array_equal(found.to_numpy(), np.arange(len(values))):
            raise ValueError("a value is more than one JSON text")
        column = table.column("value").combine_chunks()
        column.validate(full=True)  # checks that texts are UTF-8, which the reader does not
        return finish(column, self._shape)


def _check(shape: Shape) -> ValueCheck:
    """A function that raises ValueError unless a value matches `shape`, and turns values of several types into text."""
    children = [(name, _check(child)) for name, child in shape.children]

    def refused(value: Any, where: str, wanted: str) -> ValueError:
        return ValueError(f"{where} is {_WORDS.get(type(value), 'a number')}, not {wanted}")

    def record(value: Any, where: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise refused(value, where, "an object")
        return {name: check(value.get(name), f'"{name}"') for name, check in children}

    def elements(value: Any, where: str) -> Any:
        if value is not None and not isinstance(value, list):
            raise refused(value, where, "a list")
        return value and [children[0][1](part, f"an item of {where}") for part in value]

    def mapping(value: Any, where: str) -> Any:
        if value is not None and not isinstance(value, dict):
            raise refused(value, where, "an object")
        return value and {name: children[0][1](part, f'"{name}"') for name, part in value.items()}

    is_floating = pa.types.is_floating(shape.raw)

    def scalar(value: Any, where: str) -> Any:
        if is_floating and type(value) is int:
            return _float(value)  # Arrow refuses integers that are not exact as a float
        if value is None or _fits(value, shape.raw):
            return value
        if isinstance(value, float) and value.is_integer() and pa.types.is_integer(shape.raw):
            return int(value)
        raise refused(value, where, f"of the type {shape.raw}")

    def anything(value: Any, where: str) -> Any:
        return json_text(value)

    return {"record": record, "list": elements, "map": mapping, "any": anything, "scalar": scalar}[shape.kind]


def _float(value: int) -> float:
    """The nearest float, as in Arrow's own reader."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _fits(value: Any, wanted: pa.DataType) -> bool:
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(wanted))
    if isinstance(value, int):
        return bool(pa.types.is_integer(wanted))
    if isinstance(value, float):
        return bool(pa.types.is_floating(wanted))
    return isinstance(value, str) and bool(pa.types.is_string(wanted))

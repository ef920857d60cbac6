"""Values that are JSON texts, of a topic whose schema says what is in them (in Avro's words, as Pulsar has it).

Two ways, and one result.  Whole columns go through Arrow's JSON reader, joined to one text.  What a value contains
must not move the ones behind it, so each stands in an object of its own beside its number, under a name that no
producer of values can know: if every number is in its row, every value is.  When the reader refuses a text, or the
schema has maps or fields of several types, which it does not know, values are read one by one.

Fields that the schema does not know are left out, missing ones are null.  Bytes are texts in JSON, each client's own
way (Java's in base64), and stay that.
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

Check: TypeAlias = Callable[[Any, str], Any]

_WORDS: Final = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


class JsonValues(ByValue):
    """Decodes values of one JSON schema; `type` is the Arrow type of what comes out.

    Raises:
        SchemaUnusable: the definition has no columns.
    """

    def __init__(self, definition: str) -> None:
        self._shape = AvroTypes(for_json=True).read(load(definition))
        self.type = self._shape.type
        self._check = _check(self._shape)
        self._by_reader = not (self._shape.holds("any") or self._shape.holds("map"))

    def block(self, values: pa.Array) -> pa.Array:
        """All values, or an error of `faults.UNDECODABLE`."""
        return self._read(values) if self._by_reader else self.one(values)

    def one(self, values: pa.Array) -> pa.Array:
        """The same, value by value, with a reason that names the field."""
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
        text = lines.buffers()[2]  # made just now: it begins at the first value and ends with the last
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
        column.validate(full=True)  # texts are UTF-8: the reader does not look
        return finish(column, self._shape)


def _check(shape: Shape) -> Check:
    """A function that raises ValueError unless a value fits, and turns what has several types into text."""
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
            return _float(value)  # Arrow refuses the whole numbers that are not exact as one
        if value is None or _fits(value, shape.raw):
            return value
        if isinstance(value, float) and value.is_integer() and pa.types.is_integer(shape.raw):
            return int(value)
        raise refused(value, where, f"of the type {shape.raw}")

    def anything(value: Any, where: str) -> Any:
        return json_text(value)

    return {"record": record, "list": elements, "map": mapping, "any": anything, "scalar": scalar}[shape.kind]


def _float(value: int) -> float:
    """The nearest one, as Arrow's own reader takes it."""
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

"""Values in Avro's binary encoding, as clients with Pulsar's Avro schemas write them: without a header or anything
after the value.

fastavro reads them, one by one, with the definition with which they were written.  Times stay integers, so that whole
columns are converted to timestamps at once.
"""

import io
import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from magnetar.pipelines.values.faults import ByValue
from magnetar.pipelines.values.shapes import AvroTypes, SchemaUnusable, Shape, finish, load

_KEPT: Final = "decimal"  # the one logical type that fastavro converts for us

Change: TypeAlias = Callable[[Any], Any]


class AvroValues(ByValue):
    """Decodes values of one Avro definition; `type` is the Arrow type of the result.

    Raises:
        SchemaUnusable: the definition has no columns.
    """

    def __init__(self, definition: str) -> None:
        content = load(definition)
        self._shape = AvroTypes(for_json=False).read(content)
        self.type = self._shape.type
        try:
            self._parsed: Any = fastavro.parse_schema(_plain(content))
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
            raise SchemaUnusable(f"the schema is not an Avro definition: {str(error)[:200]}") from None
        self._change = _change(self._shape)

    def block(self, values: pa.Array) -> pa.Array:
        """Decode all values, or raise an error of `faults.UNDECODABLE`."""
        rows = [self._read(value) for value in values.to_pylist()]
        if self._change is not None:
            rows = [self._change(row) for row in rows]
        return finish(pa.array(rows, self._shape.raw), self._shape)

    one = block

    def check(self, value: bytes) -> None:
        self._read(value)

    def _read(self, value: bytes) -> Any:
        source = io.BytesIO(value)
        row = fastavro.schemaless_reader(source, self._parsed, None)
        if source.tell() != len(value):
            raise ValueError(f"{len(value) - source.tell()} bytes are left behind the value")
        return row


def _plain(content: Any) -> Any:
    """The definition without those logical types that this package converts itself."""
    if isinstance(content, dict):
        return {
            name: _plain(part)
            for name, part in content.items()
            if name != "logicalType" or part == _KEPT or not isinstance(part, str)
        }
    return [_plain(part) for part in content] if isinstance(content, list) else content


def _change(shape: Shape) -> Change | None:
    """A function that converts a value for Arrow; None if that is not needed."""
    if not shape.holds("any"):
        return None
    if shape.kind == "any":
        return json_text
    children = [(name, change) for name, child in shape.children if (change := _change(child)) is not None]
    if shape.kind == "record":

        def record(value: Any) -> Any:
            if value is not None:
                for name, change in children:
                    value[name] = change(value[name])
            return value

        return record
    element = children[0][1]
    if shape.kind == "map":
        return lambda value: value and {name: element(part) for name, part in value.items()}
    return lambda value: value and [element(part) for part in value]


def json_text(value: Any) -> str | None:
    """The JSON text of a value of several types; None for null."""
    return None if value is None else json.dumps(value, default=_unusual, ensure_ascii=False, sort_keys=True)


def _unusual(value: Any) -> str:
    # As Avro writes bytes in JSON.
    return value.decode("iso-8859-1") if isinstance(value, bytes) else str(value)

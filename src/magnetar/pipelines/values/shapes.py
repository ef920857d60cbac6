"""The Arrow types of an Avro definition: the columns of Avro and JSON values.

docs/reference/tables.md has the table of types.  A type has three Arrow types.  `raw` is the decoders' result, with
times as the integers that were written.  `unit` also has the unit of those integers.  `type` is the type of the column.
`finish` converts whole columns from the first to the last.  Everything is nullable, because a table's rows come from
several versions of a schema.

Two things in Avro have no column.  One is a type that contains itself.  The other is a list whose items may take no
bytes, because then a value of ten bytes may claim any number of items.  Both are refused here, before any value is
read.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from magnetar.base.errors import MagnetarError

NODES_MAX: Final = 10_000  # twice the broker's limit for definitions
DEPTH_MAX: Final = 50
DECIMAL_DIGITS_MAX: Final = 38


class SchemaUnusable(MagnetarError):
    """The topic's schema has no columns; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One type of a definition.

    kind      "scalar", "record", "list", "map", or "any": one of several types, which becomes its JSON text
    children  a record's fields; the one element of a list or map, named ""
    is_empty  whether a value may take no bytes in Avro's encoding
    """

    kind: str
    raw: pa.DataType
    unit: pa.DataType
    type: pa.DataType
    children: "tuple[tuple[str, Shape], ...]" = ()
    is_empty: bool = False

    def holds(self, kind: str) -> bool:
        """Whether this type, or a type inside it, has the kind `kind`."""
        return self.kind == kind or any(child.holds(kind) for _, child in self.children)


def _scalar(raw: pa.DataType, unit: pa.DataType = None, final: pa.DataType = None) -> Shape:
    unit = raw if unit is None else unit
    return Shape("scalar", raw, unit, unit if final is None else final)


def _around(
    kind: str, children: "tuple[tuple[str, Shape], ...]", wrap: Callable[[list[pa.DataType]], pa.DataType]
) -> Shape:
    """A type that contains others, in each of the three forms."""
    shapes = [shape for _, shape in children]
    return Shape(
        kind,
        wrap([shape.raw for shape in shapes]),
        wrap([shape.unit for shape in shapes]),
        wrap([shape.type for shape in shapes]),
        children,
        is_empty=kind == "record" and all(shape.is_empty for shape in shapes),
    )


UTC_MICROS: Final = pa.timestamp("us", "UTC")
LOCAL_MICROS: Final = pa.timestamp("us")

_PRIMITIVES: Final[Mapping[str, Shape]] = {
    # Neither Delta nor Spark has columns without a type.
    "null": Shape("scalar", pa.string(), pa.string(), pa.string(), is_empty=True),
    "boolean": _scalar(pa.bool_()),
    "int": _scalar(pa.int32()),
    "long": _scalar(pa.int64()),
    "float": _scalar(pa.float32()),
    "double": _scalar(pa.float64()),
    "string": _scalar(pa.string()),
}
# Times of day stay integers, because Delta has no type for them.
TIMES: Final[Mapping[tuple[str, str], Shape]] = {
    ("int", "date"): _scalar(pa.int32(), pa.date32()),
    ("long", "timestamp-millis"): _scalar(pa.int64(), pa.timestamp("ms", "UTC"), UTC_MICROS),
    ("long", "timestamp-micros"): _scalar(pa.int64(), UTC_MICROS),
    ("long", "local-timestamp-millis"): _scalar(pa.int64(), pa.timestamp("ms"), LOCAL_MICROS),
    ("long", "local-timestamp-micros"): _scalar(pa.int64(), LOCAL_MICROS),
}
_ANY: Final = Shape("any", pa.string(), pa.string(), pa.string())
_TEXT: Final = _scalar(pa.string())


@dataclass
class AvroTypes:
    """Reads one definition; each needs a new object.

    `for_json`: values are JSON texts, in which bytes are ordinary texts.
    """

    for_json: bool
    _named: dict[str, Any] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _nodes: int = 0
    _depth: int = 0

    def read(self, definition: Any, namespace: str = "") -> Shape:
        """The shape of a parsed definition.  Raises SchemaUnusable."""
        self._nodes += 1
        if self._nodes > NODES_MAX or self._depth >= DEPTH_MAX:
            raise SchemaUnusable("the schema is too large or too deep for columns: set schema to raw")
        self._depth += 1
        shape = self._read(definition, namespace)
        self._depth -= 1
        return shape

    def _read(self, definition: Any, namespace: str) -> Shape:
        if isinstance(definition, list):
            return self._union(definition, namespace)
        if isinstance(definition, str):
            return self._name(definition, namespace)
        if not isinstance(definition, dict) or "type" not in definition:
            raise SchemaUnusable("the schema is not an Avro definition")
        kind = definition["type"]
        if not isinstance(kind, str):  # {"type": {"type": ...}}
            return self.read(kind, namespace)
        match kind:
            case "record" | "error":
                return self._record(definition, namespace)
            case "enum":
                self._define(definition, namespace)
                return _TEXT
            case "fixed":
                self._define(definition, namespace)
                return self._binary(definition)
            case "array":
                return self._list(definition, namespace)
            case "map":
                child = self.read(definition.get("values"), namespace)
                return _around("map", (("", child),), lambda types: pa.map_(pa.string(), types[0]))
            case "bytes":
                return self._binary(definition)
        logical = definition.get("logicalType")
        if isinstance(logical, str) and (kind, logical) in TIMES:
            return TIMES[kind, logical]
        return self._name(kind, namespace)

    def _name(self, name: str, namespace: str) -> Shape:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name == "bytes":
            return self._binary({})
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._named:
            full = name
        if full in self._open:
            raise SchemaUnusable(f'the type "{name}" contains itself: set schema to raw')
        if full not in self._named:
            raise SchemaUnusable(f'the schema names an unknown type "{name[:100]}"')
        definition, space = self._named[full]
        return (
            self._record(definition, space)
            if definition["type"] in ("record", "error")
            else (self._binary(definition) if definition["type"] == "fixed" else _TEXT)
        )

    def _define(self, definition: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        name = str(definition.get("name", ""))
        space = str(definition.get("namespace") or "") or (
            name.rpartition(".")[0] if "." in name else namespace
        )
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = (definition, namespace)
        return full, space

    def _record(self, definition: Mapping[str, Any], namespace: str) -> Shape:
        full, space = self._define(definition, namespace)
        fields = definition.get("fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) and "name" in one for one in fields):
            raise SchemaUnusable(f'the record "{full[:100]}" has no list of fields')
        if not fields:
            raise SchemaUnusable(f'the record "{full[:100]}" has no fields: set schema to raw')
        self._open.append(full)
        # The namespace is kept with the name, because a later reference is read as if it were here.
        children = tuple((str(one["name"]), self.read(one.get("type"), space)) for one in fields)
        self._open.pop()
        names = [name for name, _ in children]
        if len(set(names)) < len(names):
            raise SchemaUnusable(f'the record "{full[:100]}" has two fields of one name')
        return _around(
            "record",
            children,
            lambda types: pa.struct([*zip((name for name, _ in children), types, strict=True)]),
        )

    def _list(self, definition: Mapping[str, Any], namespace: str) -> Shape:
        child = self.read(definition.get("items"), namespace)
        if child.is_empty and not self.for_json:
            raise SchemaUnusable("a list of items that take no bytes has no bound: set schema to raw")
        return _around("list", (("", child),), lambda types: pa.list_(types[0]))

    def _union(self, branches: list[Any], namespace: str) -> Shape:
        shapes = [self.read(one, namespace) for one in branches if one != "null"]
        if len(shapes) > 1:
            return _ANY
        if not shapes:
            return _TEXT
        only = shapes[0]  # null or this: the branch's index is a byte
        return replace(only, is_empty=False)

    def _binary(self, definition: Mapping[str, Any]) -> Shape:
        if self.for_json:
            return _TEXT
        if definition.get("logicalType") == "decimal":
            digits, scale = definition.get("precision"), definition.get("scale", 0)
            if isinstance(digits, int) and isinstance(scale, int) and 0 <= scale <= digits:
                if 0 < digits <= DECIMAL_DIGITS_MAX:
                    return _scalar(pa.decimal128(digits, scale))
                raise SchemaUnusable(
                    f"a decimal of {digits} digits: columns have at most {DECIMAL_DIGITS_MAX}"
                )
        return replace(_scalar(pa.binary()), is_empty=definition.get("size") == 0)


def load(definition: str) -> Any:
    """The JSON value of a definition.  Raises SchemaUnusable."""
    try:
        return json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise SchemaUnusable(f"the schema is not JSON: {str(error)[:200]}") from None


def finish(array: pa.Array, shape: Shape) -> pa.Array:
    """Convert an array from `shape.raw` to `shape.type`.  Raises pa.ArrowInvalid if a time is out of the column's
    range.
    """
    return array if shape.raw.equals(shape.type) else array.cast(shape.unit).cast(shape.type)

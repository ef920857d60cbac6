"""Rows of Spark as JSON values of a topic, and the Avro definition that such a topic's schema has.

| type of a column | field | in JSON |
|---|---|---|
| BOOLEAN, FLOAT, DOUBLE, STRING | the same | the same |
| TINYINT, SMALLINT, INT; BIGINT | int; long | a number |
| DATE | int, `date` | the days since 1970 |
| TIMESTAMP, TIMESTAMP_NTZ | long, `timestamp-micros`, `local-timestamp-micros` | the microseconds since 1970 |
| DECIMAL, BINARY | string | the number as a text; base64 |
| STRUCT, ARRAY, MAP with keys of text | record, array, map | an object, a list, an object |

Every field may be null.  These are the types of docs/reference/tables.md, so that a table of the topic has the columns
again.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_RECORD: Final = "Row"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# By Spark's names of types.
_SCALARS: Final[dict[str, Any]] = {
    "binary": "string",
    "boolean": "boolean",
    "byte": "int",
    "date": {"type": "int", "logicalType": "date"},
    "decimal": "string",
    "double": "double",
    "float": "float",
    "integer": "int",
    "long": "long",
    "short": "int",
    "string": "string",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
    "void": "string",
}


def definition(schema: "StructType") -> dict[str, Any]:
    """The Avro definition of rows with these columns.

    Raises:
        ConfigError: a column has a name or a type that no field has.
    """
    return _record(schema, _RECORD, "")


def value(schema: "StructType") -> "Column":
    """The column `value` of rows with these columns, which `definition` has taken."""
    from pyspark.sql import functions

    columns = [_encoded(functions.col(one.name), one.dataType).alias(one.name) for one in schema.fields]
    return functions.to_json(functions.struct(*columns)).alias("value")


def _record(schema: "StructType", name: str, path: str) -> dict[str, Any]:
    if not schema.fields:
        raise ConfigError(f"{path or 'a row'} has no column: nothing would be written")
    fields = []
    for one in schema.fields:
        if _NAME.fullmatch(one.name) is None:
            raise ConfigError(
                f"the column {path}{one.name[:100]!r} cannot be a field: name it in letters, digits and underscores"
            )
        kind = _type(one.dataType, f"{name}_{one.name}", f"{path}{one.name}.")
        fields.append({"name": one.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: "DataType", name: str, path: str) -> Any:
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    match kind:
        case StructType():
            return _record(kind, name, path)
        case ArrayType():
            return {"type": "array", "items": ["null", _type(kind.elementType, f"{name}_item", path)]}
        case MapType(keyType=StringType()):
            return {"type": "map", "values": ["null", _type(kind.valueType, f"{name}_value", path)]}
    found = _SCALARS.get(kind.typeName())
    if found is None:
        raise ConfigError(
            f"the column {path.rstrip('.')} has the type {kind.simpleString()[:100]}, which no field has: leave it"
            " out by schema"
        )
    return found


def _encoded(column: "Column", kind: "DataType") -> "Column":
    """The column as `to_json` must get it to write what `definition` says."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            parts = [_encoded(column[one.name], one.dataType).alias(one.name) for one in kind.fields]
            return functions.when(column.isNotNull(), functions.struct(*parts))
        case ArrayType():
            return functions.transform(column, lambda one: _encoded(one, kind.elementType))
        case MapType():
            return functions.transform_values(column, lambda _, one: _encoded(one, kind.valueType))
    match kind.typeName():
        case "date":
            return functions.unix_date(column)
        case "timestamp" | "timestamp_ntz":
            return functions.unix_micros(column.cast("timestamp"))
        case "decimal" | "void":
            return column.cast("string")
        case _:
            return column

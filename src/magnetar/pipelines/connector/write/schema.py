"""The columns that can be written, with their meaning in Spark's kafka sink; all others are left out.

This module, `exactly_once.py` and `stream.py` import nothing large, because Spark starts a process for each commit.
"""

from typing import TYPE_CHECKING, Final

from magnetar.pipelines.connector.options import SchemaError
from magnetar.pipelines.connector.write.options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT_OR_BYTES: Final = ("string", "binary")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
COLUMNS: Final = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


def check_schema(schema: "StructType", options: WriteOptions) -> None:
    """Check that rows of this schema can be written.

    Raises:
        SchemaError: a column is missing or has another type.
    """
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise SchemaError("there is no column value: name what is to be written, select(... .alias('value'))")
    if options.topic is None and "topic" not in kinds:
        raise SchemaError("nothing says where rows go: set option topic, or add a column topic")
    for name, allowed in COLUMNS.items():
        if not is_written(name, options) or name not in kinds:
            continue
        if kinds[name] not in allowed:
            raise SchemaError(
                f"column {name} must be {' or '.join(allowed)}, it is {kinds[name]}: cast it, or leave it out"
            )
    if options.include_timestamp and "timestamp" not in kinds:
        raise SchemaError(
            "option includeTimestamp: there is no column timestamp; add it, or leave the option out"
        )


def is_written(name: str, options: WriteOptions) -> bool:
    if name == "topic":
        return options.topic is None
    return name != "timestamp" or options.include_timestamp

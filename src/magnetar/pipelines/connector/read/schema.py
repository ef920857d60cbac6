"""The columns that exist, and the choice of them that a query makes with its schema.

Types and order are those of Spark's `kafka` source.  A Python data source cannot know which columns a query uses.  So
the schema that a user gives is the projection: columns that it leaves out are neither decoded nor sent.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from magnetar.pipelines.connector.options import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BASE_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADER_COLUMNS: Final = {"headers": "array<struct<key:string,value:binary>>"}
PULSAR_COLUMNS: Final = {
    "__messageId": "string",
    "__publishTime": "timestamp",
    "__eventTime": "timestamp",
    "__producerName": "string",
    "__sequenceId": "bigint",
    "__messageProperties": "map<string,string>",
}
ALL_COLUMNS: Final = {**BASE_COLUMNS, **HEADER_COLUMNS, **PULSAR_COLUMNS}

# One row for each slice, which `magnetar.pipelines.connector.read.slices` reads in a Python worker.
DESCRIPTOR_COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "from_offset": "bigint",
    "to_offset": "bigint",
    "bytes": "bigint",
    "plan": "binary",
}


def ddl(*, headers: bool, pulsar_columns: bool, descriptors: bool) -> str:
    """The schema of a query that does not specify one."""
    if descriptors:
        columns = DESCRIPTOR_COLUMNS
    else:
        columns = {
            **BASE_COLUMNS,
            **(HEADER_COLUMNS if headers else {}),
            **(PULSAR_COLUMNS if pulsar_columns else {}),
        }
    return _written(columns)


def projection(names: Iterable[str]) -> str:
    """The schema of a query that reads these columns and no others."""
    return _written({name: ALL_COLUMNS[name] for name in names})


def _written(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def check(schema: "StructType", *, descriptors: bool) -> tuple[str, ...]:
    """The columns of a user's schema, in its order.

    Raises:
        SchemaError: a column does not exist, or has another type.
    """
    known = DESCRIPTOR_COLUMNS if descriptors else ALL_COLUMNS
    for field in schema.fields:
        if field.name not in known:
            raise SchemaError(f"schema: there is no column {field.name}; the columns are {', '.join(known)}")
        kind = field.dataType.simpleString()
        if kind != known[field.name]:
            raise SchemaError(
                f"schema: column {field.name} is {known[field.name]}, not {kind};"
                " read it as that and cast it afterwards"
            )
    if not schema.fields:
        raise SchemaError(f"schema: it has no column; choose of {', '.join(known)}")
    return tuple(schema.fieldNames())

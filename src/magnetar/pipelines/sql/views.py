"""A topic as a view: the fields of its values as columns, and where each record stands in the log.

    fields of the value       as the topic's newest schema names them; without one that has fields, a column `value`
    __key, __partition, ...   the record's own columns (`METADATA`), after them

A view is over all of the topic that there is when a query runs, the newest record included.  Conditions on __partition,
__offset and __timestamp reach the data source through it, so that they decide what is read at all.  A value that its
schema cannot read is NULL in every field, and `__error` says why.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.pipelines.sql.names import Topic, quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from magnetar.pipelines.tables.values import TopicSchema

# Column of the data source -> column of the view.
METADATA: Final = {
    "key": "__key",
    "partition": "__partition",
    "offset": "__offset",
    "timestamp": "__timestamp",
    "headers": "__headers",
}
ERROR: Final = "__error"
_PREFIX: Final = "__magnetar_"


class Schemas(Protocol):
    """The topics' schemas, as the server has them."""

    def schema(self, topic: str) -> "TopicSchema | None":
        """The newest schema of a topic, None if it has none."""
        ...


class Views:
    """Makes views of topics in one session."""

    def __init__(self, spark: "SparkSession", schemas: Schemas, options: dict[str, str]) -> None:
        self._spark: Final = spark
        self._schemas: Final = schemas
        self._reader: Final = (
            spark.read.format("magnetar").options(**options).option("includeHeaders", "true")
        )
        self._selects: Final[list[tuple[TopicSchema | None, tuple[str, str]]]] = []

    def is_there(self, name: str) -> bool:
        """Whether a statement has made a temporary view of that name."""
        catalog = self._spark._jsparkSession.sessionState().catalog()
        return bool(catalog.getTempView(name).isDefined())

    def define(self, topic: Topic, name: str, *, used_once: bool) -> str:
        """A query for `topic` as it is now, with the schema that it has now; it uses `name`, a temporary view.

        To be called for each use in each statement: what Spark has once planned to read it would read again.  Where
        the statement may use what it is part of twice (`used_once` is false), filters do not reach the source.
        """
        select, end = self._select(self._schemas.schema(topic.full))
        self._reader.options(subscribe=topic.full, filterPushdown=used_once).load().createOrReplaceTempView(
            name
        )
        return f"{select} FROM {quote(name)}{end}"

    def _select(self, schema: "TopicSchema | None") -> tuple[str, str]:
        """A query without the view that it is over, as text: Spark takes that in one go instead of a hundred calls."""
        from magnetar.pipelines.tables.shapes import SchemaUnusable

        for known, select in self._selects:
            if known == schema:
                return select
        select = f"SELECT value, {_metadata(['value'])}", ""
        if schema is not None:
            function, value = f"{_PREFIX}decode_{len(self._selects)}", f"{_PREFIX}value"
            # A definition that has no columns: the value stays what it is.
            with contextlib.suppress(SchemaUnusable):
                names = self._register(schema, function)
                fields = names if _holds(names, ERROR) else [*names, ERROR]
                columns = ", ".join(f"{value}.{quote(name)} AS {quote(name)}" for name in fields)
                inner = f"SELECT *, {function}(value, key) AS {value}"
                select = f"SELECT {columns}, {_metadata(names)} FROM ({inner}", ")"  # noqa: S608 - names are quoted
        self._selects.append((schema, select))
        return select

    def _register(self, schema: "TopicSchema", function: str) -> list[str]:
        """Make `function` a function of SQL that decodes (value, key) by `schema`; the fields of what it returns."""
        import pyarrow as pa
        from pyspark.sql.pandas.functions import arrow_udf
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StringType, StructField, StructType

        from magnetar.pipelines.tables.values import decoder

        fields = from_arrow_schema(decoder(schema).fields)

        def decoded(
            values: pa.Array, keys: pa.Array
        ) -> pa.Array:  # Spark asks the annotations what to hand over
            return decode_column(schema, values, keys)

        result = StructType([*fields.fields, StructField(ERROR, StringType())])
        udf = arrow_udf(decoded, result)  # type: ignore[call-overload]  # structs are missing from its stubs
        self._spark.udf.register(function, udf)
        return list(fields.names)


def _metadata(names: Sequence[str]) -> str:
    """The record's own columns, but for those whose names the fields of the value have taken."""
    return ", ".join(
        f"{quote(column)} AS {quote(name)}" for column, name in METADATA.items() if not _holds(names, name)
    )


def decode_column(schema: "TopicSchema", values: Any, keys: Any) -> Any:
    """Values as one column of structs: the schema's fields, and why a value could not be read."""
    import pyarrow as pa

    from magnetar.pipelines.tables.values import decode

    decoded = decode(schema, values, keys)
    reasons = pa.array([decoded.undecodable.get(row) for row in range(len(values))], pa.string())
    arrays = [*decoded.columns.columns, reasons]
    fields = [*decoded.columns.schema, pa.field(ERROR, pa.string())]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _holds(names: Sequence[str], name: str) -> bool:
    return any(one.lower() == name.lower() for one in names)

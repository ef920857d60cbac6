"""A topic as a view: the fields of its values as columns, and where each record stands in the log.

    fields of the value       as the topic's newest schema names them; without a schema one column `value`
    __key, __partition, ...   the record's own columns (`METADATA`), after them

A view is over all of the topic that there is when a query runs, the newest record included.  Conditions on __partition,
__offset and __timestamp reach the data source through it, so that they decide what is read at all.  A value that its
schema cannot read is NULL in every field, and `__error` says why.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.pipelines.sql.names import Topic, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
        self._options: Final = options

    def is_there(self, name: str) -> bool:
        """Whether a statement has made a temporary view of that name."""
        catalog = self._spark._jsparkSession.sessionState().catalog()
        return bool(catalog.getTempView(name).isDefined())

    def define(self, topic: Topic, name: str) -> None:
        """Make `name` a view of `topic` as it is now, with the schema that it has now.

        To be called for each use in each statement: what Spark has once planned to read it would read again.
        """
        self._frame(topic, self._schemas.schema(topic.full)).createOrReplaceTempView(quote(name))

    def _frame(self, topic: Topic, schema: "TopicSchema | None") -> "DataFrame":
        from pyspark.sql import functions as f

        source = (
            self._spark.read.format("magnetar")
            .options(**self._options)
            .option("subscribe", topic.full)
            .option("includeHeaders", "true")
            .load()
        )
        fields: list[Column]
        if schema is None:
            fields = [f.col("value")]
            names = ["value"]
        else:
            source, fields, names = _with_fields(source, schema)
        metadata = [f.col(column).alias(name) for column, name in METADATA.items() if not _holds(names, name)]
        return source.select(*fields, *metadata)


def _with_fields(source: "DataFrame", schema: "TopicSchema") -> tuple["DataFrame", "list[Column]", list[str]]:
    """`source` with its values decoded, and what to select for the fields of `schema`."""
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType, StructField, StructType

    from magnetar.pipelines.tables.values import decoder

    reads = decoder(schema)
    kinds = from_arrow_schema(reads.fields)
    result = StructType([*kinds.fields, StructField(ERROR, StringType())])

    def decoded(values: pa.Array, keys: pa.Array) -> pa.Array:  # Spark asks the annotations what to hand over
        return decode_column(schema, values, keys)

    udf = arrow_udf(decoded, result)  # type: ignore[call-overload]  # structs are missing from its stubs
    struct = "__magnetar_value"
    source = source.withColumn(struct, udf(f.col("value"), f.col("key")))
    names = list(kinds.names)
    columns = [f.col(struct).getField(name).alias(name) for name in names]
    if not _holds(names, ERROR):
        columns.append(f.col(struct).getField(ERROR).alias(ERROR))
    return source, columns, names


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

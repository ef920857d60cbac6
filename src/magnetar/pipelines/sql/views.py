"""A topic as a view: the fields of its values as columns, and the place of each record in the log.

    fields of the value       with the names of the topic's newest schema; without fields, a column `value`
    __key, __partition, ...   the record's own columns (`METADATA`), after them

A view has all records that the topic has when a query runs, up to the newest.  Conditions on __partition, __offset
and __timestamp reach the data source, so that it reads only matching records.  A value that its schema cannot decode
is NULL in every field, and `__error` says why.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.pipelines.connector.read.schema import projection
from magnetar.pipelines.sql.mentions import Mentions
from magnetar.pipelines.sql.names import Topic, quote
from magnetar.pipelines.values.topic_schema import TopicSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """The source of the topics' schemas."""

    def schema(self, topic: str) -> TopicSchema | None:
        """The newest schema of a topic; None if it has none."""
        ...


class Views:
    """Creates views of topics in one session."""

    def __init__(self, spark: "SparkSession", schemas: Schemas, options: dict[str, str]) -> None:
        self._spark: Final = spark
        self._schemas: Final = schemas
        self._options: Final = options
        self._decoded: Final[list[tuple[TopicSchema, str | None, list[str]]]] = []

    def is_there(self, name: str) -> bool:
        """Whether a statement has created a temporary view with that name."""
        catalog = self._spark._jsparkSession.sessionState().catalog()
        return bool(catalog.getTempView(name).isDefined())

    def define(self, topic: Topic, name: str, mentions: Mentions, *, used_once: bool) -> str:
        """A query for the present content of `topic`, with its present schema; it uses a temporary view `name`.

        Columns that are not in `mentions` may be missing, because they are not read.  The caller must call this for
        each use in each statement, because Spark would reuse an old plan.  If the statement may use the query twice
        (`used_once` is false), filters do not reach the source.
        """
        function, fields = self._decoder(self._schemas.schema(topic.full))
        # A query that names one field needs the whole value decoded.
        value = any(mentions.has(field) for field in fields)
        metadata = [
            (column, own) for column, own in METADATA.items() if mentions.has(own) and not _holds(fields, own)
        ]
        if not value and not metadata:
            metadata = [("offset", METADATA["offset"])]  # the smallest column, for counting records
        columns = {column for column, _ in metadata}
        if value:
            columns |= {"value", "key"} if function else {"value"}
        reader = (
            self._spark.read.format("magnetar").options(**self._options).schema(projection(sorted(columns)))
        )
        reader.options(subscribe=topic.full, filterPushdown=used_once).load().createOrReplaceTempView(name)
        selected = [f"{quote(column)} AS {quote(own)}" for column, own in metadata]
        source = quote(name)
        if value and function is None:
            selected.insert(0, "value")
        elif value:
            decoded = f"{_PREFIX}value"
            selected[:0] = [f"{decoded}.{quote(field)} AS {quote(field)}" for field in fields]
            source = f"(SELECT *, {function}(value, key) AS {decoded} FROM {source})"  # noqa: S608 - names are quoted
        return f"SELECT {', '.join(selected)} FROM {source}"  # noqa: S608 - names are quoted

    def _decoder(self, schema: TopicSchema | None) -> tuple[str | None, list[str]]:
        """The SQL function that decodes values of this schema, and the columns of its result.

        Without a function, the value is a column.
        """
        from magnetar.pipelines.values.shapes import SchemaUnusable

        if schema is None:
            return None, ["value"]
        for known, function, fields in self._decoded:
            if known == schema:
                return function, fields
        name = f"{_PREFIX}decode_{len(self._decoded)}"
        decoder: tuple[str | None, list[str]]
        try:
            names = self._register(schema, name)
            decoder = name, names if _holds(names, ERROR) else [*names, ERROR]
        except SchemaUnusable:  # the definition has no columns
            decoder = None, ["value"]
        self._decoded.append((schema, *decoder))
        return decoder

    def _register(self, schema: TopicSchema, function: str) -> list[str]:
        """Register the SQL function `function`, which decodes (value, key) by `schema`; returns the fields of its
        result.
        """
        import pyarrow as pa
        from pyspark.sql.pandas.functions import arrow_udf
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StringType, StructField, StructType

        from magnetar.pipelines.values.decoding import decoder

        fields = from_arrow_schema(decoder(schema).fields)

        def decoded(
            values: pa.Array, keys: pa.Array
        ) -> pa.Array:  # Spark reads the annotations to choose the arguments' types
            return decode_column(schema, values, keys)

        result = StructType([*fields.fields, StructField(ERROR, StringType())])
        udf = arrow_udf(decoded, result)  # type: ignore[call-overload]  # structs are missing from its stubs
        self._spark.udf.register(function, udf)
        return list(fields.names)


def decode_column(schema: TopicSchema, values: Any, keys: Any) -> Any:
    """Values as one column of structs: the schema's fields, and the reason if a value could not be decoded."""
    import pyarrow as pa

    from magnetar.pipelines.values.decoding import decode

    decoded = decode(schema, values, keys)
    reasons = pa.array([decoded.undecodable.get(row) for row in range(len(values))], pa.string())
    arrays = [*decoded.columns.columns, reasons]
    fields = [*decoded.columns.schema, pa.field(ERROR, pa.string())]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _holds(names: Sequence[str], name: str) -> bool:
    return any(one.lower() == name.lower() for one in names)

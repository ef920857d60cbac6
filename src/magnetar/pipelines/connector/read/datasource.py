"""The part that Spark sees: the data source `magnetar`.

The package `pyspark_magnetar`, which Spark finds by its name, registers it.  Every method that Spark calls first
checks options and schema, so that the user sees what is wrong before anything runs.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.read import schema as columns
from magnetar.pipelines.connector.read.options import flag, parse
from magnetar.pipelines.connector.read.reader import BatchReader, FilteringBatchReader
from magnetar.pipelines.connector.read.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_READING: Final = frozenset({"subscribe", "subscribepattern", "assign", "topics", "topicspattern"})
_FILTERS_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def schema_of(options: Mapping[str, str]) -> str:
    """The columns of a query that names none.

    Spark asks for them at `load()`, before it says whether a batch or a stream is meant.  Options that are wrong for
    both are refused here already.

    Raises:
        OptionError
    """
    if _reads(options):
        try:
            parse(options, streaming=False)
        except OptionError:
            parse(options, streaming=True)
    return columns.ddl(
        headers=flag(options, "includeHeaders"),
        pulsar_columns=flag(options, "includePulsarColumns"),
        descriptors=flag(options, "descriptors"),
    )


def batch_reader(options: Mapping[str, str], schema: "StructType") -> BatchReader:
    """Raises: OptionError, SchemaError."""
    parsed = parse(options, streaming=False)
    columns.check(schema, descriptors=parsed.descriptors)
    # Spark 4.3 plans each Python data source once: all uses of one DataFrame, or of one view, read what the filters
    # of the last use leave.  So filters are applied only if the options say that there is no other use.  Spark pushes
    # them in a worker of its own, if spark.sql.python.filterPushdown.enabled is set; otherwise Spark refuses a reader
    # that takes filters.
    takes_filters = parsed.filter_pushdown and not parsed.descriptors and _runs(_FILTERS_WORKER)
    return FilteringBatchReader(parsed, schema) if takes_filters else BatchReader(parsed, schema)


def stream_reader(options: Mapping[str, str], schema: "StructType") -> StreamReader:
    """Raises: OptionError, SchemaError."""
    parsed = parse(options, streaming=True)
    columns.check(schema, descriptors=parsed.descriptors)
    return StreamReader(parsed, schema)


def _reads(options: Mapping[str, str]) -> bool:
    """Whether these are options of reading; the sink checks those of writing."""
    return any(key.lower() in _READING for key in options)


def _runs(worker: str) -> bool:
    """Whether this process is Spark's worker `worker`, either imported by a daemon or run by itself."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return worker in sys.modules or (spec is not None and spec.name == worker)

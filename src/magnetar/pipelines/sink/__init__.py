"""Writing into topics: what `df.write` and `df.writeStream` with the format `magnetar` do.

`options.py` and `rows.py` (columns, partitions, batches) serve both; `batch.py` is the batch job, `stream.py` the
streaming query, `exactly_once.py` its transactions, `decisions.py` what it remembers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from magnetar.pipelines.sink.batch import BatchWriter
    from magnetar.pipelines.sink.stream import StreamWriter


def batch_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "BatchWriter":
    """The writer of a batch job.

    Raises:
        OptionError, SchemaError.
    """
    from magnetar.pipelines.sink.batch import BatchWriter

    return BatchWriter(options, schema, overwrite)


def stream_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "StreamWriter":
    """The writer of a streaming query.

    Raises:
        OptionError, SchemaError.
    """
    from magnetar.pipelines.sink.stream import StreamWriter

    return StreamWriter(options, schema, overwrite)

"""What the log stores, as columns, and columns as record batches.

`decode` takes records of the store side by side, as they lie in a segment file.  It gives rows as a Kafka consumer sees
them, in the layout of Apache Arrow.  `encode` takes such columns and gives record batches.  Neither knows Spark, Arrow
or a file; `pipelines/connector/columns.py` makes tables of what comes out.
"""

from magnetar.wire.columns.engine import (
    BATCH_BYTES_MAX,
    decode,
    encode,
    is_compiled,
    load,
    load_kept,
    prepare,
)
from magnetar.wire.columns.model import (
    APPEND_TIME,
    CREATE_TIME,
    DECODED_BYTES_MAX,
    NOT_BATCHED,
    AbortedRange,
    BinaryColumn,
    Columns,
    Decoded,
    PairsColumn,
    Producer,
    PulsarColumns,
    Wanted,
    Window,
)

__all__ = [
    "APPEND_TIME",
    "BATCH_BYTES_MAX",
    "CREATE_TIME",
    "DECODED_BYTES_MAX",
    "NOT_BATCHED",
    "AbortedRange",
    "BinaryColumn",
    "Columns",
    "Decoded",
    "PairsColumn",
    "Producer",
    "PulsarColumns",
    "Wanted",
    "Window",
    "decode",
    "encode",
    "is_compiled",
    "load",
    "load_kept",
    "prepare",
]

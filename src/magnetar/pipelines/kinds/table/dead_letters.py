"""Records that could not be read, as records of another topic: their content, their place, and the reason.

Key, value, timestamp and headers are those of the record, followed by the headers `magnetar.topic`,
`magnetar.partition`, `magnetar.offset`, `magnetar.reason` and `magnetar.pipeline`.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from magnetar.pipelines.connector import options
from magnetar.pipelines.connector.columns import OTHER_TYPES
from magnetar.pipelines.kinds.kind import name_options
from magnetar.pipelines.kinds.table.config import TableConfig

HEADER: Final = "magnetar."


def letters(
    source: pa.RecordBatch, undecodable: Mapping[int, str], config: TableConfig, topic: str, partition: int
) -> pa.RecordBatch:
    """The rows of `source` that `undecodable` names (row: reason), in the form for the sink.

    `source` has key, value, offset, timestamp and headers.
    """
    numbers = sorted(undecodable)
    rows = source.take(pa.array(numbers, pa.int64()))
    headers = []
    for number, own, offset in zip(
        numbers, rows.column("headers").to_pylist(), rows.column("offset").to_pylist(), strict=True
    ):
        said = {
            "topic": topic,
            "partition": str(partition),
            "offset": str(offset),
            "reason": undecodable[number],
            "pipeline": config.name,
        }
        added = [{"key": HEADER + name, "value": text.encode()} for name, text in said.items()]
        headers.append([*(own or ()), *added])
    return pa.RecordBatch.from_pydict(
        {
            "key": rows.column("key"),
            "value": rows.column("value"),
            "headers": pa.array(headers, OTHER_TYPES["headers"]),
            "timestamp": rows.column("timestamp"),
            "topic": pa.repeat(config.dead_letter_topic(topic), len(numbers)),
        }
    )


def sink_options(config: TableConfig) -> dict[str, str]:
    """Options of the sink `magnetar` that writes dead letters."""
    return {
        **options.sink_options(config.bootstrap, config.context),
        **name_options(config.subscription),
        "includeTimestamp": "true",
    }

"""Records that a pipeline cannot use, as records of another topic: their content, their place, and the reason.

Key, value, timestamp and headers are those of the record, followed by the headers `magnetar.topic`,
`magnetar.partition`, `magnetar.offset`, `magnetar.reason` and `magnetar.pipeline`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from magnetar.pipelines.connector import options
from magnetar.pipelines.connector.columns import OTHER_TYPES
from magnetar.pipelines.kinds.kind import name_options

HEADER: Final = "magnetar."


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records come from that become dead letters, and where these go: to the topic `letters`."""

    pipeline: str
    topic: str
    partition: int
    letters: str


def letters(source: pa.RecordBatch, reasons: Mapping[int, str], origin: Origin) -> pa.RecordBatch:
    """The rows of `source` that `reasons` names, in the form that the sink takes.

    `source` has key, value, offset, timestamp and headers.
    """
    numbers = sorted(reasons)
    rows = source.take(pa.array(numbers, pa.int64()))
    headers = []
    for number, own, offset in zip(
        numbers, rows.column("headers").to_pylist(), rows.column("offset").to_pylist(), strict=True
    ):
        said = {
            "topic": origin.topic,
            "partition": str(origin.partition),
            "offset": str(offset),
            "reason": reasons[number],
            "pipeline": origin.pipeline,
        }
        added = [{"key": HEADER + name, "value": text.encode()} for name, text in said.items()]
        headers.append([*(own or ()), *added])
    return pa.RecordBatch.from_pydict(
        {
            "key": rows.column("key"),
            "value": rows.column("value"),
            "headers": pa.array(headers, OTHER_TYPES["headers"]),
            "timestamp": rows.column("timestamp"),
            "topic": pa.repeat(origin.letters, len(numbers)),
        }
    )


def sink_options(bootstrap: str, context: str, own_name: str) -> dict[str, str]:
    """Options of the sink `magnetar` that writes dead letters of a pipeline; its transactions begin with `own_name`."""
    return {
        **options.sink_options(bootstrap, context),
        **name_options(own_name),
        "includeTimestamp": "true",
    }

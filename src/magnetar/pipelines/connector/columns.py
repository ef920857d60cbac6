"""Columns as Arrow record batches and back.

No bytes are copied: an Arrow array uses the memory of a column's numpy arrays, and the other way round.  The types
are those that Spark requires of a data source: `binary` with 32-bit offsets, microseconds in UTC.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.wire.columns import BinaryColumn, Columns, PairsColumn, PulsarColumns, Wanted

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())

KAFKA_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
}
"""The columns that every read has, in Spark's order."""

OTHER_TYPES: Final[dict[str, pa.DataType]] = {
    "headers": _HEADERS,
    "__messageId": pa.string(),
    "__publishTime": _TIMESTAMP,
    "__eventTime": _TIMESTAMP,
    "__producerName": pa.string(),
    "__sequenceId": pa.int64(),
    "__messageProperties": _PROPERTIES,
    "__schemaVersion": pa.int64(),
}
"""The columns that a read has only on request."""

_VERSION: Final = "__schemaVersion"
_TYPES: Final = KAFKA_TYPES | OTHER_TYPES
_CONSTANT_ROWS_MIN: Final = 1 << 14


def wanted_of(schema: pa.Schema) -> Wanted:
    """What must be decoded for this schema.

    Raises:
        ValueError: a column does not exist, or has another type.
    """
    for field in schema:
        expected = _TYPES.get(field.name)
        if expected is None:
            raise ValueError(f"there is no column {field.name}; there are {', '.join(_TYPES)}")
        if field.type != expected:
            raise ValueError(f"column {field.name} is {expected}, not {field.type}")
    names = set(schema.names)
    return Wanted(
        key="key" in names,
        value="value" in names,
        offset="offset" in names or _VERSION in names,
        timestamp="timestamp" in names,
        timestamp_type="timestampType" in names,
        headers="headers" in names,
        pulsar=any(name.startswith("__") for name in names - {_VERSION}),
        schema_version=_VERSION in names,
    )


def to_arrow(columns: Columns, schema: pa.Schema, topic: str, partition: int) -> pa.RecordBatch:
    """The columns of `schema`, in its order; the caller has decoded what it names (`wanted_of`).

    `partition` is that of message ids: -1 for a topic without partitions, for which the column has 0.
    """
    return pa.RecordBatch.from_arrays(
        [_array(columns, field, topic, partition) for field in schema], schema=schema
    )


def _array(columns: Columns, field: pa.Field, topic: str, partition: int) -> pa.Array:
    match field.name:
        case "topic":
            return _constant(topic, _rounded(columns.count)).slice(0, columns.count)
        case "partition":
            return _constant(max(partition, 0), _rounded(columns.count)).slice(0, columns.count)
        case "key":
            return _binary(_there(columns.key), pa.binary())
        case "value":
            return _binary(_there(columns.value), pa.binary())
        case "offset":
            return _numbers(_there(columns.offset), pa.int64())
        case "timestamp":
            return _numbers(_there(columns.timestamp_us), _TIMESTAMP)
        case "timestampType":
            return _numbers(_there(columns.timestamp_type), pa.int32())
        case "__schemaVersion":
            return _numbers(_there(columns.schema_version), pa.int64())
        case "headers":
            return _headers(_there(columns.headers), field.type)
        case _:
            return _pulsar_array(_there(columns.pulsar), field, partition)


def _pulsar_array(pulsar: PulsarColumns, field: pa.Field, partition: int) -> pa.Array:
    match field.name:
        case "__messageId":
            parts = (
                pulsar.ledger_id,
                pulsar.entry_id,
                np.full(len(pulsar.entry_id), partition, np.int32),
                pulsar.batch_index,
            )
            texts = [pa.array(part).cast(pa.string()) for part in parts]
            return pc.binary_join_element_wise(*texts, ":")
        case "__publishTime":
            return _numbers(pulsar.publish_time_us, _TIMESTAMP)
        case "__eventTime":
            there = pulsar.event_time_us != 0
            return _numbers(pulsar.event_time_us, _TIMESTAMP, _bitmap(there))
        case "__producerName":
            return _binary(pulsar.producer_name, pa.string())
        case "__sequenceId":
            return _numbers(pulsar.sequence_id, pa.int64())
        case _:
            return _properties(pulsar.properties, field.type)


def _there(column: Any) -> Any:
    if column is None:
        raise ValueError("a column that was not decoded")
    return column


def _rounded(count: int) -> int:
    return max(_CONSTANT_ROWS_MIN, 1 << (count - 1).bit_length())


@lru_cache(maxsize=64)
def _constant(value: str | int, count: int) -> pa.Array:
    """A column with the same value in each row: created once, and sliced to the length."""
    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32()), count)


def _bitmap(valid: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _numbers(values: Any, kind: pa.DataType, bitmap: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def _binary(column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    bitmap = None if column.valid is None else _bitmap(column.valid)
    return pa.Array.from_buffers(
        kind, len(column), [bitmap, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    )


def _headers(column: PairsColumn, kind: pa.ListType) -> pa.Array:
    """The column `headers`: as in Spark's own source, null for a record without headers."""
    pairs = pa.StructArray.from_arrays(
        [_binary(column.names, pa.string()), _binary(column.values, pa.binary())],
        fields=list(kind.value_type),
    )
    bitmap = _bitmap(column.offsets[1:] != column.offsets[:-1])
    return pa.Array.from_buffers(kind, len(column), [bitmap, pa.py_buffer(column.offsets)], children=[pairs])


def _properties(column: PairsColumn, kind: pa.MapType) -> pa.Array:
    pairs = pa.StructArray.from_arrays(
        [_binary(column.names, pa.string()), _binary(column.values, pa.string())],
        fields=[kind.key_field, kind.item_field],
    )
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column.offsets)], children=[pairs])


def from_arrow(batch: pa.RecordBatch, timestamp_ms: int = -1) -> Columns:
    """A writer's rows as columns to encode: `key`, `value`, `headers` and `timestamp`, as far as they exist.

    Keys and values are bytes or texts of any Arrow type.  A row whose timestamp is null gets `timestamp_ms`.

    Raises:
        ValueError: a column that cannot be written, a header without a name, or more than 2 GiB in a column.
    """
    columns = Columns(batch.num_rows)
    names = batch.schema.names
    try:
        if "key" in names:
            columns.key = _from_binary(batch.column("key"))
        if "value" in names:
            columns.value = _from_binary(batch.column("value"))
        if "headers" in names:
            columns.headers = _from_headers(batch.column("headers"))
        if "timestamp" in names:
            columns.timestamp_us = _from_timestamps(batch.column("timestamp"), timestamp_ms)
    except pa.ArrowException as error:
        raise ValueError(f"rows that cannot be written: {error}") from error
    return columns


def _from_binary(array: pa.Array) -> BinaryColumn:
    array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    count = len(array)
    if offsets is None or count == 0:
        return BinaryColumn(np.zeros(count + 1, np.int32), np.zeros(0, np.uint8), _valid(array))
    starts = np.frombuffer(offsets, np.int32, count + 1, array.offset * 4)
    octets = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return BinaryColumn(starts, octets, _valid(array))


def _valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def _from_headers(array: pa.Array) -> PairsColumn:
    counts = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(counts.to_numpy(zero_copy_only=False), out=offsets[1:])
    names, values = array.flatten().flatten()
    if names.null_count:
        raise ValueError("a header without a name")
    return PairsColumn(offsets, _from_binary(names), _from_binary(values))


def _from_timestamps(array: pa.Array, timestamp_ms: int) -> Any:
    microseconds = array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64())
    return pc.fill_null(microseconds, timestamp_ms * 1000).to_numpy(zero_copy_only=False)

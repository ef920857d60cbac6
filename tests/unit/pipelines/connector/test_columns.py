"""Columns as Arrow's record batches: exactly the types that Spark checks, and nothing is lost on the way."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipelines.connector.columns import KAFKA_TYPES, OTHER_TYPES, from_arrow, to_arrow, wanted_of
from magnetar.wire.columns import Columns, PulsarColumns
from magnetar.wire.columns.model import binary_column, pairs_column

EVERYTHING = pa.schema(list((KAFKA_TYPES | OTHER_TYPES).items()))

blobs = st.none() | st.binary(max_size=12)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
rows = st.lists(st.tuples(blobs, blobs, headers, st.integers(-(6 * 10**16), 6 * 10**16)), max_size=20)
Rows = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]


def columns_of(rows: Rows) -> Columns:
    count = len(rows)
    longs = np.arange(count, dtype=np.int64)
    pairs = pairs_column([[(name.encode(), value) for name, value in row[2]] for row in rows])
    texts = pairs_column([[(name.encode(), b"text") for name, _ in row[2]] for row in rows])
    return Columns(
        count,
        key=binary_column([row[0] for row in rows]),
        value=binary_column([row[1] for row in rows]),
        offset=longs + 5,
        timestamp_us=np.array([row[3] for row in rows], np.int64),
        timestamp_type=np.zeros(count, np.int32),
        headers=pairs,
        pulsar=PulsarColumns(
            ledger_id=longs + 1,
            entry_id=longs + 2,
            batch_index=np.full(count, -1, np.int32),
            publish_time_us=longs + 1_000_000,
            event_time_us=longs,
            sequence_id=longs + 3,
            producer_name=binary_column([b"p"] * count),
            properties=texts,
        ),
        schema_version=longs + 4,
    )


@given(rows)
def test_every_column_says_what_it_was_made_of(rows: Rows) -> None:
    batch = to_arrow(columns_of(rows), EVERYTHING, "flights", 2)
    batch.validate(full=True)
    assert batch.schema == EVERYTHING
    read = batch.to_pydict()
    assert read["key"] == [row[0] for row in rows]
    assert read["value"] == [row[1] for row in rows]
    assert read["topic"] == ["flights"] * len(rows)
    assert read["partition"] == [2] * len(rows)
    assert read["offset"] == list(range(5, 5 + len(rows)))
    assert [one.value for one in batch.column("timestamp")] == [row[3] for row in rows]
    assert read["timestampType"] == [0] * len(rows)
    assert read["headers"] == [
        [{"key": name, "value": value} for name, value in row[2]] if row[2] else None for row in rows
    ]
    assert read["__messageId"] == [f"{at + 1}:{at + 2}:2:-1" for at in range(len(rows))]
    assert [one.value for one in batch.column("__publishTime")] == [at + 1_000_000 for at in range(len(rows))]
    assert [one.value for one in batch.column("__eventTime")] == [at or None for at in range(len(rows))]
    assert read["__producerName"] == ["p"] * len(rows)
    assert read["__sequenceId"] == [at + 3 for at in range(len(rows))]
    assert read["__messageProperties"] == [[(name, "text") for name, _ in row[2]] for row in rows]
    assert read["__schemaVersion"] == [at + 4 for at in range(len(rows))]


@given(rows)
def test_what_spark_writes_becomes_the_same_columns(rows: Rows) -> None:
    batch = to_arrow(columns_of(rows), EVERYTHING, "flights", 2)
    for begin in (0, len(rows) // 2):
        columns = from_arrow(batch.slice(begin))
        left = rows[begin:]
        assert columns.key is not None
        assert columns.value is not None
        assert columns.headers is not None
        assert columns.timestamp_us is not None
        assert [columns.key[at] for at in range(columns.count)] == [row[0] for row in left]
        assert [columns.value[at] for at in range(columns.count)] == [row[1] for row in left]
        assert [columns.headers[at] for at in range(columns.count)] == [row[2] for row in left]
        assert columns.timestamp_us.tolist() == [row[3] for row in left]


def test_a_projection_is_decoded_as_one_and_keeps_its_order() -> None:
    schema = pa.schema([("value", pa.binary()), ("partition", pa.int32()), ("key", pa.binary())])
    wanted = wanted_of(schema)
    assert (wanted.key, wanted.value, wanted.offset, wanted.timestamp, wanted.headers, wanted.pulsar) == (
        True, True, False, False, False, False,
    )  # fmt: skip
    assert to_arrow(columns_of([(b"k", None, [], 0)]), schema, "t", -1).to_pydict() == {
        "value": [None],
        "partition": [0],
        "key": [b"k"],
    }


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("valeu", pa.binary()), "no column valeu"),
        (pa.field("value", pa.string()), "value is binary, not string"),
        (pa.field("timestamp", pa.timestamp("ms", "UTC")), "timestamp"),
    ],
)
def test_a_schema_that_there_is_not_is_refused(field: pa.Field, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wanted_of(pa.schema([field]))


def test_a_column_that_was_not_decoded_is_missed() -> None:
    with pytest.raises(ValueError, match="not decoded"):
        to_arrow(Columns(1), EVERYTHING, "t", 0)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary_view()])
def test_texts_and_large_columns_are_written_too(kind: pa.DataType) -> None:
    columns = from_arrow(pa.record_batch({"value": pa.array(["a", None, "ä"], kind)}))
    assert columns.value is not None
    assert [columns.value[at] for at in range(3)] == [b"a", None, "ä".encode()]
    assert columns.key is None


def test_rows_without_a_time_get_the_one_that_is_given() -> None:
    batch = pa.record_batch({"timestamp": pa.array([1, None], pa.timestamp("ms", "UTC"))})
    columns = from_arrow(batch, timestamp_ms=7)
    assert columns.timestamp_us is not None
    assert columns.timestamp_us.tolist() == [1000, 7000]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1]),
        pa.array([None]).cast(pa.struct([("a", pa.int32())])),
    ],
)
def test_values_that_are_no_bytes_are_refused(column: pa.Array) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        from_arrow(pa.record_batch({"value": column}))


def test_a_header_without_a_name_is_refused() -> None:
    kind = OTHER_TYPES["headers"]
    column = pa.array([[{"key": None, "value": b""}]], kind)
    with pytest.raises(ValueError, match="without a name"):
        from_arrow(pa.record_batch({"headers": column}))

"""Compiled code does to the byte what Python does."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.wire.columns import (
    Columns,
    Producer,
    Wanted,
    Window,
    decoding,
    encoding,
    engine,
    plain,
    plain_encode,
)
from magnetar.wire.columns.model import BinaryColumn, Decoded, PairsColumn, binary_column, pairs_column
from tests.unit.wire.convert.records import message, sent

from .stored import NOW_MS
from .test_decode import KAFKA_CODECS, PULSAR_CODECS, entries, log_of, simple_log
from .test_encode import columns_of

bare = st.builds(lambda one: one._replace(headers=()), sent)
windows = st.builds(
    Window,
    from_offset=st.integers(0, 30),
    to_offset=st.none() | st.integers(0, 40),
    from_timestamp_ms=st.none() | st.integers(0, 2 * NOW_MS),
    to_timestamp_ms=st.none() | st.integers(0, 2 * NOW_MS),
)
wishes = st.builds(Wanted, *[st.booleans()] * 7)


def facts_of(decoded: Decoded) -> object:
    """All of it, in a form that can be compared."""

    def binary(column: BinaryColumn | None) -> object:
        return None if column is None else [column[at] for at in range(len(column))]

    def pairs(column: PairsColumn | None) -> object:
        return (
            None if column is None else (column.offsets.tolist(), binary(column.names), binary(column.values))
        )

    columns = decoded.columns
    pulsar = columns.pulsar
    seen = () if pulsar is None else (
        pulsar.ledger_id, pulsar.entry_id, pulsar.batch_index, pulsar.publish_time_us, pulsar.event_time_us,
        pulsar.sequence_id,
    )  # fmt: skip
    return (
        decoded.consumed,
        decoded.last_offset,
        decoded.needs_assembly,
        decoded.undecodable,
        columns.count,
        binary(columns.key),
        binary(columns.value),
        pairs(columns.headers),
        None if pulsar is None else (binary(pulsar.producer_name), pairs(pulsar.properties)),
        *(
            None if numbers is None else (str(numbers.dtype), numbers.tolist())
            for numbers in (columns.offset, columns.timestamp_us, columns.timestamp_type, *seen)
        ),
    )


@given(entries, wishes, windows, st.integers(1, 3000))
def test_decoding(entries: list[Any], wanted: Wanted, window: Window, bytes_max: int) -> None:
    data = log_of(entries).data
    compiled = decoding.decode(engine._compiled.modules, data, wanted, window, bytes_max)
    assert facts_of(compiled) == facts_of(plain.decode(data, wanted, window, bytes_max))


def test_what_lies_behind_enough_is_not_looked_at() -> None:
    log = simple_log(4)
    damaged = bytearray(log.data)
    damaged[-1] ^= 1
    decoded = decoding.decode(engine._compiled.modules, damaged, Wanted(), Window(), 1)
    assert decoded.consumed == len(log.parts[0])
    with pytest.raises(EntryCorrupt):
        decoding.decode(engine._compiled.modules, damaged, Wanted(), Window(), 1 << 20)


@given(
    st.lists(sent, min_size=1, max_size=9),
    st.integers(0, 4),
    st.integers(61, 2000),
    st.integers(1, 5),
    st.data(),
)
def test_encoding(
    records: list[Any], codec: int, bytes_max: int, records_max: int, data: st.DataObject
) -> None:
    columns = columns_of(records)
    rows = np.array(data.draw(st.lists(st.integers(0, len(records) - 1), max_size=9)), np.int64)
    given = (columns, codec, rows, bytes_max, records_max, Producer(1, 2, 3), NOW_MS)
    compiled = encoding.encode(engine._compiled.modules["compiled_encode"], *given)
    assert [bytes(batch) for batch in compiled] == [bytes(batch) for batch in plain_encode.encode(*given)]


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("pulsar"), st.lists(message, min_size=1, max_size=6), st.sampled_from(PULSAR_CODECS)
            ),
            st.tuples(st.just("single"), message, st.sampled_from(PULSAR_CODECS)),
            st.tuples(
                st.just("kafka"), st.lists(bare, min_size=1, max_size=6), st.sampled_from(KAFKA_CODECS)
            ),
        ),
        max_size=6,
    ),
    windows,
)
def test_decoding_what_pulsar_s_clients_see(entries: list[Any], window: Window) -> None:
    data = log_of(entries).data
    wanted = Wanted(pulsar=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "plain", None)  # compiled code does all of it
        compiled = decoding.decode(engine._compiled.modules, data, wanted, window, 1 << 20)
    assert facts_of(compiled) == facts_of(plain.decode(data, wanted, window, 1 << 20))


def test_what_does_not_fit_into_one_call_is_encoded_in_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_AT_ONCE_BYTES", 300)
    monkeypatch.setattr(encoding, "_BATCHES_AT_ONCE", 2)
    columns = Columns(9, value=binary_column([bytes(size) for size in (100, 10, 900, 1, 1, 1, 200, 200, 5)]))
    for codec in (0, 3):
        given = (columns, codec, np.arange(9), 250, 4, Producer(), NOW_MS)
        compiled = encoding.encode(engine._compiled.modules["compiled_encode"], *given)
        assert [bytes(batch) for batch in compiled] == [bytes(batch) for batch in plain_encode.encode(*given)]


BAD = BinaryColumn(np.array([0, 5], np.int32), np.zeros(4, np.uint8))
DESCENDING = BinaryColumn(np.array([3, 2], np.int32), np.zeros(4, np.uint8))
NEGATIVE = BinaryColumn(np.array([-1, 2], np.int32), np.zeros(4, np.uint8))


@pytest.mark.parametrize("column", [BAD, DESCENDING, NEGATIVE])
def test_columns_that_say_more_than_they_have_are_refused(column: BinaryColumn) -> None:
    pairs = pairs_column([[(b"n", b"v")]])
    compiled = engine._compiled.modules["compiled_encode"]
    rest = (0, np.arange(1), 1 << 20, 10, Producer(), 0)
    for columns in (Columns(1, key=column), Columns(1, value=column)):
        with pytest.raises(ValueError, match="beyond"):
            encoding.encode(compiled, columns, *rest)
    pairs.names = column
    with pytest.raises(ValueError, match="beyond"):
        encoding.encode(compiled, Columns(1, headers=pairs), *rest)
    pairs.offsets = np.array([0, 2], np.int32)
    with pytest.raises(ValueError, match="beyond"):
        encoding.encode(compiled, Columns(1, headers=pairs), *rest)


def test_columns_of_different_lengths_are_refused() -> None:
    compiled = engine._compiled.modules["compiled_encode"]
    two = binary_column([b"a", b"b"])
    flags = BinaryColumn(two.offsets, two.data, np.ones(3, np.bool_))
    rest = (0, np.arange(3), 1 << 20, 10, Producer(), 0)
    for columns in (
        Columns(3, key=two),
        Columns(3, timestamp_us=np.zeros(2, np.int64)),
        Columns(2, key=flags),
    ):
        with pytest.raises(ValueError, match=r"among columns|flags for"):
            encoding.encode(compiled, columns, *rest)

"""Questions about records without making objects of them: both walks agree with the reader, bombs stay in budget."""

import gzip
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.kafka import record_scan
from magnetar.wire.kafka.record_reader import TooLargeExpanded, expand, read_raw_records
from magnetar.wire.kafka.record_scan import (
    Budget,
    Facts,
    compiled_scan,
    first_at,
    keyless,
    newest,
    plain_scan,
)
from magnetar.wire.kafka.records import LOG_APPEND_TIME, read_header
from tests.examples import at_least
from tests.unit.wire.kafka.test_record_reader import CODECS, batch, record

BUDGET = Budget(1 << 20, 100_000)
EVERY = -(1 << 63)

rows = st.lists(
    st.tuples(
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.one_of(st.none(), st.binary(max_size=3)),
        st.one_of(st.none(), st.binary(max_size=3)),
        st.lists(st.tuples(st.binary(max_size=2), st.one_of(st.none(), st.binary(max_size=2))), max_size=2),
    ),
    max_size=6,
)


def bytes_of(content: list[Any]) -> bytes:
    return b"".join(
        record(at, ms, key, value, headers) for at, (ms, key, value, headers) in enumerate(content)
    )


@pytest.fixture(scope="module")
def compiled() -> None:
    assert record_scan.load()


def outcome(walk: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        facts, indexes = walk(*arguments, **options)
    except WireError:
        return "malformed"
    return facts, list(indexes[: facts.keyless])


@given(content=rows, from_ms=st.integers(-10, 10), from_offset=st.integers(0, 6), to_first=st.booleans())
def test_the_walk_finds_what_the_reader_finds(
    content: list[Any], from_ms: int, from_offset: int, to_first: bool
) -> None:
    data = memoryview(bytes_of(content))
    facts, indexes = plain_scan(data, len(content), from_ms, from_offset, to_first=False, most=2)
    records = list(read_raw_records(data, len(content)))
    missing = [at for at, one in enumerate(records) if one.key is None]
    assert (facts.keyless, list(indexes)) == (len(missing), missing[:2])
    hits = [one for one in records if one.timestamp_delta_ms >= from_ms and one.offset_delta >= from_offset]
    if hits:
        assert (facts.first_offset, facts.first_ms) == (hits[0].offset_delta, hits[0].timestamp_delta_ms)
        shorter, _ = plain_scan(data, len(content), from_ms, from_offset, to_first=True, most=0)
        assert shorter[:3] == facts[:3]
    assert facts.has_first == bool(hits)
    if records:
        latest = max(records, key=lambda one: one.timestamp_delta_ms)
        assert (facts.newest_offset, facts.newest_ms) == (latest.offset_delta, latest.timestamp_delta_ms)


@pytest.mark.usefixtures("compiled")
@settings(max_examples=at_least(500))
@given(
    content=rows,
    extra=st.integers(-1, 1),
    damage=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
    to_first=st.booleans(),
    from_ms=st.integers(-2, 2),
)
def test_the_compiled_walk_is_the_plain_one_on_damaged_records_too(
    content: list[Any],
    extra: int,
    damage: list[tuple[int, int]],
    cut: int,
    to_first: bool,
    from_ms: int,
) -> None:
    data = bytearray(bytes_of(content))
    for at, byte in damage:
        if at < len(data):
            data[at] = byte
    view = memoryview(bytes(data[: len(data) - cut] if cut < len(data) else data))
    count = max(len(content) + extra, 0)
    arguments = (view, count, from_ms, 0)
    options = {"to_first": to_first, "most": 2}
    assert outcome(compiled_scan, *arguments, **options) == outcome(plain_scan, *arguments, **options)


def test_the_walk_refuses_what_the_reader_refuses() -> None:
    good = bytes_of([(0, b"k", b"v", [(b"h", b"1")]), (1, None, None, [])])
    for at in range(len(good)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            data = bytearray(good)
            data[at] = byte
            view = memoryview(data)
            try:
                list(read_raw_records(view, 2))
                is_good = True
            except WireError:
                is_good = False
            walked = outcome(plain_scan, view, 2, EVERY, EVERY, to_first=False, most=0)
            assert (walked != "malformed") == is_good, (at, byte)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_looked_into(codec: str) -> None:
    number, compress = CODECS[codec]
    data = bytes_of([(5, b"a", b"", []), (30, None, b"", []), (30, b"b", b"", []), (7, b"c", b"", [])])
    view = memoryview(batch(compress(data), 4, number))
    header = read_header(view)
    base_ms = header.base_timestamp_ms
    assert first_at(view, header, base_ms + 6, 0, BUDGET) == (1, base_ms + 30)
    assert first_at(view, header, base_ms + 6, 2, BUDGET) == (2, base_ms + 30)
    assert first_at(view, header, base_ms + 31, 0, BUDGET) is None
    assert newest(view, header, BUDGET) == (1, base_ms + 30)
    assert keyless(view, header, BUDGET, 10) == (1, [1])


def test_where_the_broker_stamped_records_all_have_its_time() -> None:
    view = memoryview(batch(bytes_of([(5, b"a", b"", []), (30, None, b"", [])]), 2, LOG_APPEND_TIME))
    header = read_header(view)
    assert first_at(view, header, 2000, 1, BUDGET) == (1, 2000)
    assert first_at(view, header, 2001, 0, BUDGET) is None
    assert newest(view, header, BUDGET) == (0, 2000)


def linked_lz4(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=True, store_size=False))


def many_members(data: bytes) -> bytes:
    return b"".join(gzip.compress(data[at : at + (1 << 20)]) for at in range(0, len(data), 1 << 20))


def many_xerial_blocks(data: bytes) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    block = bytes(cramjam.snappy.compress_raw(data[: 1 << 20]))
    return out + (struct.pack(">I", len(block)) + block) * (len(data) >> 20)


BOMBS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, gzip.compress),
    "gzip of many members": (1, many_members),
    "snappy raw": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy xerial": (2, many_xerial_blocks),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "lz4 of linked blocks": (3, linked_lz4),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_any_codec_is_given_up_at_its_budget(name: str) -> None:
    number, compress = BOMBS[name]
    zeros = bytes(8 << 20)
    bomb = memoryview(compress(zeros))
    with pytest.raises(TooLargeExpanded):
        expand(bomb, number, len(zeros) - 1)
    with pytest.raises(TooLargeExpanded):
        expand(bomb, number, 64 << 10)
    assert len(expand(bomb, number, len(zeros))) == len(zeros)


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_cut_short_is_damaged_and_not_too_large(name: str) -> None:
    number, compress = BOMBS[name]
    cut = memoryview(compress(bytes(range(256)) * 8192)[:-20])
    with pytest.raises(WireError) as caught:
        expand(cut, number, 8 << 20)
    assert not isinstance(caught.value, TooLargeExpanded)


def test_more_records_than_the_budget_has_are_not_even_decompressed() -> None:
    view = memoryview(batch(b"no compressed bytes at all", 101, 4))
    with pytest.raises(TooLargeExpanded, match="101 records"):
        keyless(view, read_header(view), Budget(1 << 20, 100), 1)


@pytest.mark.usefixtures("compiled")
def test_a_million_records_are_walked_over_without_one_object_each() -> None:
    one = record(0, 0, None, b"")
    view = memoryview(batch(bytes(cramjam.zstd.compress(one * 1_000_000)), 1_000_000, 4))
    count, indexes = keyless(view, read_header(view), Budget(16 << 20, 1_000_000), 3)
    assert (count, indexes) == (1_000_000, [0, 1, 2])


def test_facts_are_in_the_order_that_compiled_code_writes_them() -> None:
    assert Facts._fields == (
        "has_first",
        "first_offset",
        "first_ms",
        "newest_offset",
        "newest_ms",
        "keyless",
    )

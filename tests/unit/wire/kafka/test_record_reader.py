"""Records inside batches: every compression as clients write it, every cut, and bombs."""

import gzip
import struct
from typing import Any

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import (
    HEADER_SIZE,
    assign_offset,
    is_intact,
    read_header,
    stamp_log_append_time,
)


def zigzag(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def nullable(value: bytes | None) -> bytes:
    return zigzag(-1) if value is None else zigzag(len(value)) + value


def record(delta: int, stamp: int, key: bytes | None, value: bytes | None, headers: Any = ()) -> bytes:
    body = b"\0" + zigzag(stamp) + zigzag(delta) + nullable(key) + nullable(value) + zigzag(len(headers))
    for name, content in headers:
        body += nullable(name) + nullable(content)
    return zigzag(len(body)) + body


def batch(records: bytes, count: int, codec: int = 0) -> bytearray:
    checked = struct.pack(">hiqqqhii", codec, count - 1, 1000, 2000, -1, -1, -1, count) + records
    return bytearray(struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked)


def read(data: bytearray) -> list[Any]:
    view = memoryview(data)
    return list(read_records(view, read_header(view)))


def xerial(data: bytes) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), 50):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + 50]))
        out += struct.pack(">I", len(block)) + block
    return out


CODECS: dict[str, tuple[int, Any]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy raw": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy xerial": (2, xerial),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}
CONTENT: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"k", b"v" * 100, [("h", b"1"), ("h", None), ("", b"")]),
    (None, None, []),
    (b"", b"", [("\u00e4", b"\xff")]),
]
RECORDS = b"".join(
    record(delta, 10 * delta, key, value, [(name.encode(), content) for name, content in headers])
    for delta, (key, value, headers) in enumerate(CONTENT)
)


@pytest.mark.parametrize("name", CODECS)
def test_every_compression_gives_the_records_back(name: str) -> None:
    codec, compress = CODECS[name]
    data = batch(compress(RECORDS), 3, codec)
    assign_offset(memoryview(data), 500, 3)
    found = read(data)
    assert [(one.offset, one.timestamp_ms) for one in found] == [(500, 1000), (501, 1010), (502, 1020)]
    assert [(one.key, one.value, one.headers) for one in found] == CONTENT
    assert is_intact(memoryview(data), read_header(memoryview(data)))


@pytest.mark.parametrize("name", CODECS)
def test_a_batch_that_is_cut_or_has_more_is_malformed(name: str) -> None:
    codec, compress = CODECS[name]
    with pytest.raises(WireError):
        read(batch(compress(RECORDS + b"\0"), 3, codec))
    for count in (2, 4):
        with pytest.raises(WireError):
            read(batch(compress(RECORDS), count, codec))
    for size in range(len(RECORDS)):
        with pytest.raises(WireError):
            read(batch(compress(RECORDS[:size]), 3, codec))


@given(data=st.binary(max_size=200), codec=st.integers(0, 7), count=st.integers(-2, (1 << 31) - 1))
def test_random_records_are_records_or_malformed(data: bytes, codec: int, count: int) -> None:
    view = memoryview(batch(b"", 1, codec) + data)
    header = read_header(view)._replace(record_count=count)
    try:
        for _ in read_records(view, header):
            pass
    except WireError:
        return


def test_a_bomb_is_refused() -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(300 << 20)))
    assert len(bomb) < 100_000
    with pytest.raises(WireError):
        read(batch(bomb, 1, 4))


def test_a_stamped_batch_has_the_broker_s_time_and_a_good_checksum() -> None:
    data = batch(RECORDS, 3)
    stamp_log_append_time(memoryview(data), read_header(memoryview(data)), 123_456)
    assert is_intact(memoryview(data), read_header(memoryview(data)))
    assert {one.timestamp_ms for one in read(data)} == {123_456}


def test_a_header_needs_its_bytes() -> None:
    data = batch(RECORDS, 3)
    for size in range(HEADER_SIZE):
        with pytest.raises(WireError):
            read_header(memoryview(data)[:size])

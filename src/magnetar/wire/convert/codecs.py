"""Compression as each protocol wants it: the same four codecs, in other wrappings.

========  ==========================================  ==================================
codec     Kafka                                       Pulsar
========  ==========================================  ==================================
gzip      gzip                                        zlib
snappy    blocks in the framing of the xerial library the raw format
lz4       a frame of independent blocks               one raw block
zstd      zstd                                        zstd
========  ==========================================  ==================================

Kafka's Java client takes no lz4 frame whose blocks need one another, so frames are put together here.
"""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from magnetar.base.arena import map_memory
from magnetar.base.errors import WireError
from magnetar.wire.compression import cramjam
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX, TooLargeExpanded
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType

KAFKA_NONE, KAFKA_GZIP, KAFKA_SNAPPY, KAFKA_LZ4, KAFKA_ZSTD = range(5)

PULSAR_OF: Final[dict[int, int]] = {
    KAFKA_NONE: CompressionType.NONE,
    KAFKA_GZIP: CompressionType.ZLIB,
    KAFKA_SNAPPY: CompressionType.SNAPPY,
    KAFKA_LZ4: CompressionType.LZ4,
    KAFKA_ZSTD: CompressionType.ZSTD,
}
KAFKA_OF: Final = {pulsar: kafka for kafka, pulsar in PULSAR_OF.items()}

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + bytes(
    (0, 0, 0, 1, 0, 0, 0, 1)
)  # version 1, readable by version 1
_XERIAL_BLOCK_BYTES: Final = 64 << 10
_XERIAL_SIZE: Final = Struct(">I")
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_SIZE: Final = Struct("<I")
_LZ4_STORED: Final = 0x8000_0000
# Largest block, and the descriptor that says so: version 1, independent blocks, no checksums; its last byte is the
# second lowest of the xxHash32 of the two before it.
_LZ4_FRAMES: Final = (
    (64 << 10, b"\x60\x40\x82"),
    (256 << 10, b"\x60\x50\xfb"),
    (1 << 20, b"\x60\x60\x51"),
    (4 << 20, b"\x60\x70\x73"),
)
_ON_HEAP_BYTES_MAX: Final = 1 << 20


def _expand_zlib(data: memoryview, out: memoryview) -> int:
    """Java's clients flush what they have and stop: a stream of theirs has neither an end nor a checksum."""
    stream = zlib.decompressobj()
    found = stream.decompress(data, len(out))
    if stream.decompress(stream.unconsumed_tail, 1):
        raise ValueError("there is more behind it than was said")
    out[: len(found)] = found
    return len(found)


_PULSAR_EXPAND: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    CompressionType.LZ4: lambda data, out: cramjam().lz4.decompress_block_into(
        data, out, output_len=len(out)
    ),
    CompressionType.ZLIB: _expand_zlib,
    CompressionType.ZSTD: lambda data, out: cramjam().zstd.decompress_into(data, out),
    CompressionType.SNAPPY: lambda data, out: cramjam().snappy.decompress_raw_into(data, out),
}
_PULSAR_COMPRESS: Final[dict[int, Callable[[memoryview], Any]]] = {
    CompressionType.LZ4: lambda data: cramjam().lz4.compress_block(data, store_size=False),
    CompressionType.ZLIB: lambda data: cramjam().zlib.compress(data),
    CompressionType.ZSTD: lambda data: cramjam().zstd.compress(data),
    CompressionType.SNAPPY: lambda data: cramjam().snappy.compress_raw(data),
}


def expand_pulsar(data: memoryview, codec: int, size: int, bytes_max: int = RECORDS_BYTES_MAX) -> memoryview:
    """The `size` bytes that a Pulsar client compressed.

    Raises:
        TooLargeExpanded: they are more than `bytes_max`.
        WireError: they are not there, or not all.
    """
    is_plain = codec == CompressionType.NONE
    if (len(data) if is_plain else size) > bytes_max:
        raise TooLargeExpanded(f"{size} bytes behind compression are more than {bytes_max}")
    if is_plain:
        return data
    out = memoryview(bytearray(size or 1) if size <= _ON_HEAP_BYTES_MAX else map_memory(size))
    expand_pulsar_into(data, codec, size, out)
    return out[:size]


def expand_pulsar_into(data: memoryview, codec: int, size: int, out: memoryview) -> None:
    """As `expand_pulsar`, to the beginning of `out`, which has room for them and for one byte at least."""
    expand = _PULSAR_EXPAND.get(codec)
    if expand is None:
        raise WireError(f"unknown compression {codec}")
    try:
        written = expand(data, out[: size or 1])
    except (cramjam().DecompressionError, zlib.error, ValueError) as error:
        raise WireError(f"a payload cannot be decompressed: {error}") from error
    if written != size:
        raise WireError(f"a payload has {written} bytes behind its compression, not {size}")


def compress_for_pulsar(data: memoryview, codec: int) -> memoryview:
    """`data` as Pulsar clients expect it behind that codec of theirs."""
    return data if codec == CompressionType.NONE else memoryview(_PULSAR_COMPRESS[codec](data))


def compress_for_kafka(data: memoryview, codec: int) -> memoryview:
    """`data` as Kafka clients expect it behind that codec of theirs."""
    match codec:
        case 0:
            return data
        case 1:
            return memoryview(cramjam().gzip.compress(data))
        case 2:
            return memoryview(_xerial(data))
        case 3:
            return memoryview(_lz4_frame(data))
        case _:
            return memoryview(cramjam().zstd.compress(data))


def _xerial(data: memoryview) -> bytes:
    parts: list[Any] = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam().snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES])
        parts += (_XERIAL_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _lz4_frame(data: memoryview) -> bytes:
    block_bytes, descriptor = next((frame for frame in _LZ4_FRAMES if frame[0] >= len(data)), _LZ4_FRAMES[-1])
    parts: list[Any] = [_LZ4_MAGIC, descriptor]
    for at in range(0, len(data), block_bytes):
        plain = data[at : at + block_bytes]
        block = cramjam().lz4.compress_block(plain, store_size=False)
        if len(block) < len(plain):
            parts += (_LZ4_SIZE.pack(len(block)), block)
        else:
            parts += (_LZ4_SIZE.pack(len(plain) | _LZ4_STORED), plain)
    parts.append(bytes(4))
    return b"".join(parts)

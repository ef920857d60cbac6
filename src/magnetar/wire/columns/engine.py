"""Decoding and encoding, as the rest of the program calls them: by compiled code as soon as that is loaded.

The first call loads the compiled code.  A caller that expects one does so earlier (`prepare`, `load`).  A process that
forks workers calls `load_kept`, and all workers share what it has loaded.  Where nothing was compiled yet, a child
process compiles, and Python does the work meanwhile, a hundredth as fast.  A caller with more than a little work waits
instead, and leaves the processor to the compiler.
"""

from typing import Final

import numpy as np

from magnetar.wire.columns import decoding, encoding, plain, plain_encode
from magnetar.wire.columns.model import (
    DECODED_BYTES_MAX,
    Columns,
    Decoded,
    Int64s,
    Producer,
    Wanted,
    Window,
)
from magnetar.wire.columns.schema_versions import schema_versions
from magnetar.wire.compiling import CompiledModules
from magnetar.wire.kafka.records import COMPRESSION_MASK
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

BATCH_BYTES_MAX: Final = 1 << 20
"""Of an encoded batch, unless said otherwise: what brokers take by default."""

_AT_ONCE_MAX: Final = 256 << 20  # 32-bit offsets hold that and another entry, whatever becomes of its bytes
_PATIENCE_BYTES: Final = 8 << 20  # of a process, half a second of Python; more waits for the compiler
_BYTES_PER_ROW: Final = 100  # about, where rows were not counted

_compiled = CompiledModules(
    __file__,
    [f"magnetar.wire.columns.compiled_{name}" for name in ("scan", "fill", "encode")],
    [
        "../compiled_bytes.py",
        "../convert/compiled_names.py",
        "../convert/compiled_protobuf.py",
        "../convert/naming.py",
        "../kafka/record_reader.py",
        "../kafka/records.py",
        "../pulsar/entry.py",
        "../stored.py",
        "compiled_cells.py",
        "compiled_encode.py",
        "compiled_fill.py",
        "compiled_memory.py",
        "compiled_pulsar.py",
        "compiled_scan.py",
        "layout.py",
        "model.py",
    ],
    "columns are not compiled, so reading and writing them stays slow",
)


def is_compiled() -> bool:
    """Whether the compiled code is loaded."""
    return _compiled.is_loaded


def prepare() -> None:
    """Begin to load the compiled code; returns at once."""
    _compiled.start()


def load(timeout_s: float | None = None) -> bool:
    """Load the compiled code and wait for that; whether it is there.  Seconds where it never was compiled."""
    return _compiled.load(timeout_s)


def load_kept() -> bool:
    """Load it, if it was compiled earlier, without a thread: for processes that fork."""
    return _compiled.load_kept()


class _Patience:
    """How many bytes Python may still decode and encode in this process."""

    def __init__(self) -> None:
        self._left = _PATIENCE_BYTES

    def covers(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0


_patience = _Patience()


def _use_compiled(size: int) -> bool:
    """Whether compiled code is to decode or encode `size` bytes."""
    if not _compiled.finished.is_set():
        _compiled.begin()
        if not _compiled.finished.is_set() and _patience.covers(size):
            return False
        _compiled.finished.wait()
    return is_compiled()


def decode(
    data: Buffer,
    wanted: Wanted | None = None,
    window: Window | None = None,
    bytes_max: int = DECODED_BYTES_MAX,
) -> Decoded:
    """The rows in whole store records side by side; one that is cut off at the end is left (`Decoded.consumed`).

    It stops behind the entry with which `bytes_max` uncompressed bytes are decoded, so a little compressed data cannot
    become any amount of memory.  Continue at `consumed` until nothing is left.

    Raises:
        EntryCorrupt: bytes that are not what was stored.
    """
    wanted = wanted or Wanted()
    window = window or Window()
    bytes_max = max(1, min(bytes_max, _AT_ONCE_MAX))
    if not _use_compiled(len(data)):
        found = plain.decode(data, wanted, window, bytes_max)
    else:
        found = decoding.decode(_compiled.modules, data, wanted, window, bytes_max)
    if wanted.schema_version and found.columns.offset is not None:
        found.columns.schema_version = schema_versions(data[: found.consumed], found.columns.offset)
    return found


def encode(
    columns: Columns,
    compression: int = 0,
    *,
    rows: Int64s | None = None,
    bytes_max: int = BATCH_BYTES_MAX,
    records_max: int = BATCH_MESSAGES_MAX,
    producer: Producer | None = None,
    timestamp_ms: int = -1,
) -> list[memoryview]:
    """Rows as Kafka record batches (v2, checksums set, base offset 0), in their order.

    rows          which ones, by number; all of them when None
    compression   Kafka's number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    bytes_max     of a batch with its header, before compression; a record that is larger gets a batch of its own
    producer      its sequence goes on from batch to batch
    timestamp_ms  of all records when there is no timestamp column

    Raises:
        ValueError: a compression, limit or row that does not exist, or columns that contradict themselves.
    """
    if not 0 <= compression <= 4 or compression & ~COMPRESSION_MASK:
        raise ValueError(f"there is no compression {compression}")
    if records_max < 1:
        raise ValueError(f"a batch of {records_max} records")
    if rows is None:
        rows = np.arange(columns.count, dtype=np.int64)
    elif len(rows) and not (rows.min() >= 0 and rows.max() < columns.count):
        raise ValueError(f"rows that {columns.count} rows do not have")
    producer = producer or Producer()
    limits = (rows, bytes_max, records_max, producer, timestamp_ms)
    if not _use_compiled(_BYTES_PER_ROW * len(rows)):
        return plain_encode.encode(columns, compression, *limits)
    return encoding.encode(_compiled.modules["compiled_encode"], columns, compression, *limits)

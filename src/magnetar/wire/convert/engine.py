"""Which code converts: the compiled one as soon as it is there, which is faster even for one record.

The first conversion asks for it, or a caller that expects one (`prepare`).  Until it is loaded (`wire/compiling.py`)
`plain.py` does the work, except for batches so large that waiting is shorter; where it cannot be, all of it.
"""

from typing import Any, Final

from magnetar.base import randomness
from magnetar.base.errors import WireError
from magnetar.wire.compiling import CompiledModules
from magnetar.wire.convert import plain
from magnetar.wire.convert.plain import Records
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

_PATIENCE_BYTES: Final = 8 << 20  # half a second of Python; more waits for the compiled code
_SLACK_PER_RECORD: Final = 32
_seed: Final = randomness.bits(62)

_compiled = CompiledModules(
    __file__,
    ["magnetar.wire.convert.compiled_messages", "magnetar.wire.convert.compiled_records"],
    [
        "../compiled_bytes.py",
        "compiled_messages.py",
        "compiled_names.py",
        "compiled_protobuf.py",
        "compiled_records.py",
        "naming.py",
    ],
    "conversions between the protocols are not compiled and stay slow",
)


def is_compiled() -> bool:
    """Whether the compiled code is loaded."""
    return _compiled.is_loaded


def prepare() -> None:
    """Begin to load the compiled code; returns at once."""
    _compiled.start()


def load(timeout_s: float | None = None) -> bool:
    """Load the compiled code and wait for that; whether it is there.  Not for the event loop."""
    return _compiled.load(timeout_s)


def messages_of(
    data: memoryview, record_count: int, slots: int, base_timestamp_ms: int, stamped_ms: int, headroom: int
) -> memoryview:
    """As `plain.messages_of`, behind `headroom` bytes for the caller to fill."""
    if slots > BATCH_MESSAGES_MAX:
        raise WireError(f"a batch of {slots} offsets")
    if not _use_compiled(len(data)):
        messages = plain.messages_of(data, record_count, slots, base_timestamp_ms, stamped_ms)
        return memoryview(bytearray(headroom) + messages)
    compiled: Any = _compiled.modules["compiled_messages"]
    room = headroom + len(data) + len(data) // 8 + _SLACK_PER_RECORD * slots
    while True:
        out = _empty(room)
        end = compiled.messages_of(
            _array(data), record_count, slots, base_timestamp_ms, stamped_ms, _seed, out, headroom
        )
        if end < 0:
            raise WireError("the records of a batch do not add up")
        if end <= room:
            return memoryview(out.data)[:end]
        room = _bounded(end)


def records_of(payload: memoryview, message_count: int, publish_time_ms: int, headroom: int) -> Records:
    """As `plain.records_of`; the data are behind `headroom` bytes for the caller to fill."""
    if not _use_compiled(len(payload)):
        records = plain.records_of(payload, message_count, publish_time_ms)
        return records._replace(data=memoryview(bytearray(headroom) + records.data))
    import numpy

    compiled: Any = _compiled.modules["compiled_records"]
    facts = numpy.zeros(3, numpy.int64)
    room = headroom + len(payload) + len(payload) // 8 + _SLACK_PER_RECORD * message_count
    while True:
        out = _empty(room)
        end = compiled.records_of(_array(payload), message_count, publish_time_ms, out, headroom, facts)
        if end < 0:
            raise WireError("the messages of a batch do not add up")
        if end <= room:
            return Records(memoryview(out.data)[:end], *facts.tolist())
        room = _bounded(end)


def _use_compiled(size: int) -> bool:
    """Whether compiled code is to convert `size` bytes."""
    if not _compiled.finished.is_set():
        _compiled.start()
        if size <= _PATIENCE_BYTES:
            return False
        _compiled.finished.wait()
    return is_compiled()


def _bounded(size: int) -> int:
    if size > RECORDS_BYTES_MAX:
        raise WireError(f"a batch of {size} bytes in its other form")
    return size


def _empty(size: int) -> Any:
    import numpy

    return numpy.empty(size, numpy.uint8)


def _array(data: memoryview) -> Any:
    import numpy

    array = numpy.frombuffer(data, numpy.uint8)
    array.flags.writeable = False  # the signature that was compiled
    return array

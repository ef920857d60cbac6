"""Which code converts: the compiled one as soon as it is there, which is faster even for one record.

Compiling takes ten seconds on a machine that has never done it, and loading what was compiled half of one.  The first
conversion asks for it, or whoever sees one coming (`prepare`).  A thread has a child process compile, at low priority,
because numba would hold the interpreter for tenths of a second at a time; then it loads the result.  Until then
`plain.py` does the work, except for batches so large that waiting is shorter.  Where numba cannot be loaded, it does
all of it.

The compiled code is kept in a folder named by its sources, below this package's `__pycache__` or, where that cannot be
written, the user's cache; `NUMBA_CACHE_DIR` overrides both, and without any of them each process compiles for itself.
"""

import fcntl
import hashlib
import logging
import os
import secrets
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

from magnetar.base.errors import WireError
from magnetar.wire.convert import plain
from magnetar.wire.convert.plain import Records
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

log = logging.getLogger(__name__)

_PATIENCE_BYTES: Final = 8 << 20  # half a second of Python; more waits for the compiled code
_SOURCES: Final = ("compiled_bytes.py", "compiled_messages.py", "compiled_records.py", "naming.py")
_BACKGROUND_NICENESS: Final = 5
_COMPILE: Final = """
import os, sys, threading
os.nice(int(sys.argv[1]))
def end_with_parent():
    sys.stdin.read()  # the other end of the pipe closes, however the parent ends
    os._exit(1)
threading.Thread(target=end_with_parent, daemon=True).start()
import magnetar.wire.convert.compiled_messages, magnetar.wire.convert.compiled_records
"""
_SLACK_PER_RECORD: Final = 32


class _Loader:
    """Loads the compiled modules once, on a thread of its own."""

    def __init__(self) -> None:
        self.messages: ModuleType | None = None
        self.records: ModuleType | None = None
        self.numpy: ModuleType | None = None
        self.finished = threading.Event()
        self._begin = threading.Lock()

    def start(self, niceness: int = _BACKGROUND_NICENESS) -> None:
        """Begin to load, unless that was done; returns at once."""
        if self._begin.acquire(blocking=False):
            threading.Thread(
                target=self._load, args=(niceness,), name="magnetar-compile", daemon=True
            ).start()

    def _load(self, niceness: int) -> None:
        with ExitStack() as cleanup:
            cleanup.callback(self.finished.set)
            try:
                folder = _cache_folder() or cleanup.enter_context(TemporaryDirectory(prefix="magnetar-"))
                _compile(folder, niceness)
                self._import(folder)
            except Exception:
                log.exception("conversions between the protocols are not compiled and stay slow")

    def _import(self, folder: str) -> None:
        import numba
        import numpy

        setattr(numba.config, "CACHE_DIR", folder)  # noqa: B010  its module declares none
        from magnetar.wire.convert import compiled_messages, compiled_records

        self.numpy, self.messages, self.records = numpy, compiled_messages, compiled_records


_loader = _Loader()
_seed: Final = secrets.randbits(62)


def is_compiled() -> bool:
    """Whether the compiled code is loaded."""
    return _loader.records is not None


def prepare() -> None:
    """Begin to load the compiled code; returns at once."""
    _loader.start()


def load(timeout_s: float | None = None) -> bool:
    """Load the compiled code and wait for that; whether it is there.  Not for the event loop."""
    _loader.start(niceness=0)
    _loader.finished.wait(timeout_s)
    return is_compiled()


def messages_of(
    data: memoryview, record_count: int, slots: int, base_timestamp_ms: int, stamped_ms: int, headroom: int
) -> memoryview:
    """As `plain.messages_of`, behind `headroom` bytes for the caller to fill."""
    if slots > BATCH_MESSAGES_MAX:
        raise WireError(f"a batch of {slots} offsets")
    compiled = _use_compiled(len(data)) and _loader.messages
    if not compiled:
        messages = plain.messages_of(data, record_count, slots, base_timestamp_ms, stamped_ms)
        return memoryview(bytearray(headroom) + messages)
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
    compiled = _use_compiled(len(payload)) and _loader.records
    if not compiled:
        records = plain.records_of(payload, message_count, publish_time_ms)
        return records._replace(data=memoryview(bytearray(headroom) + records.data))
    assert _loader.numpy is not None
    facts = _loader.numpy.zeros(3, _loader.numpy.int64)
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
    if not _loader.finished.is_set():
        _loader.start()
        if size <= _PATIENCE_BYTES:
            return False
        _loader.finished.wait()
    return is_compiled()


def _bounded(size: int) -> int:
    if size > RECORDS_BYTES_MAX:
        raise WireError(f"a batch of {size} bytes in its other form")
    return size


def _empty(size: int) -> Any:
    assert _loader.numpy is not None
    return _loader.numpy.empty(size, _loader.numpy.uint8)


def _array(data: memoryview) -> Any:
    assert _loader.numpy is not None
    array = _loader.numpy.frombuffer(data, _loader.numpy.uint8)
    array.flags.writeable = False  # the signature that was compiled
    return array


def _compile(folder: str, niceness: int) -> None:
    """Fill the folder, unless it is full; what goes wrong shows, and is said, when the result is loaded.

    One process does it, and others that start at the same time wait.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "magnetar.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given up by the kernel, however this process ends
        if any(Path(folder).rglob("*.nbc")):
            return
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _COMPILE, str(niceness)]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as child:  # noqa: S603  all ours
            child.wait()


def _cache_folder() -> str | None:
    """Where compiled code is kept; None when nothing can be written."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return given
    here = Path(__file__).parent
    digest = hashlib.sha256(b"".join((here / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]
    for folder in (here / "__pycache__", Path(os.path.expanduser("~/.cache/magnetar"))):
        cache = folder / f"compiled-{digest}"
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(cache, os.W_OK):
            return str(cache)
    return None

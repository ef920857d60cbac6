"""The disk that the servers of a run share: what it does by itself, and how to wait until that is nothing."""

import contextlib
import mmap
import os
import statistics
import time
from pathlib import Path
from typing import Final, NamedTuple

REST_SECONDS: Final = 1.0
REST_SECONDS_MAX: Final = 15.0
CALM_SECONDS_MAX: Final = 120.0
PROBE_SECONDS: Final = 20.0
PROBE_PAUSE_S: Final = 0.002
PROBE_BYTES: Final = 64 << 10
PROBE_FILE_BYTES: Final = 16 << 20
STALL_S: Final = 0.01
STALLED_SHARE_MAX: Final = 0.002  # what comes at a random moment waits so often: far from being its p99


class Pace(NamedTuple):
    """How small synced writes fare with no server at work.

    A stall is one write in a count, and seconds in which all clients wait: so it is the time that counts.
    """

    p50_ms: float
    stalled_share: float
    """Of the time, in writes that took over 10 ms."""
    worst_ms: float

    @property
    def calm(self) -> bool:
        return self.stalled_share <= STALLED_SHARE_MAX


def rest(folder: Path) -> None:
    """Wait until the disk under `folder` has nothing left to do from what ran before, at most 15 seconds.

    Dirty pages of one server are otherwise written, and the blocks of its deleted files discarded, while the other
    is measured; one of the two waits for the disk before it acknowledges, so the noise would not be even.
    """
    os.sync()
    give_up_at = time.monotonic() + REST_SECONDS_MAX
    before = None
    while (now := activity(folder)) != before and time.monotonic() < give_up_at:
        before = now
        time.sleep(REST_SECONDS)


def calm(folder: Path) -> Pace:
    """Wait until the disk under `folder` does not stall by itself, at most 2 minutes; how it answered last.

    A virtual disk goes on with its host's work when its own counters stand still: some gigabytes of writing leave it
    with stalls of 50 to 1,000 ms for minutes.
    """
    give_up_at = time.monotonic() + CALM_SECONDS_MAX
    while True:
        rest(folder)
        pace = probe(folder, PROBE_SECONDS)
        if pace.calm or time.monotonic() > give_up_at:
            return pace


def probe(folder: Path, seconds: float) -> Pace:
    """The disk under `folder` under what a journal at 20,000 records a second asks of it; past the page cache where
    the file system allows."""
    path = folder / "disk-probe"
    with contextlib.closing(mmap.mmap(-1, PROBE_BYTES)) as block:
        try:
            path.write_bytes(bytes(PROBE_FILE_BYTES))
            return _probe(path, block, seconds)
        finally:
            path.unlink(missing_ok=True)


def _probe(path: Path, block: mmap.mmap, seconds: float) -> Pace:
    descriptor = _open(path)
    took: list[float] = []
    try:
        os.fsync(descriptor)
        began = time.perf_counter()
        position = 0
        while (begin := time.perf_counter()) < began + seconds:
            os.pwrite(descriptor, block, position)
            took.append(time.perf_counter() - begin)
            position = (position + PROBE_BYTES) % PROBE_FILE_BYTES
            time.sleep(PROBE_PAUSE_S)
    finally:
        os.close(descriptor)
    stalled = sum(each for each in took if each > STALL_S)
    return Pace(1000 * statistics.median(took), stalled / (time.perf_counter() - began), 1000 * max(took))


def _open(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDWR | os.O_DSYNC | os.O_DIRECT)
    return os.open(path, os.O_RDWR | os.O_DSYNC)


def activity(folder: Path) -> list[str]:
    """The counters of the device under `folder` that move while it works; empty where the system has none."""
    device = folder.stat().st_dev
    name = [str(os.major(device)), str(os.minor(device))]
    with contextlib.suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            if (fields := line.split())[:2] == name:
                return fields[3:]
    return []
